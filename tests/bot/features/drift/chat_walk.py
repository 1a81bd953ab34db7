"""Hostile text in all that can be done with drift in chat."""

from dataclasses import replace

from bot.db import outbox
from bot.features.drift import rows as drift
from bot.features.drift.state import Candidate
from bot.model.drift_state import DriftState
from tests.bot.slack.hostile import LOUD
from tests.bot.slack.hostile_walk import Walk


async def use_drift(walk: Walk) -> None:
    """Have a value changed outside, say so, and let people decide."""
    harness, run = walk.chat.harness, walk.find_newest("toy echo lb1")
    with harness.database.transaction() as tx:
        drift.set_key(tx, "lb1", LOUD, run=run.id, set_value=LOUD, next_at=tx.now)
        key = drift.find_key(tx, "lb1", LOUD)
        assert key
        events = Candidate(tx.now, "sudo", LOUD, LOUD), Candidate(0, "unread", "", LOUD)
        changed = replace(key, state=DriftState.CHANGED, value=LOUD, digest="0" * 64)
        drift.store_key(tx, replace(changed, candidates=events, announced_at=tx.now))
        outbox.announce_run(tx, run.id)
    await walk.chat.settle()
    n = key.id
    await walk.each("drift", "drift lb1", "drift SAID", f"drift {n}", "drift read lb1")
    await walk.each("drift read SAID", "drift expect SAID", f"drift expect {n} until SAID")
    alert = next(one for one in walk.chat.slack.posted if "command-1" in one.buttons)
    await walk.chat.press("command-2", "U0STAN", message=alert)
    await walk.chat.press("command-1", "U0STAN", message=alert)
    await walk.chat.submit({"because": LOUD}, "U0STAN")
    await walk.say(f"drift restore {n} because SAID")
    await walk.say(f"drift adopt {n} because SAID", "U0OLGA")
    await walk.say(f"drift expect {n} until 3 days because SAID", "U0OLGA")
