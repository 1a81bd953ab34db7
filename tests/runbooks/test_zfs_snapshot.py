from connectors import zfs_snapshot
from connectors.zfs_snapshot import Snapshots
from runbooks import Plan
from tests.runbooks.declared import load_change
from tests.scripted_fleet import ScriptedFleet

TakeSnapshot = load_change("zfs snapshot")

TAKE = TakeSnapshot.model_validate({"host": "nas1", "dataset": "tank/home", "name": "a"})


def test_zfs_snapshot_takes_a_snapshot_and_undo_destroys_exactly_that_one():
    query = zfs_snapshot.query_snapshots("tank/home").command
    fleet = ScriptedFleet({("nas1", query): "tank/home\ntank/home@b\n"})
    plan = TAKE.plan(TAKE.read(fleet.run_query))
    assert plan.current_state == "tank/home has 1 snapshot, none of this name"
    (step,) = plan.steps
    assert str(step.do) == "zfs snapshot tank/home@a"
    assert str(step.undo) == "zfs destroy tank/home@a"


def test_zfs_snapshot_that_exists_plans_no_steps():
    assert TAKE.plan(Snapshots("tank/home", ["a"])) == Plan("tank/home@a exists")
