"""What the digest says of drift: the hosts of the reader's areas."""

from sqlalchemy import update

from bot.db import tables
from bot.features.drift.details import build_digest
from tests.bot.harness import Harness
from tests.drift_keys import read_due_keys
from tests.toy import KeepSwitch


def test_digest_counts_changed_values_on_the_hosts_of_an_area(harness: Harness):
    harness.approve(harness.request(KeepSwitch(host="lb1", name="lamp", value="on")))
    harness.fleet.hosts["lb1"]["lamp"] = "dim"
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.drift_key).values(next_at=0))
    read_due_keys(harness.service)
    with harness.database.reading() as tx:
        policy = harness.policies.get_policy()
        (edge,) = build_digest(tx, policy, {"edge"})
        (storage,) = build_digest(tx, policy, {"storage"})
        assert edge.lines == ["lb1: 1 value"]
        assert storage.lines == []
