"""Who is told of a run, and where."""

from dataclasses import replace
from typing import Any

import pytest

from bot.model.run import Origin, State
from bot.slack.routing import Audience, calls_asker, channels, of_card
from tests.bot.slack.stories import ASKED, a_run, a_story, every_story

LATER = {"ended": ASKED + 1}
CASES: list[tuple[str, dict[str, Any], str, Audience]] = [
    ("a change that waits", {"state": State.WAITING}, "slack", Audience.CHANNEL),
    ("a change that waits", {"state": State.WAITING}, "web", Audience.CHANNEL),
    ("a change being read", {"state": State.ASKED}, "slack", Audience.CHANNEL),
    ("a change being read", {"state": State.ASKED}, "web", Audience.NOBODY),
    ("refused after a look", {"state": State.REFUSED, **LATER}, "slack", Audience.ASKER),
    ("refused after a look", {"state": State.REFUSED, **LATER}, "api", Audience.NOBODY),
    ("refused after a look", {"state": State.REFUSED, **LATER}, "schedule", Audience.CHANNEL),
    ("refused at once", {"state": State.REFUSED, "ended": ASKED}, "slack", Audience.NOBODY),
    ("refused at once", {"state": State.REFUSED, "ended": ASKED}, "schedule", Audience.CHANNEL),
    ("nothing to do", {"state": State.UNCHANGED, **LATER}, "slack", Audience.ASKER),
    (
        "done by now",
        {"state": State.SUCCEEDED, "started": ASKED, **LATER},
        "slack",
        Audience.CHANNEL,
    ),
    (
        "done by now",
        {"state": State.SUCCEEDED, "started": ASKED, **LATER},
        "web",
        Audience.CHANNEL,
    ),
    ("a check", {"state": State.SUCCEEDED, "kind": "check", **LATER}, "slack", Audience.CHANNEL),
    ("a check", {"state": State.SUCCEEDED, "kind": "check", **LATER}, "cli", Audience.NOBODY),
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
def test_as_few_people_as_it_concerns_are_told(run: dict[str, Any], door: str, audience: Audience):
    story = a_story(a_run(origin=Origin(door, "C0OPS"), **run))
    assert of_card(story, posted=False) is audience


@pytest.mark.parametrize(
    ("days", "audience"), [(6, Audience.CHANNEL), (8, Audience.NOBODY), (365, Audience.NOBODY)]
)
def test_what_ended_long_ago_is_no_news_to_a_chat_that_never_heard_of_it(
    days: int, audience: Audience
):
    run = a_run(state=State.SUCCEEDED, started=ASKED, **LATER)
    story = replace(a_story(run), now=ASKED + days * 86_400_000_000)
    assert of_card(story, posted=False) is audience
    assert of_card(story, posted=True) is Audience.CHANNEL


@pytest.mark.parametrize("story", every_story().values(), ids=every_story().keys())
def test_a_card_that_stands_is_kept_up_to_date(story: Any):
    assert of_card(story, posted=True) is Audience.CHANNEL


def test_the_asker_is_called_when_it_is_over_and_only_then():
    called = {name for name, story in every_story().items() if calls_asker(story)}
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
        (Origin("slack", "C0OPS"), "", "", ["C0OPS"]),
        (Origin("slack", "C0OPS"), "C0EDGE", "C0MAIN", ["C0OPS", "C0EDGE", "C0MAIN"]),
        (Origin("slack", "C0OPS"), "C0OPS", "C0OPS", ["C0OPS"]),
        (Origin("slack", "D0DORA"), "C0EDGE", "", ["C0EDGE"]),
        (Origin("slack", "D0DORA"), "", "", ["D0DORA"]),
        (Origin("web", "anything"), "C0EDGE", "C0MAIN", ["C0EDGE", "C0MAIN"]),
        (Origin("web"), "", "", []),
    ],
)
def test_a_card_goes_where_others_see_it(
    origin: Origin, area: str, default: str, places: list[str]
):
    story = a_story(a_run(origin=origin), channel=area)
    assert channels(story, default=default) == places


def test_a_check_asked_in_private_is_answered_in_private():
    story = a_story(a_run(kind="check", origin=Origin("slack", "D0DORA")), channel="C0EDGE")
    assert channels(story, default="")[0] == "D0DORA"
