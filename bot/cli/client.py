"""Client of the API for the command line, authenticated by a token."""

import functools
import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import click

from bot.cli.context import (
    FAILED,
    NOT_UNDERSTOOD,
    REFUSED,
    WAITING,
    CommandEnvironment,
    exit_on_errors,
    exit_with_error,
    get_exit_status,
)
from bot.cli.options import json_option, token_owner_option
from bot.cli.terminal import get_zone_name, time_options

if TYPE_CHECKING:
    import httpx2

_API_PREFIX = "/api/v1"
_POLL_SECONDS = 1.0
# Fields of database records that are times.
_TIME_FIELDS = frozenset(
    {
        *("added_at", "confirmed_at", "created_at", "ended_at", "ends_at", "expires_at"),
        *("last_used_at", "paused_at", "resumed_at", "revoked_at"),
    }
)
URL_OPTION = click.option(
    "--url",
    envvar="KEYTURN_URL",
    default="",
    show_envvar=True,
    help="Address of the service. Default: from the settings in this directory.",
)
_STATUS_HELP = """

    Exit status: 0 success, 1 failed, 2 invalid input, 3 not found, 4 refused, 5 not ended yet.
    """


@dataclass(frozen=True)
class ServiceClient:
    """The API of one service.

    `base_url` has no slash at its end.
    """

    http_client: "httpx2.Client"
    base_url: str

    def get(self, path: str, **parameters: object) -> Any:
        query = {name: value for name, value in parameters.items() if value not in {None, "", ()}}
        return self._send_request("GET", path, params=query)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._send_request("POST", path, json=dict(body or {}))

    def create_run(self, path: str, body: Mapping[str, Any] | None = None, **query: object) -> Any:
        """Send a POST that creates a run, and no second one if the network repeats it."""
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        return self._send_request(
            "POST", path, json=dict(body or {}), headers=headers, params=query
        )

    def get_linked(self, link: str) -> Any:
        """Get the page that a response links to."""
        return self._send_request("GET", link.removeprefix(_API_PREFIX))

    def wait_until_ended(
        self,
        run_id: int,
        *,
        seconds: float,
        report_run: Callable[[Any], None] | None = None,
        final_states: Collection[str] = ("unknown",),
    ) -> Any:
        """Poll a run until it ends or the time is over, and report each state.

        Args:
            final_states: States at which to return before the end.
        """
        deadline = time.monotonic() + seconds
        while True:
            began = time.monotonic()
            # The service responds earlier when the run ends, and immediately while it is pending.
            wait = max(0.0, min(_POLL_SECONDS, deadline - began))
            run = self.get(f"/runs/{run_id}", wait=wait)
            if report_run is not None:
                report_run(run)
            if run["ended"] or run["state"] in final_states or time.monotonic() > deadline:
                return run
            time.sleep(max(0.0, began + _POLL_SECONDS - time.monotonic()))

    def _send_request(self, method: str, path: str, **options: Any) -> Any:
        import httpx2

        try:
            response = self.http_client.request(method, f"{_API_PREFIX}{path}", **options)
        except httpx2.InvalidURL as error:
            exit_with_error(f"a value cannot be sent: {error}", NOT_UNDERSTOOD)
        except httpx2.HTTPError as error:
            message = f"cannot reach {self.base_url}: {_describe_connection_error(error)}"
            exit_with_error(f"{message}. Set KEYTURN_URL to the address of the service", FAILED)
        body = _parse_json(response, self.base_url)
        if response.status_code >= 400:
            problem_type = str(body.get("type", "")).rpartition(":")[2]
            detail = str(body.get("detail", response.reason_phrase))
            exit_with_error(detail, get_exit_status(response.status_code, problem_type))
        return body


def record_to_data(record: object, **extra: object) -> dict[str, object]:
    """Return a database record as JSON data, with times as the API writes them."""
    from bot.model.times import format_iso

    data = {
        name: format_iso(value) if name in _TIME_FIELDS and value is not None else value
        for name, value in vars(record).items()
    }
    return data | extra


