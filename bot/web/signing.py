"""Sign plans with a passkey: the signing page, the way to it, and what it sends back."""

import re
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from bot.db import runs
from bot.db.database import Transaction
from bot.db.runs import NoSuchRun
from bot.model.errors import InvalidRequestError, NotAllowed
from bot.model.run import Run
from bot.queries.pending import read_inbox
from bot.queries.run_view import Viewer, build_run_view
from bot.queries.signatures import WRONG_PASSKEY_SIGNATURE, find_passkey_signature
from bot.signing.assertion import parse_assertion
from bot.signing.page import build_content_policy, build_fragment, render_signing_page
from bot.web.deps import WebDeps
from bot.web.visit import FormValues, IdPath, Visit

router = APIRouter()
# What the page sends back: the only form of another site that Keyturn takes.
RETURN_PATH = "/signatures"
_ALL = "all"
_NUMBER = re.compile(r"[0-9]{1,11}")


@router.get("/sign")
def show_signing_page(deps: WebDeps) -> Response:
    """Return the page that may be served elsewhere, too."""
    policy = f"{build_content_policy(deps.base_url)}; frame-ancestors 'none'"
    page = render_signing_page(deps.base_url)
    return HTMLResponse(page, headers={"Content-Security-Policy": policy})


@router.get("/runs/{number}/sign")
def open_signing_page(
    visit: Visit, number: IdPath, then: Annotated[str, Query(max_length=3)] = ""
) -> Response:
    """Send the person to the signing page, with the plan of a run."""
    with visit.read_viewable() as tx:
        view = build_run_view(tx, number, visit.policy, Viewer(visit.person))
    if view.run.plan is None or not view.can_sign:
        raise NotAllowed(f"run {number} does not wait for your signature")
    asks = "required" if view.run.requirements.requires_reason else "optional"
    fragment = build_fragment(
        view.run.plan,
        person=visit.person,
        then=then,
        # What the requester signs has its reason already.
        reason="" if view.allowed_actions.sign else asks,
        needs_verified_user=visit.policy.organisation.verify_user,
    )
    return RedirectResponse(f"{visit.deps.signing_page}#{fragment}", 303)


@router.get("/signatures/next")
def sign_next_plan(visit: Visit) -> Response:
    """Send the person to the next plan that waits for their signature, or else to Home."""
    with visit.read_viewable() as tx:
        number = read_inbox(tx, visit.policy, visit.person).next_to_sign
    address = f"/runs/{number}/sign?{urlencode({'then': _ALL})}" if number else "/"
    return RedirectResponse(address, 303)


@router.post(RETURN_PATH)
def receive_signature(deps: WebDeps, form: FormValues) -> Response:
    """Record what a person has signed. The signature itself says who they are: no session does.

    Until it is verified, the answer is the same for runs and people that do not exist.
    """
    policy = deps.policies.get_policy()
    person, number = form.get("person", ""), form.get("run", "")
    assertion = parse_assertion(
        form.get("authenticator_data", ""), form.get("client_data", ""), form.get("signature", "")
    )
    with deps.database.reading(policy.get_view_rights(person)) as tx:
        run = _find_run(tx, number)
    signature = find_passkey_signature(policy, person, assertion, run.plan)
    if run.requested_by == person:
        deps.service.sign_request(run.id, person=person, digest=run.digest, signature=signature)
    else:
        deps.service.approve_run(
            run.id,
            person=person,
            digest=run.digest,
            reason=form.get("reason", ""),
            signature=signature,
        )
    is_next = form.get("then") == _ALL
    return RedirectResponse("/signatures/next" if is_next else f"/runs/{run.id}?done=signed", 303)


def _find_run(tx: Transaction, number: str) -> Run:
    """Return a run. Raises the error of a wrong signature if there is none."""
    try:
        return runs.get_run(tx, int(number) if _NUMBER.fullmatch(number) else 0)
    except NoSuchRun:
        raise InvalidRequestError(WRONG_PASSKEY_SIGNATURE) from None
