"""Noting: a change of the policy, or that there is none now, goes into the change log."""

import logging

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.db.database import Transaction
from bot.policy import NoPolicyError, Policy
from bot.workflow.context import WorkflowContext

log = logging.getLogger(__name__)

CHANGED, BROKEN = "policy changed", "policy invalid"


class PolicyRecorder:
    """Notes what this process sees of the policy, whenever it sees something new.

    Others may have read a new one a moment earlier, or have yet to: each says what it sees once,
    and only if the log does not say so already.
    """

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context
        # What the log says, as far as this process has seen to it.
        self._last_recorded: tuple[str, str] | None = None

    def record_policy_change(self) -> Entry | None:
        """Write down once which policy holds now, and raise the alarm once if none does."""
        try:
            policy: Policy | None = self._context.policies.get_policy()
            seen = policy.version, ""
        except NoPolicyError as trouble:
            policy, seen = None, ("", str(trouble))
        if seen == self._last_recorded:
            return None
        with self._context.database.transaction() as tx:
            # Of several processes that see it at the same moment, one notes it.
            change_log.lock_log(tx)
            entry = (
                None if _get_last_logged_policy(tx) == seen else _log_policy(tx, policy, seen[1])
            )
        self._last_recorded = seen
        return entry


def _log_policy(tx: Transaction, policy: Policy | None, error: str) -> Entry:
    if policy is None:
        log.critical("nobody may do anything, since there is no valid policy: %s", error)
        return change_log.append_entry(tx, BROKEN, error=error)
    changed = change_log.get_last_entry_of_kind(tx, CHANGED)
    before = changed.facts if changed else {}
    old: dict[str, str] = before.get("files", {})
    return change_log.append_entry(
        tx,
        CHANGED,
        old=before.get("new", ""),
        new=policy.version,
        changed=sorted(name for name in policy.files if policy.files[name] != old.get(name)),
        files=policy.files,
    )


def _get_last_logged_policy(tx: Transaction) -> tuple[str, str]:
    """Return the version that was noted last, or "" and what was wrong."""
    changed = change_log.get_last_entry_of_kind(tx, CHANGED)
    broken = change_log.get_last_entry_of_kind(tx, BROKEN)
    if broken is not None and (changed is None or broken.seq > changed.seq):
        return "", str(broken.facts.get("error"))
    return (str(changed.facts.get("new")), "") if changed else ("", "")
