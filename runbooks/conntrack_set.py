from typing import Annotated

from pydantic import Field

from connectors import conntrack
from connectors.command import QueryRunner, Shell
from connectors.conntrack import ENTRY_BYTES, MAX_CONNECTIONS, MIN_CONNECTIONS, Conntrack
from runbooks import Change, Host, NoUndo, Plan, Refused, Step

# Of what is in use now, so that the next rush does not reach the limit at once.
_ROOM = 1.25
# A full table must leave the host most of its memory.
_SHARE = 8


class SetConntrack(
    Change[Conntrack],
    words="conntrack set",
    example="lb1 524288",
    undo="sets the limit that was set before",
):
    """Set how many connections a host's firewall can keep track of, until its next start."""

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

    def plan(self, found: Conntrack) -> Plan:
        if found.maximum == self.maximum:
            return Plan(f"the limit is {self.maximum:,} connections already")
        self._refuse_unsafe(found)
        step = Step(
            f"Let {self.host} keep track of {self.maximum:,} connections",
            self.host,
            do=conntrack.set_maximum(self.maximum),
            undo=_make_undo(found),
            before=f"{found.maximum:,} connections",
            after=f"{self.maximum:,} connections",
        )
        return Plan(f"the limit is {found.maximum:,} connections", [step], self._list_notes(found))

    def _refuse_unsafe(self, found: Conntrack) -> None:
        least = int(found.count * _ROOM)
        if self.maximum < least:
            raise Refused(
                f"{found.count:,} connections are open, and new ones would soon be dropped: "
                f"ask for {least:,} or more"
            )
        most = found.memory_bytes // _SHARE // ENTRY_BYTES
        if self.maximum > max(most, found.maximum):
            raise Refused(
                f"a full table would take more than an eighth of the memory of {self.host}: "
                f"ask for {most:,} or fewer"
            )

    def _list_notes(self, found: Conntrack) -> list[str]:
        mebibytes = self.maximum * ENTRY_BYTES / 2**20
        notes = [
            f"{found.count:,} connections are open now; a full table takes about "
            f"{mebibytes:,.0f} MiB of the kernel's memory.",
            "The next start of the host brings back what its /etc/sysctl.d says.",
        ]
        if found.buckets and self.maximum > 8 * found.buckets:
            notes.append(
                f"The hash table stays at {found.buckets:,} buckets, and long chains make each "
                "packet slower."
            )
        return notes


def _make_undo(found: Conntrack) -> Shell | NoUndo:
    if MIN_CONNECTIONS <= found.maximum <= MAX_CONNECTIONS:
        return conntrack.set_maximum(found.maximum)
    return NoUndo(
        f"the limit of before, {found.maximum:,}, is not one that Keyturn sets "
        f"({MIN_CONNECTIONS:,} to {MAX_CONNECTIONS:,})"
    )
