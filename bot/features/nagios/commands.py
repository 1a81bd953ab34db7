"""`keyturn nagios`: exit status 0, 1, 2 or 3, a line for people, and performance data.

Source: https://www.monitoring-plugins.org/doc/guidelines.html
"""

import os
import sys
import time
from collections import Counter
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn

import click

from bot.cli.client import NoAnswerError, find_address_problem, read_answer
from bot.model.text import escape_to_one_line, format_count


class Status(IntEnum):
    """The exit status of a plugin."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


_STATUSES = {"ok": Status.OK, "warning": Status.WARNING, "error": Status.CRITICAL}
# The service answers, and this check may not read it or does not understand it.
_WRONG_TOKEN = frozenset({401, 403})


class _Plugin(click.Command):
    """A command whose wrong options are UNKNOWN: click's exit status would mean CRITICAL."""

    def make_context(self, *args: Any, **named: Any) -> click.Context:
        try:
            return super().make_context(*args, **named)
        except click.UsageError as error:
            _exit(Status.UNKNOWN, error.format_message())


@click.command("nagios", cls=_Plugin)
@click.option(
    "--url", envvar="KEYTURN_URL", required=True, show_envvar=True, help="Address of the service."
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File with a token of scope read. Default: KEYTURN_TOKEN.",
)
@click.option(
    "--timeout", "-t", type=click.FloatRange(0.1, 600), default=10, help="Seconds. Default: 10."
)
def check_service(*, url: str, token_file: Path | None, timeout: float) -> None:
    """Check the health of the service, as a plugin of Nagios or Icinga.

    The owner of the token may stop everything: only they read the health checks. The token has no
    option, because everyone on the machine can read command lines.

    Exit status: 0 OK, 1 WARNING, 2 CRITICAL, also if the service does not answer, 3 UNKNOWN.

    For example: keyturn nagios --url https://keyturn.example.com --token-file /etc/icinga2/token
    """
    if problem := find_address_problem(url):
        _exit(Status.UNKNOWN, problem)
    began = time.monotonic()
    checks = _read_checks(url, _read_token(token_file), timeout)
    counts = Counter(_STATUSES.get(one["level"], Status.UNKNOWN) for one in checks)
    if not checks or counts[Status.UNKNOWN]:
        _exit(Status.UNKNOWN, "the service returned no health checks that this version knows")
    problems = sorted(
        (one for one in checks if one["level"] != "ok"), key=lambda one: one["level"]
    )
    lines = [f"{one['subject']}: {one['message']}" for one in problems]
    summary = lines[0] if len(lines) == 1 else _describe_counts(len(checks), counts)
    _exit(
        max(counts),
        summary,
        f"errors={counts[Status.CRITICAL]};;0;0 warnings={counts[Status.WARNING]};0;;0 "
        f"time={time.monotonic() - began:.3f}s;;;0",
        lines if len(lines) > 1 else [],
    )


def _describe_counts(total: int, counts: Counter[Status]) -> str:
    if not (counts[Status.CRITICAL] or counts[Status.WARNING]):
        return f"{format_count(total, 'check')}, all are healthy"
    errors = format_count(counts[Status.CRITICAL], "error")
    return f"{errors}, {format_count(counts[Status.WARNING], 'warning')} of {total} checks"


def _read_token(file: Path | None) -> str:
    try:
        token = (file.read_text() if file else os.environ.get("KEYTURN_TOKEN", "")).strip()
    except (OSError, UnicodeDecodeError) as error:
        _exit(Status.UNKNOWN, f"cannot read {file}: {getattr(error, 'strerror', 'not text')}")
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        where = str(file) if file else "KEYTURN_TOKEN"
        _exit(Status.UNKNOWN, f"{where} has no token: create one with keyturn token new")
    return token


def _read_checks(url: str, token: str, seconds: float) -> list[dict[str, str]]:
    try:
        status, body = read_answer(url, token, "/health", seconds=seconds)
    except NoAnswerError as error:
        _exit(Status.CRITICAL, f"{url} does not answer: {error}")
    try:
        if status != 200:
            _exit(
                Status.UNKNOWN if status in _WRONG_TOKEN else Status.CRITICAL, str(body["detail"])
            )
        return [
            {name: str(one[name]) for name in ("subject", "level", "message")}
            for one in body["checks"]
        ]
    except (TypeError, LookupError):
        _exit(Status.CRITICAL, f"{url} returns no answer of Keyturn")


def _exit(
    status: Status, summary: str, performance: str = "", details: list[str] | None = None
) -> NoReturn:
    lines = [f"KEYTURN {status.name}: {summary}", *(details or [])]
    # A pipe begins performance data.
    texts = [escape_to_one_line(line).replace("|", "/") for line in lines]
    texts[0] += f" | {performance}" if performance else ""
    click.echo("\n".join(texts))
    sys.exit(int(status))
