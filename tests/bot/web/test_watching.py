"""The events that a reader of a run's stream receives."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bot.db.live_output import MOST_LINES as KEPT
from bot.db.live_output import LiveOutput
from bot.db.run_progress import RunProgress, RunProgressPart
from bot.model.run import State
from bot.model.text import escape_control
from bot.model.waiting import Waiting, WaitingFor
from bot.web.fanout_chart import build_fanout_chart
from bot.web.stream import MAX_LINES, StreamReader
from bot.web.terminal_text import remove_escape_sequences

NOW = 100_000_000


def a_part(number: int, state: State = State.RUNNING, version: int = 1) -> RunProgressPart:
    return RunProgressPart(number, version, f"web{number}", state, NOW, None, "")


def a_progress(
    heard: Sequence[LiveOutput] = (), parts: Sequence[RunProgressPart] = ()
) -> RunProgress:
    return RunProgress(a_part(1), parts, head=7, live_outputs=heard, now=NOW)


def build_output(total: int, *, run: int = 1, at: int = NOW) -> LiveOutput:
    first = max(0, total - KEPT)
    return LiveOutput(run, "lb1", 1, at, total, [f"line {n}" for n in range(first, total)])


def list_output(reader: StreamReader, *heard: LiveOutput) -> list[Any]:
    return dict(reader.list_new_events(a_progress(heard))).get("output", [])


def test_stream_reader_reports_each_output_line_once() -> None:
    reader = StreamReader()
    assert list_output(reader, build_output(3))[0]["lines"] == ["line 0", "line 1", "line 2"]
    assert list_output(reader, build_output(3)) == []
    again = list_output(reader, build_output(5))[0]
    assert (again["lines"], again["is_new"]) == (["line 3", "line 4"], False)


@given(st.lists(st.integers(0, 400), max_size=12))
def test_stream_reader_counts_reported_and_omitted_lines(growth: list[int]) -> None:
    reader, total, counted = StreamReader(), 0, 0
    for more in growth:
        total += more
        for one in list_output(reader, build_output(total)) if total else []:
            counted += len(one["lines"]) + one["omitted"]
    assert counted == total


def test_stream_reader_limits_the_lines_of_all_hosts_together() -> None:
    output = list_output(
        StreamReader(), *[build_output(10_000, run=number) for number in range(200)]
    )
    assert sum(len(one["lines"]) for one in output) <= MAX_LINES
    assert {one["total"] for one in output} == {10_000}


def test_output_of_many_hosts_is_one_stream_event() -> None:
    loud = [build_output(10_000, run=number) for number in range(200)]
    assert [name for name, _ in StreamReader().list_new_events(a_progress(loud))] == [
        "updated",
        "output",
    ]


def test_resumed_stream_sends_only_newer_output() -> None:
    old, new = build_output(9, run=1, at=NOW - 60_000_000), build_output(4, run=2)
    output = list_output(StreamReader(since=NOW - 30_000_000), old, new)
    assert [one["key"] for one in output] == ["2-1"]


def test_resume_position_includes_output_being_written() -> None:
    late = build_output(4, at=NOW - 4_000_000)
    assert list_output(StreamReader(since=StreamReader.get_resume_position(a_progress())), late)


def test_stream_reader_reports_the_end_of_a_step_output() -> None:
    reader = StreamReader()
    list_output(reader, build_output(3))
    assert ("output_ended", ["1-1"]) in reader.list_new_events(a_progress())
    assert list_output(reader, build_output(3))[0]["is_new"] is True


def test_stream_reader_reports_only_changed_child_runs() -> None:
    reader = StreamReader()
    parts = [a_part(2), a_part(3)]
    assert dict(reader.list_new_events(a_progress(parts=parts)))["children"] == parts
    assert dict(reader.list_new_events(a_progress(parts=parts))) == {}
    moved = [parts[0], replace(parts[1], state=State.SUCCEEDED, version=2)]
    assert dict(reader.list_new_events(a_progress(parts=moved)))["children"] == [moved[1]]


@given(st.text())
def test_stream_reader_escapes_control_characters(line: str) -> None:
    output = list_output(StreamReader(), LiveOutput(1, "lb1", 1, NOW, 1, [line]))
    assert output[0]["lines"] == [escape_control(remove_escape_sequences(line))]


def test_fan_out_chart_counts_every_host_once() -> None:
    parts = [a_part(number, state) for number, state in enumerate(State)]
    seen = build_fanout_chart(parts, a_part(0), now=NOW + 5)
    assert sum(count for _, count in seen.group_counts) == len(parts) == len(seen.squares)
    assert round(sum(stretch.width for stretch in seen.bar_segments), 1) == 100
    assert seen.description.startswith(f"10 of {len(parts)} hosts done: 2 succeeded, ")
    assert seen.elapsed == 5


def test_fan_out_chart_estimates_the_end_unless_a_freeze_holds_hosts() -> None:
    done = [replace(a_part(n, State.SUCCEEDED), ended_at=NOW + 20) for n in (1, 2)]
    moving = [a_part(n) for n in (3, 4)]
    upcoming = [replace(a_part(n, State.PENDING), started_at=None) for n in (5, 6, 7)]
    parts = [*done, *moving, *upcoming]
    seen = build_fanout_chart(parts, a_part(0), now=NOW + 5)
    # Two at once: 15 µs are left of each that runs, and 20 of each of the three others.
    assert seen.expected_end == NOW + 5 + (2 * 15 + 3 * 20) // 2
    assert build_fanout_chart(moving, a_part(0), now=NOW).expected_end is None
    held = replace(a_part(8, State.QUEUED), waiting=Waiting(WaitingFor.FREEZE, "audit"))
    seen = build_fanout_chart([*parts, held], a_part(0), now=NOW + 5)
    assert seen.expected_end is None
    counts = "2 succeeded, 2 in progress, 3 not started, 1 on hold"
    assert seen.description == f"2 of 8 hosts done: {counts}"
    assert {square.label for square in seen.squares} >= {"On hold", "Upcoming"}
