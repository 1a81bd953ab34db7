"""Aliases: slash commands of their own for what is done every day. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Alias:
    """words: what the command stands for, before what is typed behind it."""

    runbook: str
    usage: str
    description: str


COMMAND = "/keyturn"
# The manifest registers each of them; Slack tells us of no other.
ALIASES: Mapping[str, Alias] = {
    "/abusers": Alias(
        "abusers", "clear lb1 203.0.113.9 because …", "Whom HAProxy has marked as an abuser"
    ),
    "/scrub": Alias(
        "zfs scrub", "start nas1 tank because …", "Scrub a ZFS pool, and see how it goes"
    ),
    "/bond": Alias("bond", "check nas1 bond0", "See whether a network bond carries its load"),
    "/nfs-scheduler": Alias(
        "nfs scheduler", "set nas1 sdb bfq because …", "How the disks behind NFS order their work"
    ),
    "/pingdom-refresh": Alias(
        "csf pingdom refresh", "web1 because …", "Let Pingdom's probes through the firewall"
    ),
}


def expand_alias(command: str, text: str) -> str:
    """Return what would stand behind /keyturn: `/scrub start nas1` is `zfs scrub start nas1`."""
    alias = ALIASES.get(command)
    if alias is None:
        return text
    first, _, rest = text.strip().partition(" ")
    if first.lower() == "help":
        return f"help {alias.runbook} {rest}".strip()
    return f"{alias.runbook} {text}".strip()
