from connectors import signed_files
from connectors.command import QueryRunner
from connectors.signed_files import NOT_ENROLLED, SignedFilesState
from runbooks import Change, Host, Plan, Refused, Step


class UpdateSigners(
    Change[SignedFilesState],
    words="signers update",
    example="lb1",
    undo="writes both files as they were",
):
    """Set whose signatures an enrolled host accepts to the people of the policy."""

    host: Host

    def read(self, run_query: QueryRunner) -> SignedFilesState:
        return signed_files.read_files(run_query, self.host)

    def plan(self, state: SignedFilesState) -> Plan:
        if state == NOT_ENROLLED:
            raise Refused(
                f"{self.host} has no `signed: true` in the inventory: it is not enrolled"
            )
        can_sign = f"{', '.join(sorted(state.current.people)) or 'no one'} can sign"
        if not (state.surplus or state.missing):
            return Plan(f"{can_sign}, as the policy says")
        if problem := state.wanted.find_lockout():
            raise Refused(
                f"nothing could change {self.host} any more: with these people, {problem}"
            )
        step = Step(
            "Replace signers and floor",
            self.host,
            do=signed_files.write_files(state.wanted),
            undo=signed_files.write_files(state.current),
            before="; ".join(state.surplus) or "fewer people can sign",
            after="; ".join(state.missing) or "these people cannot sign any more",
        )
        note = (
            "The host counts the signatures of those whom it names now, as many as the strictest "
            "line of its floor asks for. A key that it does not name yet cannot sign this."
        )
        return Plan(can_sign, [step], [note])
