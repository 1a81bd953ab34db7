"""The service as the command line speaks to it: over its API, with somebody's token."""

import functools
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import click

from bot.cli.context import (
    FAILED,
    NOT_FOUND,
    NOT_UNDERSTOOD,
    REFUSED,
    WAITING,
    CommandEnvironment,
    exit_with_error,
)

if TYPE_CHECKING:
    import httpx2

_API_PREFIX = "/api/v1"
_POLL_SECONDS = 1.0
# What a kind of problem comes to; any other is a failure.
_EXIT_STATUSES: Mapping[str, int] = {
    **dict.fromkeys(("not-understood", "unfit"), NOT_UNDERSTOOD),
    **dict.fromkeys(("no-such-run", "no-such-schedule", "not-found"), NOT_FOUND),
    **dict.fromkeys(("no-token", "other-scope", "not-yours", "second-factor"), REFUSED),
}
# What a record of the store calls its moments.
_TIME_FIELDS = frozenset({"created_at", "ends_at", "expires_at", "revoked_at", "last_used_at"})
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_STATUS_HELP = """

    Exit status: 0 done, 1 failed, 2 not understood, 3 not found, 4 refused, 5 waiting.
    """
json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")


@dataclass(frozen=True)
class ServiceClient:
    """url: of the pages, without a slash at its end."""

    http_client: "httpx2.Client"
    base_url: str

    def get(self, path: str, **parameters: object) -> Any:
        given = {name: value for name, value in parameters.items() if value not in {None, "", ()}}
        return self._send_request("GET", path, params=given)

    def post(
        self, path: str, body: Mapping[str, Any] | None = None, *, idempotency_key: str = ""
    ) -> Any:
        """key: what the same request has one effect by, however often it is made."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return self._send_request("POST", path, json=dict(body or {}), headers=headers)

    def get_linked(self, link: str) -> Any:
        """Get what an answer leads on to."""
        return self._send_request("GET", link.removeprefix(_API_PREFIX))

    def wait_until_ended(
        self, run_id: int, *, seconds: float, report_run: Callable[[Any], None]
    ) -> Any:
        """Look at a run until it is over or waits for somebody too long; told: of each look."""
        deadline = time.monotonic() + seconds
        while True:
            began = time.monotonic()
            # It answers sooner if the run is over by then, and at once while it waits for people.
            wait = max(0.0, min(_POLL_SECONDS, deadline - began))
            run = self.get(f"/runs/{run_id}", wait=wait)
            report_run(run)
            if run["ended"] or run["state"] == "unknown" or time.monotonic() > deadline:
                return run
            time.sleep(max(0.0, began + _POLL_SECONDS - time.monotonic()))

    def _send_request(self, method: str, path: str, **options: Any) -> Any:
        import httpx2

        try:
            answer = self.http_client.request(method, f"{_API_PREFIX}{path}", **options)
        except httpx2.HTTPError as trouble:
            said = f"{self.base_url} does not answer: {_describe_connection_error(trouble)}"
            exit_with_error(f"{said}. KEYTURN_URL says where `keyturn serve` listens", FAILED)
        told = _parse_json(answer, self.base_url)
        if answer.status_code >= 400:
            kind = str(told.get("type", "")).rpartition(":")[2]
            exit_with_error(
                _escape_line(told.get("detail", answer.reason_phrase)), get_exit_status(kind)
            )
        return told


def format_time(iso_time: str, *, with_seconds: bool = False) -> str:
    """Return a moment of an answer as people read it: `2026-03-01 14:30Z`."""
    return f"{iso_time[: 19 if with_seconds else 16].replace('T', ' ')}Z"


def record_to_data(record: object, **extra: object) -> dict[str, object]:
    """Return what a record of the store says, for programs: its moments as the API writes them."""
    from bot.model.times import format_iso

    said = {
        name: format_iso(value) if name in _TIME_FIELDS and value is not None else value
        for name, value in vars(record).items()
    }
    return said | extra


def parse_time_option(typed: str | None, parse_time: Callable[..., int]) -> str:
    """Return what was typed as the API reads it; "" for nothing. meant: one of hindsight's."""
    from bot.model.times import InvalidTimeError, to_datetime

    try:
        return (
            to_datetime(parse_time(typed, now=time.time_ns() // 1000)).isoformat() if typed else ""
        )
    except InvalidTimeError as trouble:
        exit_with_error(str(trouble), NOT_UNDERSTOOD)


def get_exit_status(problem_type: str) -> int:
    """Return the exit status for a kind of problem."""
    return _EXIT_STATUSES.get(problem_type, FAILED)


def format_approved_by(event: Mapping[str, Any]) -> str:
    """Return who approved, behind a comma; "" if nobody did."""
    return f", approved by {', '.join(event['approved_by'])}" if event["approved_by"] else ""


def format_run_state(run: Mapping[str, Any]) -> str:
    """Return what lists say of a run, in the words by which it is looked for."""
    # As in bot.model.run, which takes longer to load than to list runs.
    unwell = run["needs_attention"] and run["state"] == "succeeded"
    return "needs attention" if unwell else run["state"]


def get_run_exit_status(run: Mapping[str, Any]) -> int:
    """Return the exit status for a run as it is."""
    state = run["state"]
    if state in {"succeeded", "no_changes"}:
        report: Mapping[str, Any] | None = run.get("report")
        return 0 if report is None or report["healthy"] else FAILED
    if state in {"refused", "denied"}:
        return REFUSED
    return FAILED if run["ended"] or state == "unknown" else WAITING


def connect_to_service(url: str, token: str, *, token_owner: str = "") -> ServiceClient:
    """Return the service, for as long as the command lasts. person: whose the token must be."""
    import httpx2

    parts = urlsplit(url)
    if not token:
        exit_with_error(
            "set KEYTURN_TOKEN to a token of yours: the page Tokens makes one, and where the "
            "service runs so does keyturn token new YOU --scope ask",
            FAILED,
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        exit_with_error(
            f"KEYTURN_URL={url} is no address such as https://keyturn.example.com", FAILED
        )
    if parts.scheme == "http" and parts.hostname not in _LOCAL_HOSTS:
        exit_with_error(
            "a token is only sent over https, or to this machine: set KEYTURN_URL so", FAILED
        )
    if not (token.isascii() and token.isprintable() and " " not in token):
        exit_with_error("KEYTURN_TOKEN is no token: it begins with kt_", FAILED)
    base = url.rstrip("/")
    client = httpx2.Client(base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=30)
    click.get_current_context().call_on_close(client.close)
    found = ServiceClient(client, base)
    if token_owner:
        me = found.get("/me")
        if me["person"] != token_owner:
            exit_with_error(f"the token is {me['person']}'s, and not {token_owner}'s", REFUSED)
    return found


def pass_service(command: Callable[..., None]) -> Callable[..., None]:
    """Hand the service to a command, reached as the options and the environment say."""
    # No option for it: what stands on a command line, everybody on the machine can read.
    whose = click.option("--as", "whose", default="", help="Whose the token must be.")
    return whose(pass_service_without_as(command))


def pass_service_without_as(command: Callable[..., None]) -> Callable[..., None]:
    """Do the same for a command to which `--as` means something else."""

    @click.option(
        "--url",
        envvar="KEYTURN_URL",
        default="",
        show_envvar=True,
        help="Where Keyturn is; left out, where the settings in this directory have it listen.",
    )
    @functools.wraps(command)
    def reached(*args: Any, url: str, whose: str = "", **named: Any) -> None:
        import os

        token = os.environ.get("KEYTURN_TOKEN", "").strip()
        command(
            connect_to_service(url or _get_default_url(), token, token_owner=whose), *args, **named
        )

    reached.__doc__ = (command.__doc__ or "").rstrip() + _STATUS_HELP
    return reached


def _get_default_url() -> str:
    """Return where the service is that is served from here."""
    place = click.get_current_context().find_object(CommandEnvironment)
    return (place.get_service_url() if place else "") or "http://127.0.0.1:8080"


def print_result(
    data: object, lines: Sequence[str], *, as_json: bool, empty_message: str = ""
) -> None:
    """Print an answer for programs, or its lines for people. empty: what to say of none."""
    if as_json:
        click.echo(json.dumps(data, ensure_ascii=False))
        return
    for line in lines:
        click.echo(escape_for_terminal(line))
    if not lines:
        click.echo(empty_message, err=True)


def escape_for_terminal(text: str) -> str:
    """Make what a terminal would act on visible: hosts may say anything."""
    from bot.model.text import escape_control

    return escape_control(text)


def build_path(*parts: object) -> str:
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def _escape_line(text: object) -> str:
    from bot.model.text import escape_to_one_line

    return escape_to_one_line(str(text))


def _describe_connection_error(error: Exception) -> str:
    """Return why nobody answered, without the numbers that only programmers read."""
    said = re.sub(r"\[Errno -?\d+\] |^\[SSL: \w+\] | \(_ssl\.c:\d+\)", "", str(error))
    return _escape_line(said) or type(error).__name__


def _parse_json(response: "httpx2.Response", url: str) -> Any:
    try:
        return response.json()
    except ValueError:
        click.echo(
            f"keyturn: {url} answers {response.status_code}, not as Keyturn would", err=True
        )
        raise SystemExit(FAILED) from None
