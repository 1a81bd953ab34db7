"""Live output is kept while a command runs: bounded, redacted, then deleted."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.db import live_output, outputs, runs
from bot.db.database import Database
from bot.db.live_output import MOST_CHARACTERS, MOST_LINES, LiveOutput, NewestLines
from bot.execution.live_output import LiveOutputWriter
from bot.model.redaction import MARK
from bot.model.run import State, StepState
from connectors.command import OutputListener
from connectors.errors import CommandError, UnknownOutcomeError
from connectors.wrapper import LineSplitter
from tests.bot.harness import Harness
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


def print_output(listener: OutputListener | None, text: str) -> None:
    """Print something as the command's host would."""
    assert listener is not None
    LineSplitter(b"1f2e3d", listener).add(b"1f2e3d begins\n" + text.encode() + b"\n")


def wait_for_output(
    look: Callable[[], list[LiveOutput]], *, seconds: float = 10.0
) -> list[LiveOutput]:
    end = time.monotonic() + seconds
    while not (value := look()) and time.monotonic() < end:
        time.sleep(0.01)
    return value


def get_output(harness: Harness, number: int) -> list[LiveOutput]:
    with harness.database.reading() as tx:
        return live_output.get_live_output(tx, number)


def test_live_output_is_stored_while_the_command_runs_and_deleted_at_its_end(
    db_harness: Harness,
) -> None:
    harness = db_harness
    run = harness.request(LAMP_ON)
    seen: list[LiveOutput] = []

    def look(_host: str, _words: str) -> None:
        print_output(harness.fleet.hooks.on_output, "the lamp\nwarms up")
        seen.extend(wait_for_output(lambda: get_output(harness, run.id)))

    harness.fleet.before_send = look
    assert harness.approve(run).state is State.SUCCEEDED
    assert [(one.host, one.n, one.total, one.newest) for one in seen] == [
        ("lb1", 1, 2, ["the lamp", "warms up"])
    ]
    assert get_output(harness, run.id) == []


@pytest.mark.parametrize(
    ("trouble", "state"),
    [
        (CommandError("it is loose"), StepState.FAILED),
        (UnknownOutcomeError("gone"), StepState.UNKNOWN),
    ],
)
def test_live_output_is_kept_as_step_output_when_the_step_fails(
    harness: Harness, trouble: Exception, state: StepState
) -> None:
    def fail(_host: str, _words: str) -> None:
        print_output(harness.fleet.hooks.on_output, "\n".join(map(str, range(1000))))
        raise trouble

    harness.fleet.before_send = fail
    run = harness.approve(harness.request(LAMP_ON))
    with harness.database.reading() as tx:
        record = runs.list_steps(tx, run.id)[0]
    assert record.state is state
    assert record.output.startswith("[… 800 lines omitted …]\n800\n")
    assert record.output.endswith("\n999")
    assert get_output(harness, run.id) == []


def test_live_output_keeps_the_newest_lines_and_counts_all(harness: Harness) -> None:
    run = harness.request(LAMP_ON)
    with LiveOutputWriter(harness.database).capture_step(run.id, 1) as (_, listener):
        for first in range(0, 100_000, 1000):
            print_output(
                listener, "\n".join(f"line {number}" for number in range(first, first + 1000))
            )
        outputs = wait_for_output(
            lambda: [one for one in get_output(harness, run.id) if one.total == 100_000]
        )
    assert len(outputs[0].newest) == MOST_LINES
    assert outputs[0].newest[-1] == "line 99999"


def test_live_output_limits_the_total_length_of_long_lines(harness: Harness) -> None:
    run = harness.request(LAMP_ON)
    with LiveOutputWriter(harness.database).capture_step(run.id, 1) as (tail, listener):
        print_output(listener, "\n".join("x" * 4000 for _ in range(500)))
        outputs = wait_for_output(lambda: get_output(harness, run.id))
    assert sum(map(len, tail.newest_lines)) <= 2 * MOST_CHARACTERS
    assert sum(map(len, outputs[0].newest)) <= MOST_CHARACTERS


def test_secrets_are_redacted_from_live_output(harness: Harness) -> None:
    harness.database.redactor.add_secrets("correct horse battery")
    run = harness.request(LAMP_ON)
    key = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *["MIIEpAIBAAKCAQEA" * 4] * 60])
    with LiveOutputWriter(harness.database).capture_step(run.id, 1) as (_, listener):
        print_output(listener, f"password: correct horse battery\n{key}")
        outputs = wait_for_output(lambda: get_output(harness, run.id))
    assert list(outputs[0].newest) == [f"password: {MARK}", MARK]


def test_newer_live_output_replaces_the_stored_lines(db_harness: Harness) -> None:
    harness = db_harness
    run = harness.request(LAMP_ON)
    with harness.database.transaction() as tx:
        live_output.store_lines(
            tx, [NewestLines(run.id, 1, 1, "one"), NewestLines(run.id, 2, 1, "uno")]
        )
    with harness.database.transaction() as tx:
        live_output.store_lines(
            tx, [NewestLines(run.id, 2, 2, "uno\ndue"), NewestLines(run.id, 3, 1, "eins")]
        )
    assert [(one.n, one.total, one.newest) for one in get_output(harness, run.id)] == [
        (1, 1, ["one"]),
        (2, 2, ["uno", "due"]),
        (3, 1, ["eins"]),
    ]


def test_erasure_deletes_live_output(harness: Harness) -> None:
    run = harness.request(LAMP_ON)
    with harness.database.transaction() as tx:
        live_output.store_lines(tx, [NewestLines(run.id, 1, 1, "said before the crash")])
        outputs.erase_output(tx, run.id)
    assert get_output(harness, run.id) == []


def test_failing_database_does_not_block_live_output(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'empty.db'}")
    with LiveOutputWriter(database).capture_step(1, 1) as (tail, listener):
        print_output(listener, "one")
        assert wait_for_output(
            lambda: [] if not database.error else [LiveOutput(1, "", 1, 0, 1, ())]
        )
        print_output(listener, "two")
    assert list(tail.newest_lines) == ["one", "two"]
    database.close()
