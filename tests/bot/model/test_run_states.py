"""Every state of runs and steps has a label, an emoji and a sentence."""

from dataclasses import replace

from bot.model.run import RUN_STATUSES, State, StepState
from bot.model.run_states import (
    ON_HOLD_DISPLAY,
    RUN_STATUS_DISPLAYS,
    STEP_STATE_DISPLAYS,
    describe_outcome,
    get_run_display,
)
from bot.model.waiting import Waiting, WaitingFor
from tests.bot.slack.sample_views import build_run


def test_every_state_of_runs_and_steps_has_its_own_label():
    assert set(RUN_STATUS_DISPLAYS) == set(RUN_STATUSES)
    assert set(STEP_STATE_DISPLAYS) == set(StepState)
    assert len({shown.label for shown in RUN_STATUS_DISPLAYS.values()}) == len(RUN_STATUS_DISPLAYS)
    assert all(
        shown.emoji and shown.sentence.endswith(".") for shown in RUN_STATUS_DISPLAYS.values()
    )


def test_queued_run_is_shown_as_on_hold_during_a_freeze():
    freeze = Waiting(WaitingFor.FREEZE, "fair", "the edge", 32472144000000000)
    held = build_run(State.QUEUED, waiting=freeze)
    sentence = "the edge is frozen until 2999-01-01 00:00 UTC (fair)"
    assert get_run_display(held) == replace(ON_HOLD_DISPLAY, sentence=f"T{sentence[1:]}.")
    assert describe_outcome(held) == sentence
    assert get_run_display(build_run(State.QUEUED)) is RUN_STATUS_DISPLAYS[State.QUEUED]
