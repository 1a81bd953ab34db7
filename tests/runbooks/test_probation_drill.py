import pytest

from connectors.probation import DRILL, DRILL_CHANGE, ProbationStatus, query_probation
from runbooks import Plan, Refused, put_on_probation
from runbooks.probation_drill import DrillProbation
from tests.scripted_fleet import ScriptedFleet

RUNBOOK = DrillProbation.model_validate({"host": "web1"})
ARMED = ProbationStatus(armed=DRILL_CHANGE, seconds_left=80)
LOST = ProbationStatus(armed=DRILL_CHANGE, seconds_left=-9000)


@pytest.mark.parametrize("before", [ProbationStatus(), ProbationStatus(restored=DRILL_CHANGE)])
def test_probation_drill_is_armed_and_not_confirmed(before: ProbationStatus):
    plan = RUNBOOK.plan(before)
    (step,) = plan.steps
    assert (step.do, step.undo) == (DRILL.arm(DRILL_CHANGE), DRILL.keep(DRILL_CHANGE))
    assert put_on_probation(RUNBOOK, plan) == plan
    assert "changes nothing" in plan.notes[0]


def test_probation_drill_that_is_armed_plans_no_steps():
    assert RUNBOOK.plan(ARMED) == Plan(
        "a drill is armed: the host restores by itself when it expires"
    )


def test_probation_drill_with_a_lost_timer_is_refused():
    with pytest.raises(Refused, match="find out what ended it"):
        RUNBOOK.plan(LOST)


def test_probation_drill_is_followed_until_the_host_has_restored():
    assert RUNBOOK.report_progress(ARMED).running
    report = RUNBOOK.report_progress(ProbationStatus(restored=DRILL_CHANGE))
    assert (report.running, report.healthy) == (False, True)
    assert report.summary == "Probation works on web1: the host restored by itself"


@pytest.mark.parametrize(
    "after",
    [ProbationStatus(), LOST, ProbationStatus(restored=DRILL_CHANGE, restore_status=1)],
)
def test_probation_drill_without_a_restore_by_the_host_is_unhealthy(after: ProbationStatus):
    report = RUNBOOK.report_progress(after)
    assert (report.running, report.healthy) == (False, False)
    assert "did not restore by itself" in report.summary


def test_probation_drill_status_is_read_from_the_host():
    fleet = ScriptedFleet({("web1", query_probation("drill").command): f"armed {DRILL_CHANGE} 80"})
    assert RUNBOOK.read(fleet.run_query) == ARMED