def parse_time_option(typed: str | None, parse_time: Callable[..., int]) -> str:
    """Return a typed time as the API reads it; "" for none. Without a zone, it is the reader's.

    Args:
        parse_time: One of the parsers of bot.model.times.
    """
    from bot.model.times import to_datetime

    if not typed:
        return ""
    with exit_on_errors():
        at = parse_time(typed, now=time.time_ns() // 1000, zone=get_zone_name())
    return to_datetime(at).isoformat()


def format_approved_by(event: Mapping[str, Any]) -> str:
    """Return the approvers after a comma; "" if there are none."""
    return f", approved by {', '.join(event['approved_by'])}" if event["approved_by"] else ""


def get_run_exit_status(run: Mapping[str, Any]) -> int:
    """Return the exit status for the state of a run."""
    state = run["state"]
    if state == "planned":
        return 0
    if state in {"succeeded", "no_changes"}:
        report: Mapping[str, Any] | None = run.get("report")
        return 0 if report is None or report["healthy"] else FAILED
    if state in {"refused", "denied"}:
        return REFUSED
    return FAILED if run["ended"] or state == "unknown" else WAITING


def connect_to_service(url: str, token: str, *, token_owner: str = "") -> ServiceClient:
    """Return a client that is open until the command ends.

    Args:
        token_owner: The person to whom the token must belong; "" for any.
    """
    import httpx2

    if not token:
        exit_with_error(
            f"KEYTURN_TOKEN is not set: {_get_token_advice()}",
            FAILED,
        )
    if problem := find_address_problem(url):
        exit_with_error(problem, FAILED)
    if not (token.isascii() and token.isprintable() and " " not in token):
        exit_with_error(f"invalid KEYTURN_TOKEN: {_get_token_advice()}", FAILED)
    base = url.rstrip("/")
    client = httpx2.Client(**_describe_client(base, token, seconds=30))
    click.get_current_context().call_on_close(client.close)
    service = ServiceClient(client, base)
    if token_owner:
        me = service.get("/me")
        if me["person"] != token_owner:
            message = f"the token belongs to {me['person']}, not to {token_owner}"
            exit_with_error(f"{message}: {_get_token_advice()}", REFUSED)
    return service


def _describe_client(base_url: str, token: str, *, seconds: float) -> dict[str, Any]:
    return {
        "base_url": base_url,
        "headers": {"Authorization": f"Bearer {token}"},
        "timeout": seconds,
        "verify": is_remote(base_url),
        "trust_env": is_remote(base_url),
    }


class NoAnswerError(Exception):
    """The service did not answer. The message says why."""


def read_answer(url: str, token: str, path: str, *, seconds: float) -> tuple[int, Any]:
    """Return status and JSON of one GET, None if it is no JSON. Raises NoAnswerError.

    url: an address without a problem.
    """
    import httpx2

    try:
        with httpx2.Client(**_describe_client(url.rstrip("/"), token, seconds=seconds)) as client:
            response = client.get(f"{_API_PREFIX}{path}")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise NoAnswerError(_describe_connection_error(error)) from None
    try:
        return response.status_code, response.json()
    except ValueError:
        return response.status_code, None


def _get_token_advice() -> str:
    from bot.auth.tokens import CREATE_TOKEN_ADVICE

    return CREATE_TOKEN_ADVICE


def find_address_problem(url: str) -> str:
    """Return why a token must not be sent to this address; "" if it may."""
    from connectors.public_addresses import is_encrypted_or_local

    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return f"invalid KEYTURN_URL {url}: use an address such as https://keyturn.example.com"
    if not is_encrypted_or_local(parts):
        return "KEYTURN_URL must begin with https://, except for this machine"
    return ""


def is_remote(url: str) -> bool:
    """Return whether a service is reached by TLS, and perhaps a proxy.

    For this machine, no certificates of authorities are read: that takes longer than the request.
    """
    return url.startswith("https:")


def pass_service(command: Callable[..., None]) -> Callable[..., None]:
    """Pass a ServiceClient to a command, by its options and the environment; and add `--json`."""

    # The token has no option: everyone on the machine can read command lines.
    @json_option
    @token_owner_option
    @URL_OPTION
    @time_options
    @functools.wraps(command)
    def run_with_service(*args: Any, url: str, token_owner: str, **named: Any) -> None:
        import os

        context = click.get_current_context()
        token = os.environ.get("KEYTURN_TOKEN", "").strip()
        service = connect_to_service(
            url or get_service_url(context), token, token_owner=token_owner
        )
        command(service, *args, **named)

    run_with_service.__doc__ = (command.__doc__ or "").rstrip() + _STATUS_HELP
    return run_with_service


def get_service_url(context: click.Context) -> str:
    """Return the address of the service that the settings in this directory describe."""
    from bot.service_address import export_library_variables, read_local_address

    environment = context.find_object(CommandEnvironment)
    export_library_variables()
    # A wrong setting ends the command with a message that names it.
    return read_local_address() or (environment.settings.here if environment else "")


def build_path(*parts: object) -> str:
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def _describe_connection_error(error: Exception) -> str:
    """Return why the connection failed, without error numbers."""
    message = re.sub(r"\[Errno -?\d+\] |^\[SSL: \w+\] | \(_ssl\.c:\d+\)", "", str(error))
    return message or type(error).__name__


def _parse_json(response: "httpx2.Response", url: str) -> Any:
    try:
        return response.json()
    except ValueError:
        message = f"{url} returned status {response.status_code} and no JSON: is it Keyturn?"
        exit_with_error(message, FAILED)
