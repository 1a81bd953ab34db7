"""Log changes of the policy, and that the policy is not valid."""

import logging
from collections.abc import Mapping

from bot.audit import change_log, events
from bot.audit.change_log import Entry
from bot.db.database import Transaction
from bot.policy import NoPolicyError, Policy
from bot.workflow.context import WorkflowContext

log = logging.getLogger(__name__)


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
        return change_log.append_entry(tx, events.PolicyInvalid(error=error))
    for problem in policy.tree_problems:
        log.error("a fault tree is not valid, so it protects nothing: %s", problem)
    warnings = tuple(map(str, policy.warnings))
    if warnings:
        log.warning("the policy names people or roles that are gone: %s", "; ".join(warnings))
    changed = change_log.get_last_entry_of_kind(tx, events.PolicyChanged.kind)
    before = changed.event if changed else None
    old = before.files if isinstance(before, events.PolicyChanged) else dict[str, str]()
    known, keys = _get_logged_keys(tx), _get_keys(policy)
    return change_log.append_entry(
        tx,
        events.PolicyChanged(
            old=before.new if isinstance(before, events.PolicyChanged) else "",
            new=policy.version,
            changed=tuple(
                sorted(name for name in policy.files if policy.files[name] != old.get(name))
            ),
            files=policy.files,
            warnings=warnings,
            added_keys=_group_by_person(keys - known),
            removed_keys=_group_by_person(known - keys),
        ),
    )


# A person and the fingerprint of a signing key.
_PersonKey = tuple[str, str]


def _get_keys(policy: Policy) -> set[_PersonKey]:
    people = policy.organisation.people.values()
    return {(one.id, key.fingerprint) for one in people for key in one.signing_keys}


def _get_logged_keys(tx: Transaction) -> set[_PersonKey]:
    """Return the signing keys of the version that was logged last: what all entries amount to."""
    found = set[_PersonKey]()
    kind = events.PolicyChanged.kind
    for entry in reversed([*change_log.list_entries_since(tx, kind, 0)]):
        if isinstance(event := entry.event, events.PolicyChanged):
            found -= {(who, key) for who, keys in event.removed_keys.items() for key in keys}
            found |= {(who, key) for who, keys in event.added_keys.items() for key in keys}
    return found


def _group_by_person(found: set[_PersonKey]) -> Mapping[str, tuple[str, ...]]:
    people = sorted({person for person, _ in found})
    return {who: tuple(sorted(key for one, key in found if one == who)) for who in people}


def _get_last_logged_policy(tx: Transaction) -> tuple[str, str]:
    """Return the policy version that was logged last, or "" and the error."""
    kinds = (events.PolicyChanged.kind, events.PolicyInvalid.kind)
    found = [change_log.get_last_entry_of_kind(tx, kind) for kind in kinds]
    last = max(filter(None, found), key=lambda entry: entry.seq, default=None)
    event = last.event if last else None
    if isinstance(event, events.PolicyInvalid):
        return "", event.error
    return (event.new, "") if isinstance(event, events.PolicyChanged) else ("", "")
