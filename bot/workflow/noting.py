"""Noting: a change of the policy, or that there is none now, goes into the change log."""

import logging

from bot.policy import NoPolicy
from bot.store import changelog
from bot.store.changelog import Entry
from bot.store.database import Transaction
from bot.workflow.parts import Parts

log = logging.getLogger(__name__)

CHANGED, BROKEN = "policy changed", "policy broken"


def note_policy(parts: Parts) -> Entry | None:
    """Write down once which policy holds now, and raise the alarm once if none does."""
    try:
        policy = parts.policies.current()
    except NoPolicy as trouble:
        return _note_broken(parts, str(trouble))
    with parts.database.reading() as tx:
        if _last(tx)[0] == policy.version:
            return None
    with parts.database.transaction() as tx:
        last, _ = _last(tx)
        changed = changelog.last_of_kind(tx, CHANGED)
        before = changed.facts if changed else {}
        if last == policy.version:
            return None
        old: dict[str, str] = before.get("files", {})
        return changelog.append(
            tx,
            CHANGED,
            old=before.get("new", ""),
            new=policy.version,
            changed=sorted(name for name in policy.files if policy.files[name] != old.get(name)),
            files=policy.files,
        )


def _note_broken(parts: Parts, trouble: str) -> Entry | None:
    with parts.database.reading() as tx:
        if _last(tx) == ("", trouble):
            return None
    log.critical("nobody may do anything, since there is no valid policy: %s", trouble)
    with parts.database.transaction() as tx:
        return changelog.append(tx, BROKEN, trouble=trouble)


def _last(tx: Transaction) -> tuple[str, str]:
    """Return the version that was noted last, or "" and what was wrong."""
    changed = changelog.last_of_kind(tx, CHANGED)
    broken = changelog.last_of_kind(tx, BROKEN)
    if broken is not None and (changed is None or broken.seq > changed.seq):
        return "", str(broken.facts.get("trouble"))
    return (str(changed.facts.get("new")), "") if changed else ("", "")
