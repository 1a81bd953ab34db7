"""The event stream of a run: events, end and limits."""

import json
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from bot.auth import sessions
from bot.db import live_output
from bot.db.live_output import NewestLines
from bot.db.run_progress import RunProgressPart
from bot.model.run import State
from bot.model.run_states import get_child_run_display
from bot.model.waiting import Waiting, WaitingFor
from bot.web import build_app
from bot.web.stream_slots import NoFreeSlotError, StreamLimits, StreamSlots
from tests.bot.restricted_view import restricted_rules
from tests.bot.web.conftest import Site
from tests.bot.web.sample_runs import (
    add_pending_run,
    add_requested_run,
    add_sample_runs,
    approve,
    start_run,
)

Event = tuple[str, Any, str]


def events(answer: str) -> list[Event]:
    """Return name, content and id of each."""
    received: list[Event] = []
    for block in answer.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in fields:
            received.append((fields["event"], json.loads(fields["data"]), fields.get("id", "")))
    return received


def read_events(browser: TestClient, number: int, **options: Any) -> list[Event]:
    return events(browser.get(f"/runs/{number}/stream", **options).text)


@pytest.fixture
def running_run(site: Site) -> int:
    """A run of which one step is under way, and talks."""
    with site.database.transaction() as tx:
        number = start_run(tx, approve(tx, add_pending_run(tx, add_requested_run(tx)))).id
        live_output.store_lines(tx, [NewestLines(number, 1, 250, "<b>half</b>\n\x1b[31mdone")])
    return number


def test_stream_sends_live_output_as_text(site: Site, running_run: int) -> None:
    answer = site.browser("dora").get(f"/runs/{running_run}/stream")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    data = {name: data for name, data, _ in events(answer.text)}
    assert data["output"][0] | {"lines": []} == {
        "key": f"{running_run}-1",
        "host": "lb1",
        "n": 1,
        "total": 250,
        "is_new": True,
        "omitted": 248,
        "lines": [],
    }
    assert data["output"][0]["lines"] == ["<b>half</b>", "done"]


def test_stream_of_an_ended_run_ends(site: Site) -> None:
    events_heard = read_events(site.browser("dora"), add_sample_runs(site.database)["succeeded"])
    assert [name for name, *_ in events_heard] == ["updated", "run_ended"]


def test_stream_resumes_after_the_last_event_id(site: Site, running_run: int) -> None:
    browser = site.browser("dora")
    later = str(2**60)
    for known in ({"headers": {"Last-Event-ID": later}}, {"params": {"after": later}}):
        assert "said" not in {name for name, *_ in read_events(browser, running_run, **known)}
    position = read_events(browser, running_run)[-1][2]
    assert "output" in {
        name for name, *_ in read_events(browser, running_run, headers={"Last-Event-ID": position})
    }
    # What is no position of ours is as good as none.
    assert "output" in {
        name
        for name, *_ in read_events(browser, running_run, headers={"Last-Event-ID": "x' OR 1"})
    }


def with_stream_limits(site: Site, terms: StreamLimits) -> Site:
    site.parts = replace(site.parts, stream_slots=StreamSlots(terms))
    site.app = build_app(site.parts)
    return site


def test_stream_ends_when_the_person_signs_out(site: Site, running_run: int) -> None:
    """Each look comes after one at the session, so the second finds it gone."""
    site = with_stream_limits(
        site,
        StreamLimits(poll_seconds=0.01, session_check_seconds=0, max_seconds=60, max_in_total=1),
    )
    browser = site.browser("dora")
    token = browser.cookies[site.parts.cookie_name]
    database, looks = site.database, site.app.state.progress_cache
    first_look = looks.get_progress

    async def then_sign_out(*given: Any) -> Any:
        with database.transaction() as tx:
            sessions.end_session(tx, token)
        return await first_look(*given)

    looks.get_progress = then_sign_out
    assert read_events(browser, running_run)[-1][0] == "access_ended"
    with site.parts.stream_slots.take_slot("olga"):
        pass  # the seat is another's by now


def test_stream_ends_when_the_person_loses_the_right_to_view_the_run(
    site: Site, running_run: int
) -> None:
    site = with_stream_limits(
        site, StreamLimits(poll_seconds=0.01, session_check_seconds=0, max_seconds=60)
    )
    browser = site.browser("stan")
    looks, rules = site.app.state.progress_cache, site.policy / "policy.cedar"
    first_look = looks.get_progress

    async def then_hide(*given: Any) -> Any:
        rules.write_text(restricted_rules(""))
        return await first_look(*given)

    looks.get_progress = then_hide
    assert read_events(browser, running_run)[-1][0] == "access_ended"
    assert browser.get(f"/runs/{running_run}/stream").status_code == 404


