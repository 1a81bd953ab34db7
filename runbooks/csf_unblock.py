from collections.abc import Iterator

from connectors import csf, csf_entry
from runbooks import Plan, Refused, Step
from runbooks._csf import ChangeOfAddress, CsfAddress


class UnblockAddress(
    ChangeOfAddress,
    words="csf unblock",
    also_called=("unban",),
    example="web1 203.0.113.9",
    undo="blocks the address again",
    sets="csf {address}",
):
    """Unblock one address: remove it from csf.deny and from the temporary blocks of lfd."""

    def plan(self, state: CsfAddress) -> Plan:
        self._refuse_lasting_entry(state)
        steps = list(self._list_steps(state))
        entries = state.entries
        wider = ", ".join(f"{match.place} {match.text}" for match in entries.wider)
        if wider and not steps:
            # Not refused: the change is in effect, which a run verifies by this plan.
            return Plan(
                f"no entry blocks {self.address} alone, but {wider} does: remove that by hand, or "
                f"request csf allow {self.host} {self.address}"
            )
        rule = csf_entry.find_advanced_rule(list(state.firewall.deny), self.address)
        if not steps and rule:
            raise Refused(
                f"csf.deny has a rule for single ports, {rule}: remove it with csf -dr, by hand"
            )
        if not steps and entries.is_denied:
            raise Refused(
                f"a rule blocks {self.address}, but neither csf.deny nor a temporary block has "
                "it: run csf -r"
            )
        if not steps:
            return Plan(f"csf does not block {self.address}")
        notes = ["lfd blocks it again if it does the same again: see csf.ignore."]
        if wider:
            notes.append(f"{wider} still blocks it, which is not changed.")
        reasons = [
            *([f"csf.deny has {entries.deny}"] if entries.deny else ()),
            *(["it is blocked for a time"] if entries.temporary_block else ()),
        ]
        if entries.temporary_block:
            notes.append(f"The temporary block: {entries.temporary_block}.")
        return Plan("; ".join(reasons), steps, notes)

    def _refuse_lasting_entry(self, state: CsfAddress) -> None:
        """Refuse an entry that csf prints a message about, and does not remove."""
        deny = state.entries.deny
        if str(self.address) in state.firewall.included_deny:
            raise Refused(
                f"a file that csf.deny includes has {self.address}, and csf removes entries from "
                "csf.deny alone: remove it from that file and run csf -r"
            )
        if csf.is_protected(deny.partition("#")[2]):
            raise Refused(
                f'csf.deny has {deny}, and csf removes no entry that is marked "do not delete": '
                "if it must go, remove those words from csf.deny first"
            )

    def _list_steps(self, state: CsfAddress) -> Iterator[Step]:
        if state.entries.deny:
            yield Step(
                f"Remove {self.address} from csf.deny",
                self.host,
                do=csf_entry.change_entry("undeny", self.address),
                undo=csf_entry.change_entry("deny", self.address),
                before="in csf.deny",
                after="not in csf.deny",
            )
        if state.entries.temporary_block:
            yield Step(
                f"End the temporary block of {self.address}",
                self.host,
                do=csf_entry.change_entry("unblock", self.address),
                undo=csf_entry.change_entry("block", self.address),
                before="blocked for a time",
                after="not blocked",
                undo_title=f"Block {self.address} again, for an hour",
            )
