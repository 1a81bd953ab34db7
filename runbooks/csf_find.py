from collections.abc import Sequence

from connectors import csf_grep
from connectors.command import QueryRunner
from connectors.csf_grep import CsfMatch
from runbooks import Address, Check, Host, Report, Table, make_host_field


class FindInCsf(
    Check[Sequence[CsfMatch]],
    words="csf find",
    also_called=("firewall",),
    example="web1 198.51.100.7",
    verifies_tag=True,
    columns=("Place", "Entry"),
):
    """Find an address in the rules, sets and files of csf."""

    host: Host = make_host_field("csf")
    address: Address

    def read(self, run_query: QueryRunner) -> Sequence[CsfMatch]:
        return run_query(self.host, csf_grep.query_matches(self.address))

    def report(self, finds: Sequence[CsfMatch]) -> Report:
        if not finds:
            return Report(f"csf on {self.host} has no entry for {self.address}")
        places = ", ".join(dict.fromkeys(find.place for find in finds))
        return Report(
            f"{self.host} has {self.address} in {places}",
            findings=_list_contradictions(finds),
            table=Table(self.columns, [(find.place, find.text) for find in finds]),
        )


def _list_contradictions(finds: Sequence[CsfMatch]) -> Sequence[str]:
    places = {find.place for find in finds}
    enforced = any(place.startswith(("filter ", "set ")) for place in places)
    if not enforced and places & {"csf.allow", "csf.deny"}:
        return ("it is in csf's files but no rule is in force: restart csf to apply them",)
    if {"csf.allow", "csf.deny"} <= places:
        return ("it is both allowed and denied: csf allows it",)
    return ()
