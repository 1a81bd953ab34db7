from collections.abc import Iterator

from connectors import csf_entry
from connectors.public_addresses import is_internal
from runbooks import Plan, Refused, Step
from runbooks._csf import ChangeOfAddress, CsfAddress


class DenyAddress(
    ChangeOfAddress,
    words="csf deny",
    also_called=("ban", "blacklist"),
    example="web1 203.0.113.9",
    undo="removes the entry from csf.deny",
    sets="csf {address}",
):
    """Block one address at every port of the host: add it to csf.deny."""

    def plan(self, state: CsfAddress) -> Plan:
        entries = state.entries
        self._refuse_friend(state)
        if entries.deny and not entries.is_denied:
            raise Refused(f"csf.deny has {self.address}, but no rule is in force: run csf -r")
        if entries.deny:
            return Plan(f"csf blocks {self.address} (csf.deny: {entries.deny})")
        step = Step(
            f"Block {self.address} in csf",
            self.host,
            do=csf_entry.change_entry("deny", self.address),
            undo=csf_entry.change_entry("undeny", self.address),
            before="not in csf.deny",
            after="in csf.deny",
        )
        return Plan(f"csf.deny does not have {self.address}", [step], [*_list_notes(state)])

    def _refuse_friend(self, state: CsfAddress) -> None:
        if self.address == state.source:
            raise Refused(f"Keyturn connects from {self.address}: this would lock it out")
        if is_internal(self.address):
            raise Refused(
                f"{self.address} is a private address: it may be monitoring, a proxy or everyone "
                "in an office. If it must be blocked, do it by hand"
            )
        ignored = csf_entry.find_covering(list(state.firewall.ignore), self.address)
        if ignored:
            raise Refused(
                f"csf.ignore, or a file that it includes, has {ignored}, and csf denies nothing "
                "that it ignores: remove that entry first"
            )
        entry = state.entries.allowed_by or csf_entry.find_covering(
            list(state.firewall.allow), self.address
        )
        if entry or state.firewall.is_allowed(self.address):
            raise Refused(
                f"csf allows {self.address} ({entry or 'a rule in force'}), and what it allows "
                "it never blocks: remove that entry first"
            )


def _list_notes(state: CsfAddress) -> Iterator[str]:
    limit, used = state.firewall.settings.get("DENY_IP_LIMIT", ""), state.firewall.removable_count
    if limit.isdecimal() and 0 < int(limit) <= used:
        yield (
            f"csf.deny has {used:,} entries, and DENY_IP_LIMIT is {int(limit):,}: csf removes the "
            "oldest, which undo does not restore."
        )
    if state.entries.temporary_block:
        yield f"It is already blocked for a time ({state.entries.temporary_block})."
    yield "Open connections of this address are cut too."
