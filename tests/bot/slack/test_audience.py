"""Who is notified of a run, and in which channel."""

from typing import Any

import pytest

from bot.model.run import RequestOrigin, State
from bot.slack.routing import Audience, get_audience, list_channels, needs_requester_mention
from tests.bot.slack.sample_views import (
    ASKED,
    build_run,
    build_run_view,
    build_run_view_of_each_state,
)

LATER = {"ended_at": ASKED + 1}
CASES: list[tuple[str, dict[str, Any], str, Audience]] = [
    ("a change that waits", {"state": State.PENDING}, "slack", Audience.CHANNEL),
    ("a change that waits", {"state": State.PENDING}, "web", Audience.CHANNEL),
    ("a change being read", {"state": State.PLANNING}, "slack", Audience.CHANNEL),
    ("a change being read", {"state": State.PLANNING}, "web", Audience.NONE),
    ("refused after a look", {"state": State.REFUSED, **LATER}, "slack", Audience.REQUESTER),
    ("refused after a look", {"state": State.REFUSED, **LATER}, "api", Audience.NONE),
    ("refused after a look", {"state": State.REFUSED, **LATER}, "schedule", Audience.CHANNEL),
    ("refused at once", {"state": State.REFUSED, "ended_at": ASKED}, "slack", Audience.NONE),
    ("refused at once", {"state": State.REFUSED, "ended_at": ASKED}, "schedule", Audience.CHANNEL),
    ("nothing to do", {"state": State.NO_CHANGES, **LATER}, "slack", Audience.REQUESTER),
    (
        "done by now",
        {"state": State.SUCCEEDED, "started_at": ASKED, **LATER},
        "slack",
        Audience.CHANNEL,
    ),
    (
        "done by now",
        {"state": State.SUCCEEDED, "started_at": ASKED, **LATER},
        "web",
        Audience.CHANNEL,
    ),
    ("a check", {"state": State.SUCCEEDED, "kind": "check", **LATER}, "slack", Audience.CHANNEL),
    ("a check", {"state": State.SUCCEEDED, "kind": "check", **LATER}, "cli", Audience.NONE),
    (
        "a failed check",
        {"state": State.FAILED, "kind": "check", **LATER},
        "slack",
        Audience.CHANNEL,
    ),
]


@pytest.mark.parametrize(
    ("run", "door", "audience"),
    [case[1:] for case in CASES],
    ids=[f"{what}, asked at {door}" for what, _, door, _ in CASES],
)
def test_run_is_posted_to_channel_requester_or_nobody_by_state_and_source(
    run: dict[str, Any], door: str, audience: Audience
):
    run_view = build_run_view(build_run(origin=RequestOrigin(door, "C0OPS"), **run))
    assert get_audience(run_view, is_posted=False) is audience


@pytest.mark.parametrize(
    ("days", "audience"), [(6, Audience.CHANNEL), (8, Audience.NONE), (365, Audience.NONE)]
)
def test_run_that_ended_over_a_week_ago_is_not_posted_anew(days: int, audience: Audience):
    run = build_run(state=State.SUCCEEDED, started_at=ASKED, **LATER)
    run_view = build_run_view(run, now=ASKED + days * 86_400_000_000)
    assert get_audience(run_view, is_posted=False) is audience
    assert get_audience(run_view, is_posted=True) is Audience.CHANNEL


@pytest.mark.parametrize(
    "run_view", build_run_view_of_each_state().values(), ids=build_run_view_of_each_state().keys()
)
def test_posted_card_is_updated_in_every_state(run_view: Any):
    assert get_audience(run_view, is_posted=True) is Audience.CHANNEL


def test_requester_is_mentioned_only_in_final_states():
    called = {
        name
        for name, run_view in build_run_view_of_each_state().items()
        if needs_requester_mention(run_view)
    }
    assert called == {
        "succeeded",
        "failed",
        "unknown",
        "refused",
        "denied",
        "expired",
        "stale",
        "stopped",
    }


@pytest.mark.parametrize(
    ("origin", "area", "default", "places"),
    [
        (RequestOrigin("slack", "C0OPS"), "", "", ["C0OPS"]),
        (RequestOrigin("slack", "C0OPS"), "C0EDGE", "C0MAIN", ["C0OPS", "C0EDGE", "C0MAIN"]),
        (RequestOrigin("slack", "C0OPS"), "C0OPS", "C0OPS", ["C0OPS"]),
        (RequestOrigin("slack", "D0DORA"), "C0EDGE", "", ["C0EDGE"]),
        (RequestOrigin("slack", "D0DORA"), "", "", ["D0DORA"]),
        (RequestOrigin("web", "anything"), "C0EDGE", "C0MAIN", ["C0EDGE", "C0MAIN"]),
        (RequestOrigin("web"), "", "", []),
    ],
)
def test_card_channels_are_origin_then_area_then_default(
    origin: RequestOrigin, area: str, default: str, places: list[str]
):
    run_view = build_run_view(build_run(origin=origin), channel=area)
    assert list_channels(run_view, default_channel=default) == places


def test_check_requested_by_direct_message_is_answered_there():
    run_view = build_run_view(
        build_run(kind="check", origin=RequestOrigin("slack", "D0DORA")), channel="C0EDGE"
    )
    assert list_channels(run_view, default_channel="")[0] == "D0DORA"
