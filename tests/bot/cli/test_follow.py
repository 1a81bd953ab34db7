"""`keyturn run show N --follow`, in a terminal and as JSON."""

import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from bot.cli.progress import LiveOutputPrinter, render_progress_bar
from bot.db import live_output, run_progress, runs
from bot.db.database import Transaction
from bot.db.live_output import NewestLines
from bot.model.run import State
from tests.bot.cli.test_runs import CliService, cli_service
from tests.bot.web.sample_runs import (
    add_ended_run,
    add_pending_run,
    add_requested_run,
    approve,
    start_run,
)

__all__ = ["cli_service"]


def a_progress(**changes: Any) -> Mapping[str, Any]:
    usual = {
        "run": 7,
        "state": "running",
        "label": "Running",
        "needs_attention": False,
        "counted_in": "hosts",
        "total": 0,
    }
    counts = ("done", "needing_attention", "failed", "not_run", "running", "upcoming")
    return usual | dict.fromkeys(counts, 0) | changes


@pytest.mark.parametrize(
    ("changes", "drawn"),
    [
        ({}, "run 7: Running, 0 of 0 hosts done"),
        ({"total": 1, "done": 1}, "run 7: Running, 1 of 1 hosts done"),
        (
            {"total": 4, "done": 1, "failed": 1, "running": 1, "upcoming": 1},
            "[##!!>>..] run 7: Running, 2 of 4 hosts done, 1 failed",
        ),
        (
            {"total": 2, "done": 1, "not_run": 1},
            "[####xxxx] run 7: Running, 2 of 2 hosts done, 1 not run",
        ),
        (
            {
                "state": "succeeded",
                "label": "Needs attention",
                "needs_attention": True,
                "total": 2,
                "done": 2,
                "needing_attention": 1,
            },
            "[########] run 7: Needs attention, 2 of 2 hosts done, 1 needs attention",
        ),
        ({"total": 200, "done": 100, "upcoming": 100}, "[####....] run 7: Running, 100 of 200"),
    ],
)
def test_progress_bar_shows_the_hosts_done_failed_and_running(
    changes: dict[str, Any], drawn: str
) -> None:
    assert render_progress_bar(a_progress(**changes), width=8).startswith(drawn)


def test_live_output_printer_prints_each_line_once_and_counts_omitted_lines() -> None:
    heard = LiveOutputPrinter()
    first = {"run": 1, "host": "lb1", "step": 1, "total": 3, "newest": ["a", "b", "c"]}
    assert [*heard.list_new_lines([first])] == ["lb1: a", "lb1: b", "lb1: c"]
    assert [*heard.list_new_lines([first])] == []
    later = first | {"total": 9, "newest": ["h", "i"]}
    assert [*heard.list_new_lines([later])] == [
        "lb1: [… 4 lines, in the output …]",
        "lb1: h",
        "lb1: i",
    ]


def test_run_show_follow_prints_live_output_until_the_run_ends(
    cli_service: CliService, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, looked, look = (
        cli_service.service.keyturn.database,
        threading.Event(),
        run_progress.get_run_progress,
    )

    def seen(tx: Transaction, run: int) -> run_progress.RunProgress:
        state = look(tx, run)
        looked.set()
        return state

    monkeypatch.setattr(run_progress, "get_run_progress", seen)
    with database.transaction() as tx:
        number = start_run(tx, approve(tx, add_pending_run(tx, add_requested_run(tx)))).id
        live_output.store_lines(tx, [NewestLines(number, 1, 1, "half \x1b[31mdone")])

    def finish() -> None:
        looked.wait(30)
        with database.transaction() as tx:
            live_output.delete_lines(tx, number)
            add_ended_run(tx, runs.get_run(tx, number), State.SUCCEEDED, "Verified")

    end = threading.Thread(target=finish)
    end.start()
    result = cli_service.type("dora", "run", "show", str(number), "--follow")
    end.join()
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("lb1: half \\x1b[31mdone\nrun ")
    assert "Running, 0 of 1 steps done" in result.stderr
    assert "Verified" in result.stdout


def test_run_show_follow_prints_json_lines(cli_service: CliService) -> None:
    database = cli_service.service.keyturn.database
    with database.transaction() as tx:
        moving = start_run(tx, approve(tx, add_pending_run(tx, add_requested_run(tx))))
        number = add_ended_run(tx, moving, State.SUCCEEDED, "Verified").id
    result = cli_service.type("dora", "run", "show", str(number), "--follow", "--json")
    progress, run = map(json.loads, result.stdout.splitlines())
    assert (progress["ended"], run["state"]) == (True, "succeeded")
