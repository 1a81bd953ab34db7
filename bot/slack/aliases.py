"""Aliases: slash commands for runbooks in daily use. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Alias:
    """A slash command that stands for the first words of a runbook."""

    runbook: str
    """What the command stands for, before what is typed behind it."""
    usage: str
    description: str


COMMAND = "/keyturn"
# The manifest registers each of them; Slack sends no others.
ALIASES: Mapping[str, Alias] = {
    "/abusers": Alias(
        "abusers",
        "clear lb1 203.0.113.9 because …",
        "List and clear clients that HAProxy marked as abusers",
    ),
    "/scrub": Alias(
        "zfs scrub", "start nas1 tank because …", "Start and follow the scrub of a ZFS pool"
    ),
    "/bond": Alias("bond", "check nas1 bond0", "Check the links of a network bond"),
    "/nfs-scheduler": Alias(
        "nfs scheduler",
        "set nas1 sdb bfq because …",
        "Show and set the I/O scheduler of disks behind NFS",
    ),
    "/pingdom-refresh": Alias(
        "csf pingdom refresh", "web1 because …", "Allow Pingdom's probes through the firewall"
    ),
}


def expand_alias(command: str, text: str) -> str:
    """Return the text as behind /keyturn: `/scrub start nas1` is `zfs scrub start nas1`."""
    alias = ALIASES.get(command)
    if alias is None:
        return text
    first, _, rest = text.strip().partition(" ")
    if first.lower() == "help":
        return f"help {alias.runbook} {rest}".strip()
    return f"{alias.runbook} {text}".strip()
