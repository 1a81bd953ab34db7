from connectors import hidepid
from connectors.command import QueryRunner
from connectors.hidepid import ProcMount
from runbooks import Check, Host, Report

_MEANING = {
    0: "all users see all processes",
    1: "users see that others have processes, but not their details",
    2: "users see only their own processes",
    4: "users see only processes that they may trace",
}


class ShowHidepid(Check[ProcMount], words="hidepid show", example="web1"):
    """Show whether users of a host can see the processes of others."""

    host: Host

    def read(self, run_query: QueryRunner) -> ProcMount:
        value, gid = run_query(self.host, hidepid.query_current())
        return ProcMount(value, gid, run_query(self.host, hidepid.query_fstab()))

    def report(self, proc: ProcMount) -> Report:
        group = "" if proc.gid is None else f"; members of the group {proc.gid} see all"
        findings: list[str] = []
        if proc.fstab_options is not None and proc.hidepid_after_boot != proc.hidepid:
            findings.append(
                f"fstab has hidepid={proc.hidepid_after_boot}, but hidepid={proc.hidepid} is "
                "in force: it changes at the next boot"
            )
        if proc.fstab_options is None and proc.hidepid:
            findings.append(
                "fstab has no line for /proc: unless something else sets hidepid, it is reset at "
                "the next boot"
            )
        return Report.from_findings(
            f"On {self.host} {_MEANING[proc.hidepid]} (hidepid={proc.hidepid}){group}",
            findings,
        )
