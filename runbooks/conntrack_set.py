from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from connectors import conntrack
from connectors.command import QueryRunner, Shell
from connectors.conntrack import ENTRY_BYTES, MAX_CONNECTIONS, MIN_CONNECTIONS, Conntrack
from connectors.probation import Probation
from runbooks import Change, Host, Leg, NoUndo, Plan, Refused, Step

# Times the connections in use, so that the next peak does not reach the limit immediately.
_ROOM = 1.25
# A full table may use one such part of the host's memory.
_SHARE = 8


class SetConntrack(
    Change[Conntrack],
    words="conntrack set",
    example="lb1 524288",
    undo="restores the previous limit",
    sets="conntrack limit",
):
    """Set the limit of connections that a host's firewall tracks, until the next boot."""

    host: Host
    maximum: Annotated[
        int,
        Field(
            ge=MIN_CONNECTIONS,
            le=MAX_CONNECTIONS,
            description=f"Connections, from {MIN_CONNECTIONS} to {MAX_CONNECTIONS}",
        ),
    ]

    def read(self, run_query: QueryRunner) -> Conntrack:
        return run_query(self.host, conntrack.query_conntrack())

    def get_probation(self) -> Probation:
        return conntrack.PROBATION

    def takes_down(self) -> Sequence[Leg]:
        return [Leg(self.host, "conntrack")]

    def plan(self, state: Conntrack) -> Plan:
        plan = self.plan_anyway(state)
        if plan.steps:
            self._refuse_unsafe(state)
        return plan

    def plan_anyway(self, state: Conntrack) -> Plan:
        if state.maximum == self.maximum:
            return Plan(f"the limit is already {self.maximum:,} connections")
        step = Step(
            f"Set the limit of {self.host} to {self.maximum:,} connections",
            self.host,
            do=conntrack.set_maximum(self.maximum),
            undo=_make_undo(state),
            before=f"{state.maximum:,} connections",
            after=f"{self.maximum:,} connections",
        )
        return Plan(f"the limit is {state.maximum:,} connections", [step], self._list_notes(state))

    def _refuse_unsafe(self, state: Conntrack) -> None:
        least = int(state.count * _ROOM)
        if self.maximum < least:
            raise Refused(
                f"{state.count:,} connections are open, so new ones would soon be dropped: "
                f"set {least:,} or more"
            )
        most = state.memory_bytes // _SHARE // ENTRY_BYTES
        if self.maximum > max(most, state.maximum):
            raise Refused(
                f"a full table would use more than an eighth of the memory of {self.host}: "
                f"set {most:,} or fewer"
            )

    def _list_notes(self, state: Conntrack) -> list[str]:
        mebibytes = self.maximum * ENTRY_BYTES / 2**20
        notes = [
            f"{state.count:,} connections are open now; a full table uses about "
            f"{mebibytes:,.0f} MiB of the kernel's memory.",
            "The next boot restores the value in the host's /etc/sysctl.d.",
        ]
        if state.buckets and self.maximum > 8 * state.buckets:
            notes.append(
                f"The hash table keeps {state.buckets:,} buckets; long chains slow down each "
                "packet."
            )
        return notes


def _make_undo(state: Conntrack) -> Shell | NoUndo:
    if MIN_CONNECTIONS <= state.maximum <= MAX_CONNECTIONS:
        return conntrack.set_maximum(state.maximum)
    return NoUndo(
        f"Keyturn cannot set the previous limit, {state.maximum:,}: it allows "
        f"{MIN_CONNECTIONS:,} to {MAX_CONNECTIONS:,}"
    )
