import pytest

from connectors import nfsd
from runbooks import Plan, Refused
from runbooks.nfs_threads_set import SetNfsThreads
from tests.scripted_fleet import ScriptedFleet

SET = SetNfsThreads.model_validate({"host": "nas1", "threads": 64})


def test_the_number_is_set_and_can_be_set_back():
    fleet = ScriptedFleet({("nas1", nfsd.query_threads().command): "8\n"})
    (step,) = SET.plan(SET.read(fleet.run_query)).steps
    assert (step.do, step.undo) == (nfsd.set_threads(64), nfsd.set_threads(8))
    assert (step.before, step.after) == ("8 threads", "64 threads")


def test_the_same_number_needs_nothing():
    assert SET.plan(64) == Plan("the NFS server has 64 threads")


def test_a_server_that_is_stopped_is_not_started_by_it():
    with pytest.raises(Refused, match="is stopped"):
        SET.plan(0)
