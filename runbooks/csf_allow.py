from connectors import csf_entry
from runbooks import Plan, Refused, Step
from runbooks._csf import ChangeOfAddress, CsfAddress


class AllowAddress(
    ChangeOfAddress,
    words="csf allow",
    also_called=("whitelist",),
    example="web1 198.51.100.7",
    undo="removes the entry from csf.allow",
    sets="csf {address}",
):
    """Allow one address at every port of the host: add it to csf.allow."""

    def plan(self, state: CsfAddress) -> Plan:
        entries, allowed = state.entries, state.firewall.is_allowed(self.address)
        if entries.allow and not allowed:
            raise Refused(f"csf.allow has {self.address}, but no rule is in force: run csf -r")
        if allowed and not entries.has_temporary_allow:
            entry = csf_entry.find_covering(list(state.firewall.allow), self.address)
            return Plan(f"csf allows {self.address}{f' ({entry})' if entry else ''}")
        if entries.deny or entries.temporary_block:
            raise Refused(
                f"csf blocks {self.address} ({entries.deny or entries.temporary_block}): request "
                "csf unblock first, so that each can be undone"
            )
        step = Step(
            f"Allow {self.address} in csf",
            self.host,
            do=csf_entry.change_entry("allow", self.address),
            undo=csf_entry.change_entry("disallow", self.address),
            before="not in csf.allow",
            after="in csf.allow",
        )
        notes = ["It can reach every port of the host. lfd may still block it: see csf.ignore."]
        if state.source == self.address:
            notes.append("Keyturn connects from this address: undo could lock it out.")
        return Plan(f"csf.allow does not have {self.address}", [step], notes)
