"""The table of states: every state has one row, and chat can show each of them."""

from bot.model.run import STANDINGS, State, StepState
from bot.model.run_states import ON_HOLD, STATUSES, STEPS, describe_run
from tests.bot.slack.stories import a_run


def test_every_status_of_runs_and_steps_has_one_label_of_its_own():
    assert set(STATUSES) == set(STANDINGS)
    assert set(STEPS) == set(StepState)
    assert len({shown.label for shown in STATUSES.values()}) == len(STATUSES)
    assert all(shown.emoji and shown.sentence.endswith(".") for shown in STATUSES.values())


def test_run_is_on_hold_when_a_freeze_holds_it():
    held = a_run(State.READY, summary="On hold: the edge is frozen until 2999-01-01 00:00 UTC")
    assert describe_run(held) is ON_HOLD
    assert describe_run(a_run(State.READY)) is STATUSES[State.READY]
