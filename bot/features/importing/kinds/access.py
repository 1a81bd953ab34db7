"""Files on which logins depend: a change of them is tried first, and on probation."""

import re

from bot.features.importing.drafts import Draft, Unclear, show_marks
from connectors.script import load_code

# Who may log in and become root, which a mistake takes from everyone.
_OF_ACCESS = re.compile(
    r"/etc/(sudoers|ssh/(?!ssh_config)|sysconfig/sshd|default/ssh|pam\.d/|"
    r"security/(?!pwquality|pwhistory)|passwd|shadow|group|gshadow|nsswitch\.conf|"
    r"hosts\.(allow|deny))"
)
# Those that a host can save and restore, since nothing else writes them meanwhile.
_OF_SSHD = re.compile(r"/etc/(ssh/sshd_config(\.d/[^/\x01]+)?|sysconfig/sshd|default/ssh)")
_OF_SUDO = re.compile(r"/etc/sudoers(\.d/[^/\x01]+)?")
_OF_OTHERS = re.compile(
    r"/etc/(pam\.d/[^/\x01]+|security/([^/\x01]+/)?[^/\x01]+\.conf|nsswitch\.conf|hosts\.(allow|deny))"
)
_SSHD = ("ssh", "sshd")
_SECONDS = 180
_SEE_PASSWORDS = (
    "The probation proves that Keyturn logs in and becomes root. That people do, by a password or "
    "a key of theirs, is for you to try before it ends."
)
_SEE_SSHD = (
    "sshd reads its configuration again when it is reloaded or restarted: before that, the change "
    "has no effect that the probation could show."
)


def refuse_access(path: str) -> None:
    """Refuse a path on which access may depend. Raises Unclear."""
    if _OF_ACCESS.match(path):
        raise Unclear(
            f"access to a host may depend on {show_marks(path)}, so Keyturn leaves its content "
            "alone"
        )


def refuse_access_within(path: str) -> None:
    """Refuse a path that is, or has in it, what access may depend on. Raises Unclear."""
    refuse_access(path)
    refuse_access(f"{path}/")
    if "/.ssh/" in f"{path}/":
        raise Unclear(f"access to a host may depend on what is in {show_marks(path)}")


def can_protect(path: str) -> bool:
    """Return whether logins depend on a file that a host can save and restore."""
    return any(one.fullmatch(path) for one in (_OF_SSHD, _OF_SUDO, _OF_OTHERS))


def protect(draft: Draft, path: str) -> None:
    """Put a page on probation if logins depend on a file. Raises Unclear if that cannot help."""
    if not can_protect(path):
        refuse_access(path)
        return
    if path not in draft.protected:
        draft.protected.append(path)
    is_of_sshd = any(map(_OF_SSHD.fullmatch, draft.protected))
    units = " ".join(_SSHD) if is_of_sshd else ""
    code = load_code("access-restore", FILES=" ".join(draft.protected), UNITS=units)
    draft.probation = {"name": "access", "restore": code, "seconds": _SECONDS}
    for text in (_SEE_PASSWORDS, *([_SEE_SSHD] if is_of_sshd else [])):
        if {"text": text} not in draft.notes:
            draft.notes.append({"text": text})


def find_trial(path: str) -> list[str]:
    """Return the program that tries a file whose errors lock people out, without the file."""
    if _OF_SUDO.fullmatch(path):
        return ["/usr/sbin/visudo", "-cf"]
    if path.startswith("/etc/ssh/") and _OF_SSHD.fullmatch(path):
        return ["/usr/sbin/sshd", "-tf"]
    return []


def is_sshd(name: str) -> bool:
    """Return whether a service, without `.service`, is the one for logins by SSH."""
    return name in _SSHD


def may_restart(draft: Draft, name: str) -> bool:
    """Return whether a page changes the configuration of sshd, and a service is that one."""
    return is_sshd(name) and any(map(_OF_SSHD.fullmatch, draft.protected))
