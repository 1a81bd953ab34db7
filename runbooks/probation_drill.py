from connectors import probation
from connectors.command import QueryRunner
from connectors.probation import DRILL, DRILL_CHANGE, ProbationStatus
from runbooks import Change, Host, Plan, Refused, Report, Step


class DrillProbation(
    Change[ProbationStatus],
    words="probation drill",
    example="web1",
    undo="ends the drill before the host restores",
):
    """Prove that a host restores by itself what is not confirmed, without changing anything."""

    host: Host

    def read(self, run_query: QueryRunner) -> ProbationStatus:
        return run_query(self.host, probation.query_probation(DRILL.name))

    def plan(self, status: ProbationStatus) -> Plan:
        if status.is_lost:
            raise Refused(
                f"the timer of an earlier drill on {self.host} was lost, so the host may not "
                "restore: find out what ended it, and remove drill.armed in "
                f"/var/lib/keyturn-probation on {self.host}"
            )
        if status.armed:
            return Plan("a drill is armed: the host restores by itself when it expires")
        step = Step(
            "Arm a probation that nothing confirms",
            self.host,
            do=DRILL.arm(DRILL_CHANGE),
            undo=DRILL.keep(DRILL_CHANGE),
            undo_title="End the drill",
        )
        return Plan(
            "no drill is armed",
            [step],
            [
                "The drill changes nothing. Keyturn reports in some minutes whether the host has "
                "restored by itself."
            ],
        )

    def report_progress(self, status: ProbationStatus) -> Report:
        if status.armed and not status.is_lost:
            return Report(f"The drill expires in {status.seconds_left} s", running=True)
        if status.restored == DRILL_CHANGE and status.restore_status == 0:
            return Report(f"Probation works on {self.host}: the host restored by itself")
        return Report(
            f"Probation does not work on {self.host}: the host did not restore by itself. Change "
            "nothing there that can lock you out",
            healthy=False,
        )