def test_stream_ends_when_the_person_leaves_the_policy(site: Site, running_run: int) -> None:
    site = with_stream_limits(
        site, StreamLimits(poll_seconds=0.01, session_check_seconds=0, max_seconds=60)
    )
    browser = site.browser("adam")
    looks = site.app.state.progress_cache
    first_look = looks.get_progress

    async def then_dismiss(*given: Any) -> Any:
        site.dismiss("adam")
        return await first_look(*given)

    looks.get_progress = then_dismiss
    assert read_events(browser, running_run)[-1][0] == "access_ended"


def test_stream_ends_when_the_service_shuts_down(site: Site, running_run: int) -> None:
    site = with_stream_limits(site, StreamLimits(poll_seconds=0.01, max_seconds=60))
    site.harness.service.close()
    assert read_events(site.browser("dora"), running_run) == []


def test_stream_slots_are_limited_per_person(site: Site, running_run: int) -> None:
    with _take_all_slots(site, "dora"):
        refused = read_events(site.browser("dora"), running_run)
        assert [name for name, *_ in refused] == ["no_slot"]
        assert "does not update by itself: close others" in refused[0][1]
        assert read_events(site.browser("olga"), running_run)[0][0] == "updated"
    assert read_events(site.browser("dora"), running_run)[0][0] == "updated"
    with _take_all_slots(site, "dora"):
        pass  # none was kept


@contextmanager
def _take_all_slots(site: Site, person: str) -> Generator[None]:
    slots = site.parts.stream_slots
    with ExitStack() as held:
        for _ in range(slots.limits.max_per_person):
            held.enter_context(slots.take_slot(person))
        yield


def test_stream_slots_are_limited_in_total() -> None:
    slots = StreamSlots(StreamLimits(max_in_total=1))
    with slots.take_slot("dora"), pytest.raises(NoFreeSlotError), slots.take_slot("olga"):
        pass


def test_head_request_to_a_stream_takes_no_slot(site: Site, running_run: int) -> None:
    site = with_stream_limits(site, StreamLimits(max_seconds=60, max_in_total=1))
    with site.parts.stream_slots.take_slot("olga"):
        answer = site.browser("dora").head(f"/runs/{running_run}/stream")
    # It would say at once that there is no seat left.
    assert (answer.status_code, answer.text) == (200, "")
    assert answer.headers["content-type"].startswith("text/event-stream")
    with site.parts.stream_slots.take_slot("olga"):
        pass


def test_stream_of_a_missing_run_is_not_found(site: Site) -> None:
    assert site.browser("dora").get("/runs/999/stream").status_code == 404


def test_run_page_shows_the_last_output_of_a_step_with_unknown_outcome(site: Site) -> None:
    number = add_sample_runs(site.database)["unknown"]
    with site.database.transaction() as tx:
        live_output.store_lines(tx, [NewestLines(number, 1, 1, "<script>alert(1)</script>")])
    page = site.browser("dora").get(f"/runs/{number}").text
    assert "Last output received" in page
    assert "&lt;script&gt;alert(1)" in page
    assert site.harness.get_run(number).state is State.UNKNOWN


def test_child_run_of_a_later_wave_is_upcoming_not_pending_approval():
    def show(
        state: State, waiting: Waiting | None = None, *, parent: State = State.RUNNING
    ) -> str:
        part = RunProgressPart(1, 1, "lb1", state, None, None, "", waiting=waiting)
        return get_child_run_display(part, parent).label

    assert show(State.PENDING) == "Upcoming"
    assert show(State.PENDING, parent=State.QUEUED) == "Upcoming"
    assert show(State.PENDING, parent=State.PENDING) == "Needs approval"
    assert show(State.PENDING, parent=State.PLANNED) == "Planned"
    assert show(State.PENDING, parent=State.COUNTER_PROPOSED) == "Counter-proposal"
    assert show(State.RUNNING) == "Running"
    assert show(State.QUEUED) == "Queued"
    assert show(State.QUEUED, Waiting(WaitingFor.FREEZE, "audit")) == "On hold"
    ill = RunProgressPart(1, 1, "lb1", State.SUCCEEDED, 1, 2, "", needs_attention=True)
    assert get_child_run_display(ill, State.RUNNING).label == "Needs attention"
