"""`keyturn sign`: signatures of people over plans."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bot.cli.client import ServiceClient, build_path, parse_time_option, pass_service
from bot.cli.context import FAILED, REFUSED, CommandEnvironment, exit_with_error, is_interactive
from bot.cli.options import START_AT_OPTION, pass_environment, reason_option
from bot.cli.runs import NUMBER_ARGUMENT, SHORT_WAIT_OPTION, wait_and_print_run
from bot.cli.terminal import escape_for_terminal

if TYPE_CHECKING:
    from bot.model.plan import ResolvedPlan

# Hosts read no more.
_MAX_LENGTH = 4 * 1024 * 1024
# How far a clock may be behind, as on a host whose floor does not set it.
_SKEW_SECONDS = 60
_KEY_NAMES = ("id_ed25519_sk", "id_ecdsa_sk", "id_ed25519", "id_ecdsa")


def key_option(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return an option for a key of a person."""
    return click.option(
        *names,
        type=click.Path(path_type=Path, dir_okay=False),
        help="Your private key, or the public key of one in your agent. Default: the first of "
        f"{', '.join(_KEY_NAMES)} in ~/.ssh.",
    )


@click.command("signing-page")
@pass_environment
def print_signing_page(environment: CommandEnvironment) -> None:
    """Print the page on which people sign plans, for a server other than Keyturn's.

    It is one file that requests nothing. Set KEYTURN_SIGNING_PAGE to its address.

    For example: keyturn signing-page > index.html
    """
    from bot.signing.page import render_signing_page

    click.echo(render_signing_page(environment.settings.address), nl=False)


@click.command("sign")
@NUMBER_ARGUMENT
@key_option("--key", "key_file")
@reason_option()
@START_AT_OPTION
@click.option("--yes", is_flag=True, help="Sign without asking.")
@SHORT_WAIT_OPTION
@pass_service
def sign_plan(
    service: ServiceClient,
    *,
    number: int,
    key_file: Path | None,
    reason: str,
    start_at: str,
    yes: bool,
    seconds: float | None,
) -> None:
    """Show the plan of run NUMBER, sign it with your SSH key, and approve it.

    This machine computes the hashes and shows what you sign. If you requested the run and the
    policy requires that you sign it, you sign the request instead. A time of start is no part of
    what is signed: Keyturn waits for it, and an enrolled host does not know it.

    For example: keyturn sign 12 --key ~/.ssh/id_ed25519_sk
    """
    from bot.model.times import parse_deadline

    at = parse_time_option(start_at, parse_deadline)
    run = service.get(build_path("runs", number))
    action = next((one for one in ("sign", "approve") if one in run["actions"]), "")
    if not action:
        exit_with_error(f"you cannot sign run {number} now: keyturn run {number}", REFUSED)
    shown = service.get(build_path("runs", number, "document"))
    plan = _parse_plan(shown, number)
    signature = show_and_sign(plan, key_file, yes=yes)
    body = {"digest": plan.digest, "signature": signature}
    more = {"reason": reason, "start_at": at or None} if action == "approve" else {}
    service.post(build_path("runs", number, action), body | more)
    wait_and_print_run(service, number, wait_seconds=seconds)


def _parse_plan(shown: Mapping[str, Any], number: int) -> "ResolvedPlan":
    """Return the plan whose document and sections the service sent, if their hashes match."""
    from bot.model.plan import parse_plan
    from bot.model.plan_text import PlanTextError

    try:
        texts = [shown["document"], *(one["text"] for one in shown["sections"])]
        if sum(map(len, texts)) > _MAX_LENGTH:
            exit_with_error(f"do not sign run {number}: its plan is larger than 4 MiB", FAILED)
        plan = parse_plan(texts[0], texts[1:])
    except PlanTextError as error:
        exit_with_error(f"do not sign run {number}: {error}", FAILED)
    except (LookupError, TypeError):
        exit_with_error(f"do not sign run {number}: the service returned no plan", FAILED)
    if plan.run != number:
        exit_with_error(f"do not sign: this is the plan of run {plan.run}", FAILED)
    return plan


def describe_plan(plan: "ResolvedPlan") -> list[str]:
    """Return what a signature is for, line by line."""
    from bot.model.times import format_utc

    title = f"run {plan.run} of {plan.installation}" if plan.run else "offline plan"
    lines = [
        f"{title}: {plan.runbook}",
        f"  requested by {plan.requested_by}: {plan.reason or 'no reason'}",
        *(f"  {name} {value}" for name, value in sorted(plan.values.items())),
        *([f"  schedule {plan.timing.name}: {plan.timing.description}"] if plan.timing else []),
        f"  may start until {format_utc(plan.expires_at)}",
    ]
    for section in plan.sections:
        lines.append(f"on {section.host} ({section.fingerprint}):")
        for step in section.steps:
            lines += [
                f"  {step.title}: {step.before or '…'} → {step.after or '…'}",
                f"    do    {step.command}",
                f"    undo  {step.undo or f'none: {step.no_undo_reason}'}",
            ]
    return lines


def show_and_sign(plan: "ResolvedPlan", key_file: Path | None, *, yes: bool) -> str:
    """Show a plan, ask, and return the signature. yes: do not ask."""
    _refuse_other_time(plan)
    for line in describe_plan(plan):
        click.echo(escape_for_terminal(line), err=True)
    if not yes:
        if not is_interactive():
            exit_with_error("read the plan in a terminal, or say --yes", REFUSED)
        click.confirm(f"Sign this plan ({plan.digest[:10]})?", abort=True, err=True)
    return sign_document(plan.document, key_file or find_own_key())


def _refuse_other_time(plan: "ResolvedPlan") -> None:
    """Exit if the plan has expired, or has not begun, by the clock of this machine."""
    from bot.model.times import SECOND, format_utc

    now = time.time_ns() // 1000
    clock = f"the clock of this machine says {format_utc(now)}"
    if now >= plan.expires_at:
        exit_with_error(
            f"the plan expired at {format_utc(plan.expires_at)}, and {clock}: request it again, "
            "or set the clock",
            REFUSED,
        )
    if now < plan.not_before - _SKEW_SECONDS * SECOND:
        exit_with_error(
            f"the plan was made at {format_utc(plan.not_before)}, and {clock}: set the clock",
            REFUSED,
        )


def find_own_key() -> Path:
    """Return the first usual key in ~/.ssh; end with a message if there is none."""
    directory = Path.home() / ".ssh"
    found = next((directory / name for name in _KEY_NAMES if (directory / name).exists()), None)
    if found is None:
        exit_with_error(
            f"none of {', '.join(_KEY_NAMES)} is in {directory}: name your key", FAILED
        )
    return found


def sign_document(document: str, key_file: Path) -> str:
    """Return the signature of `ssh-keygen -Y sign`, which asks for a touch or a passphrase."""
    from bot.signing.sshsig import PLAN_NAMESPACE

    program = shutil.which("ssh-keygen")
    if program is None:
        exit_with_error("ssh-keygen is missing: install openssh-client", FAILED)
    with tempfile.TemporaryDirectory(prefix="keyturn-") as directory:
        file = Path(directory) / "plan"
        file.write_bytes(document.encode())
        command = [program, "-Y", "sign", "-n", PLAN_NAMESPACE, "-f", str(key_file), str(file)]
        if subprocess.run(command, check=False).returncode:
            exit_with_error("ssh-keygen made no signature; nothing was sent", FAILED)
        return file.with_name("plan.sig").read_text()
