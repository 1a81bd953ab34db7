"""A rebuild goes on after its process was killed."""

from pathlib import Path

from bot.features.rebuild.actions import RebuildActions
from bot.model.run import RequestTerms
from bot.model.signing import SigningKey
from tests.bot.clock import Clock
from tests.bot.execution.test_reconcile import (
    check_sequence_goes_on_after_a_kill,
    turn_on_three_switches,
)
from tests.bot.harness import WEB, open_harness


def test_rebuild_goes_on_once_a_part_with_unknown_outcome_is_verified(tmp_path: Path):
    clock = Clock(f"sqlite:///{tmp_path / 'kt.db'}", SigningKey.create())
    with open_harness(tmp_path, database=clock) as harness:
        turn_on_three_switches(harness)
        run = harness.service.bind(RebuildActions).request_rebuild(
            "lb1", RequestTerms("dora", WEB), new_host="lb2"
        )
        check_sequence_goes_on_after_a_kill(harness, run, "lb2", "on")
