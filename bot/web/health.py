"""Health of the web door: liveness and readiness for machines, and the check of the pages."""

import logging
from collections.abc import Iterator

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse

from bot import health
from bot.audit import change_log
from bot.db import roles
from bot.db.database import StoreUnavailable
from bot.maintenance.installation import Installation
from bot.model.check_result import (
    CheckResult,
    create_error_result,
    create_ok_result,
    create_warning_result,
)
from bot.policy import NoPolicyError, Policy
from bot.web.assets import describe_missing_assets
from bot.web.deps import WebDependencies, WebDeps

log = logging.getLogger(__name__)
router = APIRouter()


@router.get("/healthz")
def report_liveness() -> PlainTextResponse:
    return PlainTextResponse("alive\n")


@router.get("/readyz")
def report_readiness(parts: WebDeps) -> JSONResponse:
    """Answer 200 if the database answers, the log can be written and the policy is valid.

    Else 503; in words too. A moment without Slack is only told; but a token that Slack refused is
    for somebody to mend, and without any connection for long nothing arrives.
    """
    others = {name: look() for name, look in parts.health_checks.items()}
    troubles = {
        "database": _describe_database_problem(parts),
        "change log": _describe_change_log_problem(parts),
        "policy": _describe_policy_problem(parts),
    }
    well = {"database": "answers", "change log": "can be written", "policy": "is valid"}
    broken = any(troubles.values()) or any(other.is_broken for other in others.values())
    return JSONResponse(
        {"ready": not broken}
        | {name: trouble or well[name] for name, trouble in troubles.items()}
        | {name: other.message for name, other in others.items()}
        | _describe_role_problem(parts)
        | _describe_site_problem(parts),
        503 if broken else 200,
    )


def check_pages(installation: Installation, _policy: Policy | None) -> Iterator[CheckResult]:
    """Check that the pages are complete and that people reach them over TLS."""
    address = installation.base_url
    if bare := describe_missing_assets():
        yield create_error_result("the pages", bare)
    elif not address:
        yield create_warning_result(
            "the pages",
            "have no address for others: set KEYTURN_BASE_URL to how people reach them",
        )
    elif not address.startswith("https://"):
        yield create_warning_result("the pages", f"are at {address}, without TLS: put it in front")
    else:
        yield create_ok_result("the pages", f"are at {address}")


def _describe_database_problem(parts: WebDependencies) -> str:
    try:
        with parts.database.reading() as tx:
            change_log.get_head(tx)
    except StoreUnavailable as trouble:
        log.critical("not ready: %s", trouble)
        return "does not answer: the service's log says why"
    return ""


def _describe_role_problem(parts: WebDependencies) -> dict[str, str]:
    """Say if our role in the database could rewrite the log: a warning, for we work all the same.

    What exactly it could is not for strangers.
    """
    try:
        strong = roles.find_excess_rights(parts.database)
    except StoreUnavailable:
        return {}
    words = "may do more than it should: keyturn db check says what"
    return {"database role": words} if strong else {}


def _describe_site_problem(parts: WebDependencies) -> dict[str, str]:
    """Say if there is a site without a worker: this replica does its work all the same.

    Which it is is not for strangers.
    """
    if parts.database.embedded:
        return {}
    try:
        with parts.database.reading() as tx:
            well = health.check_sites(tx).level == "ok"
    except StoreUnavailable:
        return {}
    words = "requests wait at a site without a worker: keyturn doctor says which"
    return {} if well else {"sites": words}


def _describe_change_log_problem(parts: WebDependencies) -> str:
    if not parts.database.trouble:
        return ""
    return "could not be written, and until it can be, nothing runs: the service's log says why"


def _describe_policy_problem(parts: WebDependencies) -> str:
    # Strangers may ask: what is wrong in which file is not for them.
    try:
        parts.policies.get_policy()
    except NoPolicyError as trouble:
        log.critical("not ready: %s", trouble)
        return "is not valid, so nobody may do anything: keyturn policy check says where"
    return ""
