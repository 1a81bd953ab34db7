from connectors import hidepid
from connectors.command import QueryRunner
from connectors.hidepid import ProcMount
from runbooks import Check, Host, Report

_MEANING = {
    0: "everybody sees the processes of all",
    1: "people see that others have processes, and not which",
    2: "people see only their own processes",
    4: "people see only processes that they may trace",
}


class ShowHidepid(Check[ProcMount], words="hidepid show", example="web1"):
    """See whether people on a host can see the processes of others."""

    host: Host

    def read(self, run_query: QueryRunner) -> ProcMount:
        value, gid = run_query(self.host, hidepid.query_current())
        return ProcMount(value, gid, run_query(self.host, hidepid.query_fstab()))

    def report(self, proc: ProcMount) -> Report:
        apart = "" if proc.gid is None else f", and members of the group {proc.gid} see all"
        findings: list[str] = []
        if proc.fstab_options is not None and proc.hidepid_after_boot != proc.hidepid:
            findings.append(
                f"fstab says hidepid={proc.hidepid_after_boot}, and hidepid={proc.hidepid} is "
                "in force: "
                "it changes when the host starts again"
            )
        if proc.fstab_options is None and proc.hidepid:
            findings.append(
                "fstab has no line for /proc: unless something else sets hidepid, it is gone "
                "when the host starts again"
            )
        return Report(
            f"On {self.host} {_MEANING[proc.hidepid]} (hidepid={proc.hidepid}){apart}",
            healthy=not findings,
            findings=findings,
        )
