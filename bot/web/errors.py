"""Trouble: every no and every fault as a page that says what is so and what to do."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException

from bot import observability
from bot.db.database import StoreUnavailable
from bot.db.runs import NoSuchRun
from bot.db.schedules import NoSuchSchedule
from bot.policy import NoPolicyError
from bot.web import middleware, redirects
from bot.web.auth import NotSignedInError, check_still_signed_in
from bot.web.deps import WebDependencies
from bot.web.templating import render_page

log = logging.getLogger(__name__)

_ERROR_MESSAGES: Mapping[int, tuple[str, str]] = {
    400: ("That could not be read", "The request was garbled. Go back and try it again."),
    403: ("That is not for you", "Somebody else may do this."),
    404: ("There is no such page", "The address may be mistyped, or the link may be too old."),
    405: ("That cannot be done here", "This address is for something else."),
    408: ("That took too long", "The request came in too slowly. Try it again."),
    409: ("Somebody was faster", "It has changed since you looked. Look at it again."),
    410: ("This link is used up", "Type /keyturn web in Slack for a new one."),
    413: ("That is too long", middleware.TOO_LARGE),
    422: ("That does not fit", "Something that was filled in does not fit. Go back and look."),
    500: ("Keyturn has a fault", "It was written down in the service's log. Try it again later."),
    503: ("Keyturn cannot work now", "Try it again in a moment."),
}


def render_refusal(request: Request, status: int, message: str = "") -> HTMLResponse:
    """Draw the page for a status, with words of its own or the usual ones."""
    title, usual = _ERROR_MESSAGES.get(status, ("That did not work", "Go back and try it again."))
    return render_page(
        request, "trouble.html", status=status, title=title, words=message or usual, code=status
    )


def install_error_handlers(app: FastAPI, parts: WebDependencies) -> None:
    """Give every exception that a page may meet its answer."""

    def signed_out(request: Request, error: Exception) -> Response:
        to = redirects.get_requested_page(request)
        answer = render_page(
            request,
            "signed_out.html",
            status=401,
            why=str(error),
            provider=parts.provider_name,
            to=to,
        )
        redirects.store_target_page(request, answer, parts, to)
        if request.cookies.get(parts.cookie_name):
            delete_session_cookie(answer, parts)
        return answer

    def fault(request: Request, _error: Exception) -> Response:
        # This one is drawn outside the guard, so it is dressed here.
        answer = render_refusal(request, 500)
        middleware.set_security_headers(
            MutableHeaders(raw=answer.raw_headers), request.url.path, origin=parts.origin
        )
        return answer

    app.add_exception_handler(NotSignedInError, signed_out)
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    app.add_exception_handler(NoSuchRun, _handle_not_found)
    app.add_exception_handler(NoSuchSchedule, _handle_not_found)
    app.add_exception_handler(NoPolicyError, _handle_invalid_policy)
    app.add_exception_handler(StoreUnavailable, _handle_database_unavailable)
    app.add_exception_handler(Exception, fault)


def delete_session_cookie(response: Response, parts: WebDependencies) -> None:
    """Take the session's cookie away."""
    response.delete_cookie(
        parts.cookie_name, path="/", secure=parts.secure_cookies, httponly=True, samesite="lax"
    )


def _handle_http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    # A bare phrase such as "Not Found" is Starlette's own, and says less than ours.
    phrase = HTTPStatus(error.status_code).phrase
    _find_visitor(request)
    answer = render_refusal(
        request, error.status_code, "" if error.detail == phrase else error.detail
    )
    answer.headers.update(error.headers or {})
    return answer


def _find_visitor(request: Request) -> None:
    """Find whose menu belongs on a page that asked nobody who they are; without one, it does."""
    if not hasattr(request.state, "visitor"):
        with suppress(NotSignedInError, StoreUnavailable, NoPolicyError):
            check_still_signed_in(request, request.app.state.parts)


def _handle_invalid_request(request: Request, error: Exception) -> Response:
    places = {
        problem["loc"][0]
        for problem in (error.errors() if isinstance(error, RequestValidationError) else ())
    }
    return render_refusal(request, 404 if "path" in places else 422)


def _handle_not_found(request: Request, error: Exception) -> Response:
    return render_refusal(request, 404, f"{str(error).capitalize()}.")


def _handle_invalid_policy(request: Request, error: Exception) -> Response:
    log.error("there is no valid policy: %s", error)
    words = (
        "The policy files cannot be used as they are, so nobody may do anything. "
        "`keyturn policy check` says where and what to do."
    )
    return render_refusal(request, 503, words)


def _handle_database_unavailable(request: Request, error: Exception) -> Response:
    # Not the whole address, which may be a link that signs somebody in.
    log.critical(
        "%s %s: %s", request.method, observability.route_name(request.scope["path"]), error
    )
    words = (
        "The database does not answer, so nothing was done. Try it again in a moment; "
        "whoever runs Keyturn finds the reason in its log."
    )
    return render_refusal(request, 503, words)
