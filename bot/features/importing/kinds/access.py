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
# What the network needs or firewalls deny, and the programs by which people log in.
_OF_NETWORK = re.compile(
    r"/etc/(netplan|network|NetworkManager|systemd/network|sysconfig/(network|ip6?tables|nftables)"
    r"|iptables|nftables|ufw|firewalld|default/ufw|nologin|ld\.so\.preload|sssd|shells"
    r"|systemd/system/sshd?\.)|(/usr)?/s?bin/(sudo|su|sshd|login|sh|bash|dash)$"
    r"|(/usr)?/lib/systemd/system/sshd?\."
)
_READ_BY_ALL = re.compile(r"/etc/(passwd|group|nsswitch\.conf|pam\.d/?)")
_TO_ROOT = re.compile("(/usr)?/bin/(sudo|su)")
_OF_KEYS = re.compile(r"/.*/\.ssh/authorized_keys2?")
# Where sshd refuses keys if others may write, and what everyone has to read.
_OF_LOGIN = re.compile(r"/(root|home/[^/]+)(/\.ssh(/authorized_keys2?)?)?/?")
_OF_ALL = re.compile(
    r"/(bin|dev|etc|home|lib\w*|proc|run|sbin|sys|usr|var)/?|/usr/(s?bin|lib\w*)/?"
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
    if _OF_ACCESS.match(path) or _OF_NETWORK.match(path):
        raise Unclear(
            f"access to a host may depend on {show_marks(path)}, so Keyturn leaves its content "
            "alone"
        )


def refuse_keys(path: str) -> None:
    """Refuse to take keys by which people log in out of a file. Raises Unclear."""
    if _OF_KEYS.fullmatch(path):
        raise Unclear(f"people log in by what is in {show_marks(path)}, which it takes away")


def refuse_odd_mode(path: str, on: int, off: int) -> None:
    """Refuse a mode that locks people out, by the bits that it sets and clears. Raises Unclear."""
    takes = (
        (_OF_LOGIN.fullmatch(path) and on & 0o022)
        or (_OF_ALL.fullmatch(path) and off & 0o005)
        or (_READ_BY_ALL.fullmatch(path) and off & 0o004)
        or (_TO_ROOT.fullmatch(path) and off & 0o4005)
    )
    if takes:
        raise Unclear(f"with that mode of {show_marks(path)}, people could not log in")


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
