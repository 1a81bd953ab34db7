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

from bot.cli.context import FAILED, NOT_FOUND, NOT_UNDERSTOOD, REFUSED, WAITING, Place, stop

if TYPE_CHECKING:
    import httpx2

_API = "/api/v1"
_LOOK_SECONDS = 1.0
# What a kind of problem comes to; any other is a failure.
_STATUSES: Mapping[str, int] = {
    **dict.fromkeys(("not-understood", "unfit"), NOT_UNDERSTOOD),
    **dict.fromkeys(("no-such-run", "no-such-schedule", "not-found"), NOT_FOUND),
    **dict.fromkeys(("no-token", "other-scope", "not-yours", "second-factor"), REFUSED),
}
# What a record of the store calls its moments.
_MOMENTS = frozenset({"made", "ends", "expires", "revoked", "used"})
_HOME = frozenset({"localhost", "127.0.0.1", "::1"})
_STATUS = """

    Exit status: 0 done, 1 failed, 2 not understood, 3 not found, 4 refused, 5 waiting.
    """
as_json = click.option("--json", "as_json", is_flag=True, help="For programs.")


@dataclass(frozen=True)
class Service:
    """url: of the pages, without a slash at its end."""

    client: "httpx2.Client"
    url: str

    def get(self, path: str, **query: object) -> Any:
        given = {name: value for name, value in query.items() if value not in {None, "", ()}}
        return self._answer("GET", path, params=given)

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, key: str = "") -> Any:
        """key: what the same request has one effect by, however often it is made."""
        headers = {"Idempotency-Key": key} if key else {}
        return self._answer("POST", path, json=dict(body or {}), headers=headers)

    def follow(self, address: str) -> Any:
        """Get what an answer leads on to."""
        return self._answer("GET", address.removeprefix(_API))

    def until_over(self, number: int, *, seconds: float, told: Callable[[Any], None]) -> Any:
        """Look at a run until it is over or waits for somebody too long; told: of each look."""
        deadline = time.monotonic() + seconds
        while True:
            began = time.monotonic()
            # It answers sooner if the run is over by then, and at once while it waits for people.
            wait = max(0.0, min(_LOOK_SECONDS, deadline - began))
            run = self.get(f"/runs/{number}", wait=wait)
            told(run)
            if run["over"] or run["state"] == "unknown" or time.monotonic() > deadline:
                return run
            time.sleep(max(0.0, began + _LOOK_SECONDS - time.monotonic()))

    def _answer(self, method: str, path: str, **what: Any) -> Any:
        import httpx2

        try:
            answer = self.client.request(method, f"{_API}{path}", **what)
        except httpx2.HTTPError as trouble:
            said = f"{self.url} does not answer: {_reason(trouble)}"
            stop(f"{said}. KEYTURN_URL says where `keyturn serve` listens", FAILED)
        told = _json(answer, self.url)
        if answer.status_code >= 400:
            kind = str(told.get("type", "")).rpartition(":")[2]
            stop(_plain(told.get("detail", answer.reason_phrase)), status_of(kind))
        return told


def moment(told: str, *, seconds: bool = False) -> str:
    """Return a moment of an answer as people read it: `2026-03-01 14:30Z`."""
    return f"{told[: 19 if seconds else 16].replace('T', ' ')}Z"


def as_told(record: object, **more: object) -> dict[str, object]:
    """Return what a record of the store says, for programs: its moments as the API writes them."""
    from bot.model.times import format_iso

    said = {
        name: format_iso(value) if name in _MOMENTS and value is not None else value
        for name, value in vars(record).items()
    }
    return said | more


