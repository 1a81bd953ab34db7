"""Log changes of the policy, and that the policy is not valid."""

import logging

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.db.database import Transaction
from bot.policy import NoPolicyError, Policy
from bot.workflow.context import WorkflowContext

log = logging.getLogger(__name__)

CHANGED, BROKEN = "policy changed", "policy invalid"


class PolicyRecorder:
    """Logs the policy that this process has loaded, whenever it changes.

    Several processes may load a new policy at different times: each logs it once, and only if the
    log does not contain it yet.
    """

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context
        # Version and error that this process has recorded last.
        self._last_recorded: tuple[str, str] | None = None

    def record_policy_change(self) -> Entry | None:
        """Log the current policy once, and raise the alarm once if there is none."""
        try:
            policy: Policy | None = self._context.policies.get_policy()
            current = policy.version, ""
        except NoPolicyError as error:
            policy, current = None, ("", str(error))
        if current == self._last_recorded:
            return None
        with self._context.database.transaction() as tx:
            # Only one of several processes logs it.
            change_log.lock_log(tx)
            entry = (
                None
                if _get_last_logged_policy(tx) == current
                else _log_policy(tx, policy, current[1])
            )
        self._last_recorded = current
        return entry


def _log_policy(tx: Transaction, policy: Policy | None, error: str) -> Entry:
    if policy is None:
        log.critical("there is no valid policy, so nothing can be requested or run: %s", error)
        return change_log.append_entry(tx, BROKEN, error=error)
    for problem in policy.tree_problems:
        log.error("a fault tree is not valid, so it protects nothing: %s", problem)
    warnings = [*map(str, policy.warnings)]
    if warnings:
        log.warning("the policy names people or roles that are gone: %s", "; ".join(warnings))
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
        warnings=warnings or None,
    )


def _get_last_logged_policy(tx: Transaction) -> tuple[str, str]:
    """Return the policy version that was logged last, or "" and the error."""
    changed = change_log.get_last_entry_of_kind(tx, CHANGED)
    broken = change_log.get_last_entry_of_kind(tx, BROKEN)
    if broken is not None and (changed is None or broken.seq > changed.seq):
        return "", str(broken.facts.get("error"))
    return (str(changed.facts.get("new")), "") if changed else ("", "")
