import pytest

from connectors import nfsd
from runbooks import Plan, Refused
from tests.runbooks.declared import load_change
from tests.scripted_fleet import ScriptedFleet

SetNfsThreads = load_change("nfs threads set")
SET = SetNfsThreads.model_validate({"host": "nas1", "threads": 64})


def test_nfs_threads_are_set_and_undo_restores_them():
    fleet = ScriptedFleet({("nas1", nfsd.query_threads().command): "8\n"})
    (step,) = SET.plan(SET.read(fleet.run_query)).steps
    assert (step.do, step.undo) == (nfsd.set_threads(64), nfsd.set_threads(8))
    assert (step.before, step.after) == ("8 threads", "64 threads")


def test_nfs_threads_that_are_as_requested_plan_no_steps():
    assert SET.plan(64) == Plan("the NFS server has 64 threads")


def test_nfs_threads_of_a_stopped_server_are_refused():
    with pytest.raises(Refused, match="is stopped"):
        SET.plan(0)
