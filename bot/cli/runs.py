"""`keyturn ask`, `runs`, `run`, `approve` and the like: what one does in chat, for scripts."""

import json
import secrets
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from bot.cli.client import (
    Service,
    allowed_by,
    as_json,
    at,
    at_service,
    at_service_of_token,
    format_state,
    moment,
    outcome,
    path_of,
    visibly,
)
from bot.cli.context import FAILED, NOT_FOUND, NOT_UNDERSTOOD, Number, Place, stop
from bot.cli.follow import follow
from bot.cli.formatting import in_full
from bot.cli.sections import Family

if TYPE_CHECKING:
    from click.core import Context, Parameter

_LONGEST_WAIT = 24 * 3600.0
# Of a report's table, in a terminal; whoever passes it on reads all of it.
_MOST_ROWS = 40
_NUMBER = click.argument("number", type=Number())
_WHY = click.option("--why", default="", help="What the change log shall say about it.")
_DRY = click.option("--dry-run", "dry", is_flag=True, help="Only say what would come of it.")
# Whoever asks or approves wants to read what came of it; `--wait 0` is for scripts that do not.
_A_MOMENT = 20.0


def _wait(otherwise: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option. otherwise: what is done if it is left out."""
    return click.option(
        "--wait",
        "seconds",
        is_flag=False,
        flag_value=_LONGEST_WAIT,
        type=click.FloatRange(0, _LONGEST_WAIT),
        metavar="SECONDS",
        help=f"Wait until it is over, or for so many seconds at most{otherwise}.",
    )


_WAIT = _wait()
_WAIT_A_LITTLE = _wait(
    f"; left out, until it is over or waits for people, and for {_A_MOMENT:.0f} seconds at most"
)


def _runbook_words(
    context: "Context", _parameter: "Parameter", incomplete: str
) -> list[CompletionItem]:
    """Offer the next word of the runbooks that begin with what stands there already."""
    from runbooks import load_catalogue

    # The settings are read by that: they say where runbooks of one's own are.
    place = context.find_object(Place)
    if place is not None:
        place.policy()
    typed: tuple[str, ...] = context.params.get("words") or ()
    found: dict[str, str] = {}
    for words, runbook in load_catalogue().items():
        parts = words.split()
        fits = tuple(parts[: len(typed)]) == typed and len(parts) > len(typed)
        if fits and parts[len(typed)].startswith(incomplete):
            whole = len(parts) == len(typed) + 1
            found.setdefault(parts[len(typed)], (runbook.__doc__ or "").splitlines()[0] * whole)
    return [CompletionItem(word, help=hint) for word, hint in found.items()]


@click.command("ask")
@click.argument(
    "words", nargs=-1, required=True, shell_complete=_runbook_words, metavar="WORDS HOST…"
)
@_WHY
@_DRY
@_WAIT_A_LITTLE
@as_json
@at_service
def ask(
    reached: Service,
    *,
    words: tuple[str, ...],
    why: str,
    dry: bool,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Ask for WORDS to be done, as one would type them in chat.

    For example: keyturn ask abusers clear lb1 203.0.113.9 --why "ticket 4711"
    """
    import shlex

    body = {"words": shlex.join(words), "reason": why, "dry": dry}
    _asked(reached, "/runs", body, seconds=seconds, as_json=as_json)


@click.command("runs")
@click.option("--host", help="A name, or a pattern such as web*.")
@click.option("--person", help="Who asked.")
@click.option("--runbook", help="Its words.")
@click.option(
    "--state",
    multiple=True,
    help="Such as waiting or 'needs attention'; may be given several times.",
)
@click.option("--since", help="2h, last week, 02:00, 2026-03-01 02:00 Europe/Paris; else UTC.")
@click.option("--until", help="As --since.")
@click.option("--text", help="Words that all occur in it.")
@click.option("-n", "--most", type=click.IntRange(1, 10_000), default=20, show_default=True)
@as_json
@at_service
def list_runs(reached: Service, *, most: int, as_json: bool, **wanted: Any) -> None:
    """List the newest runs.

    What it finds none of exits with 3 if it names somebody, or something, that never was.
    """
    from bot.model import times

    wanted["since"] = at(wanted["since"], times.parse_earliest)
    wanted["until"] = at(wanted["until"], times.parse_latest)
    page = reached.get("/runs", **wanted, limit=min(most, 200))
    found: list[Mapping[str, Any]] = list(page["runs"])
    while page["next"] and len(found) < most:
        page = reached.follow(page["next"])
        found += page["runs"]
    unheard_of = [] if found else list(page["unheard_of"].values())
    if as_json:
        click.echo(json.dumps(found[:most], ensure_ascii=False))
    for run in () if as_json else found[:most]:
        asked = moment(run["asked_at"])
        how = f"{format_state(run):<15} {run['asked_by']:<10} {run['title']}"
        click.echo(visibly(f"{run['id']:>6}  {asked}  {how}{allowed_by(run)}"))
    if unheard_of:
        stop(visibly("; ".join(unheard_of)), NOT_FOUND)
    if not found and not as_json:
        click.echo("there is no such run", err=True)


class _Run(Family):
    """`keyturn run 7` tells about run 7: `show` need not be said."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        said = args[:1]
        if said and said[0].isdecimal():
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group("run", cls=_Run)
def one_run() -> None:
    """Tell about a run, or settle how it ended: keyturn run 7."""


@one_run.command("show")
@_NUMBER
@click.option("--follow", "following", is_flag=True, help="Tell what happens, until it is over.")
@_WAIT
@as_json
@at_service
def show_run(
    reached: Service, *, number: int, following: bool, seconds: float | None, as_json: bool
) -> None:
    """Tell about run NUMBER: how it is, its plan, and who decided.

    With --follow, what its hosts say comes as they say it, and below it how far the run is.
    """
    if following:
        follow(reached, number, as_json=as_json)
    _finish(reached, number, seconds=seconds or 0.0, as_json=as_json)


@one_run.command("resolve")
@_NUMBER
@click.option(
    "--as",
    "how",
    type=click.Choice(("succeeded", "failed")),
    required=True,
    help="How it ended, as you found on the host.",
)
@click.option("--why", required=True, help="How you know, for the change log.")
@as_json
@at_service_of_token
def resolve(reached: Service, *, number: int, how: str, why: str, as_json: bool) -> None:
    """Say how run NUMBER ended, whose end nobody saw: its host is free again then.

    For example: keyturn run resolve 7 --as failed --why "looked at lb1: the table is untouched"
    """
    body = {"succeeded": how == "succeeded", "why": why}
    _show(reached.post(path_of("runs", number, "settle"), body), as_json=as_json)


@click.command("approve")
@_NUMBER
@click.argument("digest", default="")
@_WHY
@_WAIT_A_LITTLE
@as_json
@at_service
def approve(
    reached: Service, *, number: int, digest: str, why: str, seconds: float | None, as_json: bool
) -> None:
    """Approve the plan of run NUMBER that has DIGEST; without one, show it and ask."""
    run = reached.get(path_of("runs", number))
    if not digest:
        if not run["digest"] or not sys.stdin.isatty():
            stop(
                f"say which plan: keyturn approve {number} {run['digest'][:10]}".strip(),
                NOT_UNDERSTOOD,
            )
        click.echo(visibly(in_full(run)))
        click.confirm(f"Approve this plan, {run['digest'][:10]}?", abort=True, err=True)
        digest = run["digest"]
    reached.post(path_of("runs", number, "approve"), {"digest": digest, "reason": why})
    _finish(reached, number, seconds=seconds, as_json=as_json)


@click.command("deny")
@_NUMBER
@click.option("--why", required=True, help="So that the asker knows.")
@as_json
@at_service
def deny(reached: Service, *, number: int, why: str, as_json: bool) -> None:
    """Say no to run NUMBER: one no ends it."""
    run = reached.post(path_of("runs", number, "deny"), {"reason": why})
    _show(run, as_json=as_json)


@click.command("withdraw")
@_NUMBER
@as_json
@at_service
def withdraw(reached: Service, *, number: int, as_json: bool) -> None:
    """Take your own request back before anything was sent."""
    _show(reached.post(path_of("runs", number, "withdraw")), as_json=as_json)


@click.command("undo")
@_NUMBER
@_WHY
@_WAIT_A_LITTLE
@as_json
@at_service
def undo(reached: Service, *, number: int, why: str, seconds: float | None, as_json: bool) -> None:
    """Ask to take back what run NUMBER did: a run of its own."""
    path = path_of("runs", number, "undo")
    run = reached.post(path, {"reason": why}, key=secrets.token_hex(16))
    _finish(reached, run["id"], seconds=seconds, as_json=as_json)


@click.command("again")
@_NUMBER
@_WHY
@_DRY
@_WAIT_A_LITTLE
@as_json
@at_service
def again(
    reached: Service, *, number: int, why: str, dry: bool, seconds: float | None, as_json: bool
) -> None:
    """Ask again for what run NUMBER asked for, which is over: a run of its own.

    It has the same values, and the hosts that they mean by now; the reason is given anew.
    """
    path, body = path_of("runs", number, "again"), {"reason": why, "dry": dry}
    _asked(reached, path, body, seconds=seconds, as_json=as_json)


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(*, shell: str) -> None:
    """Print what makes SHELL complete the words of this program.

    For example: keyturn completion bash > /etc/bash_completion.d/keyturn
    """
    root = click.get_current_context().find_root().command
    found = get_completion_class(shell)
    if found is None:
        stop(f"{shell} is not known here", FAILED)
    click.echo(found(root, {}, "keyturn", "_KEYTURN_COMPLETE").source())


COMMANDS = (ask, list_runs, one_run, approve, deny, withdraw, undo, again, completion)


def _asked(
    reached: Service,
    path: str,
    body: Mapping[str, Any],
    *,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Ask, and show what came of it; of a dry request, what would come of it."""
    told = reached.post(path, body, key=secrets.token_hex(16))
    if told["run"] is None:
        sentences = "\n".join(told["outlook"]["sentences"])
        click.echo(json.dumps(told["outlook"]) if as_json else visibly(sentences))
        sys.exit(0 if told["outlook"]["allowed"] else 4)
    for answer in told["outlook"]["answers"] if told["outlook"] and not as_json else ():
        if answer["frozen"] and answer["approvals"]:
            click.echo(visibly(f"once approved it waits: {answer['frozen']}"), err=True)
    _finish(reached, told["run"]["id"], seconds=seconds, as_json=as_json)


def _finish(reached: Service, number: int, *, seconds: float | None, as_json: bool) -> None:
    """Wait if that is wanted, show the run, and exit as its end says.

    seconds: None for a moment, and no longer than until it waits for people.
    """
    if seconds is None:
        run = reached.get(path_of("runs", number), wait=_A_MOMENT)
    else:
        progress = _Progress()
        run = reached.until_over(number, seconds=seconds, told=progress if seconds else _silent)
        progress.end()
    _show(run, as_json=as_json)
    sys.exit(outcome(run))


def _show(run: Mapping[str, Any], *, as_json: bool) -> None:
    most = _MOST_ROWS if sys.stdout.isatty() else None
    told = json.dumps(run, ensure_ascii=False) if as_json else visibly(in_full(run, most=most))
    click.echo(told)


def _silent(_run: Mapping[str, Any]) -> None:
    return


class _Progress:
    """Tells on standard error how far it is: a bar where a person looks on, else each change."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, run: Mapping[str, Any]) -> None:
        steps: list[dict[str, Any]] = run["plan"]["steps"] if run["plan"] else []
        done = sum(step["state"] in {"succeeded", "failed"} for step in steps)
        line = f"run {run['id']}: {run['state']}"
        if run["state"] == "waiting":
            line += f" for {run['missing']} of {run['whose']}"
        elif len(steps) > 1:
            line += f", {done} of {len(steps)} steps"
        live = sys.stderr.isatty()
        if live and len(steps) > 1:
            filled = 20 * done // len(steps)
            line = f"[{'#' * filled}{'.' * (20 - filled)}] {line}"
        if line != self._last:
            click.echo(
                f"\r\033[K{visibly(line)}" if live else visibly(line), err=True, nl=not live
            )
        self._last = line

    def end(self) -> None:
        """End the line that was drawn again and again: what comes next has its own."""
        if self._last and sys.stderr.isatty():
            click.echo("", err=True)