def at(typed: str | None, meant: Callable[..., int]) -> str:
    """Return what was typed as the API reads it; "" for nothing. meant: one of hindsight's."""
    from bot.model.times import NotATime, to_datetime

    try:
        return to_datetime(meant(typed, now=time.time_ns() // 1000)).isoformat() if typed else ""
    except NotATime as trouble:
        stop(str(trouble), NOT_UNDERSTOOD)


def status_of(kind: str) -> int:
    """Return the exit status for a kind of problem."""
    return _STATUSES.get(kind, FAILED)


def allowed_by(told: Mapping[str, Any]) -> str:
    """Return who approved, behind a comma; "" if nobody did."""
    return f", approved by {', '.join(told['approved_by'])}" if told["approved_by"] else ""


def format_state(run: Mapping[str, Any]) -> str:
    """Return what lists say of a run, in the words by which it is looked for."""
    # As in bot.model.run, which takes longer to load than to list runs.
    unwell = run["unwell"] and run["state"] == "succeeded"
    return "needs attention" if unwell else run["state"]


def outcome(run: Mapping[str, Any]) -> int:
    """Return the exit status for a run as it is."""
    state = run["state"]
    if state in {"succeeded", "unchanged"}:
        report: Mapping[str, Any] | None = run.get("report")
        return 0 if report is None or report["healthy"] else FAILED
    if state in {"refused", "denied"}:
        return REFUSED
    return FAILED if run["over"] or state == "unknown" else WAITING


def service(url: str, token: str, *, person: str = "") -> Service:
    """Return the service, for as long as the command lasts. person: whose the token must be."""
    import httpx2

    parts = urlsplit(url)
    if not token:
        stop(
            "set KEYTURN_TOKEN to a token of yours: the page Tokens makes one, and where the "
            "service runs so does keyturn token new YOU --scope ask",
            FAILED,
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        stop(f"KEYTURN_URL={url} is no address such as https://keyturn.example.com", FAILED)
    if parts.scheme == "http" and parts.hostname not in _HOME:
        stop("a token is only sent over https, or to this machine: set KEYTURN_URL so", FAILED)
    if not (token.isascii() and token.isprintable() and " " not in token):
        stop("KEYTURN_TOKEN is no token: it begins with kt_", FAILED)
    base = url.rstrip("/")
    client = httpx2.Client(base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=30)
    click.get_current_context().call_on_close(client.close)
    found = Service(client, base)
    if person:
        me = found.get("/me")
        if me["person"] != person:
            stop(f"the token is {me['person']}'s, and not {person}'s", REFUSED)
    return found


def at_service(command: Callable[..., None]) -> Callable[..., None]:
    """Hand the service to a command, reached as the options and the environment say."""
    # No option for it: what stands on a command line, everybody on the machine can read.
    whose = click.option("--as", "whose", default="", help="Whose the token must be.")
    return whose(at_service_of_token(command))


def at_service_of_token(command: Callable[..., None]) -> Callable[..., None]:
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
        command(service(url or _settled(), token, person=whose), *args, **named)

    reached.__doc__ = (command.__doc__ or "").rstrip() + _STATUS
    return reached


def _settled() -> str:
    """Return where the service is that is served from here."""
    place = click.get_current_context().find_object(Place)
    return (place.service() if place else "") or "http://127.0.0.1:8080"


def print_result(told: object, lines: Sequence[str], *, as_json: bool, empty: str = "") -> None:
    """Print an answer for programs, or its lines for people. empty: what to say of none."""
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    for line in lines:
        click.echo(visibly(line))
    if not lines:
        click.echo(empty, err=True)


def visibly(text: str) -> str:
    """Make what a terminal would act on visible: hosts may say anything."""
    from bot.model.text import escape_control

    return escape_control(text)


def path_of(*parts: object) -> str:
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def _plain(text: object) -> str:
    from bot.model.text import escape_to_one_line

    return escape_to_one_line(str(text))


def _reason(trouble: Exception) -> str:
    """Return why nobody answered, without the numbers that only programmers read."""
    said = re.sub(r"\[Errno -?\d+\] |^\[SSL: \w+\] | \(_ssl\.c:\d+\)", "", str(trouble))
    return _plain(said) or type(trouble).__name__


def _json(answer: "httpx2.Response", url: str) -> Any:
    try:
        return answer.json()
    except ValueError:
        click.echo(f"keyturn: {url} answers {answer.status_code}, not as Keyturn would", err=True)
        raise SystemExit(FAILED) from None
