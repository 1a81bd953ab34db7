"""Error pages: each says what is wrong and what to do."""

from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException

from bot import observability
from bot.model.text import format_sentence
from bot.web import middleware, redirects
from bot.web.auth import NotSignedInError, check_still_signed_in
from bot.web.deps import WebDependencies
from bot.web.templating import render_page
from connectors.errors import DomainError

_ERROR_MESSAGES: Mapping[int, tuple[str, str]] = {
    400: ("Invalid request", "The request could not be read. Go back and try again."),
    403: ("Not allowed", "You are not allowed to do this."),
    404: ("Page not found", "Check the address. The link may be out of date."),
    405: ("Method not allowed", "This address does not accept this kind of request."),
    408: ("Request timeout", "The request arrived too slowly. Try again."),
    409: ("Conflict", "It has changed since you opened the page. Open it again."),
    410: ("Link expired", "Get a new link to sign in."),
    413: ("Request too large", middleware.TOO_LARGE),
    422: ("Invalid input", "A field has an invalid value. Go back and correct it."),
    500: ("Internal error", "The details are in the log of the service. Try again later."),
    503: ("Service unavailable", "Try again shortly."),
}


def render_refusal(request: Request, status: int, message: str = "") -> HTMLResponse:
    """Return the error page of an HTTP status, with *message* or the default message."""
    title, default = _ERROR_MESSAGES.get(status, ("Error", "Go back and try again."))
    return render_page(
        request, "error.html", status=status, title=title, message=message or default, code=status
    )


def install_error_handlers(app: FastAPI, deps: WebDependencies) -> None:
    """Register a response for every exception that a page may raise."""

    async def handle_not_signed_in(request: Request, error: Exception) -> Response:
        target_page = await redirects.get_requested_page(request, deps)
        is_form = request.method == "POST"
        typed = await redirects.read_typed_values(request) if is_form else {}
        response = render_page(
            request,
            "signed_out.html",
            status=401,
            message=str(error),
            provider=deps.provider_name,
            has_slack=deps.has_slack,
            target_page=target_page,
            is_form=is_form,
            typed=typed,
        )
        redirects.store_target_page(request, response, deps, target_page)
        # A page that was opened before the person signed in again must not end the new session.
        if request.cookies.get(deps.cookie_name) and not redirects.is_background_request(request):
            delete_session_cookie(response, deps)
        return response

    def handle_internal_error(request: Request, _error: Exception) -> Response:
        # The request guard does not see this response, so the headers are set here.
        response = render_refusal(request, 500)
        middleware.set_security_headers(
            MutableHeaders(raw=response.raw_headers), request.url.path, origin=deps.origin
        )
        return response

    app.add_exception_handler(NotSignedInError, handle_not_signed_in)
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    app.add_exception_handler(DomainError, _handle_domain_error)
    app.add_exception_handler(Exception, handle_internal_error)


def delete_session_cookie(response: Response, deps: WebDependencies) -> None:
    """Delete the session cookie."""
    response.delete_cookie(deps.cookie_name, **deps.cookie_flags)


def _handle_http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    # A bare phrase such as "Not Found" is the default of Starlette; use our message instead.
    phrase = HTTPStatus(error.status_code).phrase
    _find_user(request)
    response = render_refusal(
        request, error.status_code, "" if error.detail == phrase else error.detail
    )
    response.headers.update(error.headers or {})
    return response


def _find_user(request: Request) -> None:
    """Load the user for the menu of an error page, if someone is signed in."""
    if not hasattr(request.state, "user"):
        with suppress(NotSignedInError, DomainError):
            check_still_signed_in(request)


def _handle_invalid_request(request: Request, error: Exception) -> Response:
    locations = {
        problem["loc"][0]
        for problem in (error.errors() if isinstance(error, RequestValidationError) else ())
    }
    return render_refusal(request, 404 if "path" in locations else 422)


def _handle_domain_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, DomainError):
        raise error
    # The route only: the full address may be a sign-in link.
    route = observability.route_name(request.scope["path"])
    message = format_sentence(observability.explain_error(error, f"{request.method} {route}"))
    return render_refusal(request, error.status, message)
