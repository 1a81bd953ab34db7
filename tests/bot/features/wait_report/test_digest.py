"""What the digest says of waits: only of the reader's areas."""

from bot.features.wait_report.report import build_digest
from tests.bot.harness import Harness
from tests.toy import SetSwitch


def test_digest_lists_the_waits_of_owned_areas_only(harness: Harness):
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    harness.service.deny_run(run.id, person="olga", reason="not today")
    with harness.database.reading() as tx:
        policy = harness.policies.get_policy()
        waits, _ = build_digest(tx, policy, {"edge"})
        assert waits.lines == [
            "the edge: 1 requested, 0 approved, 1 denied, 0 expired, 0 pending; usual wait 0 s"
        ]
        waits, _ = build_digest(tx, policy, {"storage"})
        assert waits.lines == []
        _, suggestions = build_digest(tx, policy, {"edge", "storage"})
        assert suggestions.lines == []
