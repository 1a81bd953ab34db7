"""Liveness and readiness for monitoring, and the health check of the pages."""

import logging
from collections.abc import Iterator

from fastapi import APIRouter, HTTPException, Response
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
    describe_total,
)
from bot.policy import NoPolicyError, Policy
from bot.web.assets import describe_missing_assets
from bot.web.deps import WebDependencies, WebDeps
from bot.web.visit import Visit, VisitOfPage

log = logging.getLogger(__name__)
router = APIRouter()


@router.get("/healthz")
def report_liveness() -> PlainTextResponse:
    """Return 200 while the process answers requests."""
    return PlainTextResponse("alive\n")


@router.get("/readyz")
def report_readiness(deps: WebDeps) -> JSONResponse:
    """Return 200 if the database responds, the change log is writable and the policy is valid.

    Otherwise return 503. A short loss of the connection to Slack is only reported. A token that
    Slack refuses, or a long loss of connection, also makes the service not ready.
    """
    components = {name: check() for name, check in deps.health_checks.items()}
    database_problem, log_problem = _describe_store_problems(deps)
    problems = {
        "database": database_problem,
        "change log": log_problem,
        "policy": _describe_policy_problem(deps),
    }
    ok_messages = {"database": "responds", "change log": "is writable", "policy": "is valid"}
    broken = any(problems.values()) or any(one.is_broken for one in components.values())
    return JSONResponse(
        {"ready": not broken}
        | {name: problem or ok_messages[name] for name, problem in problems.items()}
        | {name: one.message for name, one in components.items()}
        | _describe_role_problem(deps)
        | _describe_site_problem(deps),
        503 if broken else 200,
    )


def check_pages(installation: Installation, _policy: Policy | None) -> Iterator[CheckResult]:
    """Check that the pages are complete and are reached over TLS."""
    address = installation.base_url
    if missing := describe_missing_assets():
        yield create_error_result("pages", missing)
    elif not address:
        yield create_warning_result(
            "pages",
            "have no base URL: set KEYTURN_BASE_URL to the address that browsers use",
        )
    elif not address.startswith("https://"):
        yield create_warning_result(
            "pages", f"are at {address}, without TLS: put a TLS proxy in front of Keyturn"
        )
    else:
        yield create_ok_result("pages", f"are at {address}")


def _describe_store_problems(deps: WebDependencies) -> tuple[str, str]:
    """Return what is wrong with the database and with the change log; "" for nothing."""
    try:
        with deps.database.reading() as tx:
            tree = change_log.check_newest_entry(tx)
        deps.database.wait_until_durable(tree.size)
        deps.database.seen_head.note(tree)
    except StoreUnavailable as error:
        log.critical("not ready: %s", error)
        if isinstance(error, change_log.LogAlteredError):
            return "", error.public_message
        return "does not respond: see the log of the service", _describe_change_log_problem(deps)
    return "", _describe_change_log_problem(deps)


def _describe_role_problem(deps: WebDependencies) -> dict[str, str]:
    """Return a warning if our database role could rewrite the change log; the service still works.

    No details, because the response is public.
    """
    try:
        excess_rights = roles.find_excess_rights(deps.database)
    except StoreUnavailable:
        return {}
    message = "has too many rights: run keyturn db check"
    return {"database role": message} if excess_rights else {}


def _describe_site_problem(deps: WebDependencies) -> dict[str, str]:
    """Return a warning if a site has no worker; this replica still works.

    No details, because the response is public.
    """
    if deps.database.embedded:
        return {}
    try:
        with deps.database.reading() as tx:
            is_ok = health.check_sites(tx).level == "ok"
    except StoreUnavailable:
        return {}
    message = "requests wait at a site without a worker: run keyturn doctor"
    return {} if is_ok else {"sites": message}


def _describe_change_log_problem(deps: WebDependencies) -> str:
    error = deps.database.error
    if isinstance(error, change_log.LogAlteredError):
        return error.public_message
    return "is not writable, so nothing runs: see the log of the service" if error else ""


def _describe_policy_problem(deps: WebDependencies) -> str:
    # No details, because the response is public.
    try:
        deps.policies.get_policy()
    except NoPolicyError as error:
        log.critical("not ready: %s", error)
        return "is not valid, so all requests are refused: run keyturn policy check"
    return ""


_SUBJECTS = {"ssh": "SSH"}


@router.get("/health")
def show_health(visit: Visit) -> Response:
    """Show the result of every check, errors first."""
    if not can_view_health(visit):
        able = visit.policy.list_people_allowed("stop", except_person="")
        who = f"ask one of them: {', '.join(able)}" if able else "the policy names none"
        raise HTTPException(
            403, f"The health page is for people who are allowed to stop everything: {who}."
        )
    order = ("error", "warning", "ok")
    results = sorted(_list_check_results(visit), key=lambda one: order.index(one.level))
    return visit.render("health.html", results=results, total=describe_total(results))


def can_view_health(visit: VisitOfPage) -> bool:
    """Return whether the user may see the health page."""
    return visit.policy.get_order_ruling(visit.person, "stop").allowed


def _list_check_results(visit: VisitOfPage) -> list[CheckResult]:
    results = [*visit.deps.list_check_results()]
    for name, check in visit.deps.health_checks.items():
        health = check()
        create = create_error_result if health.is_broken else create_ok_result
        results.append(create(_SUBJECTS.get(name, name.capitalize()), health.message))
    return results
