from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal

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
    """Set the limit of connections that a host's firewall tracks."""

    host: Host
    maximum: Annotated[
        int,
        Field(
            ge=MIN_CONNECTIONS,
            le=MAX_CONNECTIONS,
            description=f"Connections, from {MIN_CONNECTIONS} to {MAX_CONNECTIONS}",
        ),
    ]

    boot: Annotated[
        Literal["unchanged", "same"],
        Field(
            title="After the next boot",
            description="Whether the next boot sets the same limit: same writes a file for sysctl",
        ),
    ] = "unchanged"

    def read(self, run_query: QueryRunner) -> Conntrack:
        limits = run_query(self.host, conntrack.query_boot_limits())
        return replace(run_query(self.host, conntrack.query_conntrack()), boot_limits=limits)

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
        steps = [*self._list_steps(state)]
        if not steps:
            return Plan(f"the limit is {self.maximum:,} connections")
        because = f"the limit is {state.maximum:,} connections"
        return Plan(because, steps, [*self._list_notes(state)])

    def _list_steps(self, state: Conntrack) -> Iterator[Step]:
        if state.maximum != self.maximum:
            yield self._make_step(state)
        kept = state.boot_limits.get(conntrack.BOOT_FILE)
        if self.boot == "same" and kept != self.maximum:
            yield Step(
                f"Set it to {self.maximum:,} connections at boot too",
                self.host,
                do=conntrack.keep_maximum(self.maximum),
                undo=conntrack.keep_maximum(kept),
                before=f"{kept:,} connections" if kept else f"no {conntrack.BOOT_FILE}",
                after=f"{self.maximum:,} connections in {conntrack.BOOT_FILE}",
            )

    def _make_step(self, state: Conntrack) -> Step:
        return Step(
            f"Set the limit of {self.host} to {self.maximum:,} connections",
            self.host,
            do=conntrack.set_maximum(self.maximum),
            undo=_make_undo(state),
            before=f"{state.maximum:,} connections",
            after=f"{self.maximum:,} connections",
        )

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

    def _list_notes(self, state: Conntrack) -> Iterator[str]:
        mebibytes = self.maximum * ENTRY_BYTES / 2**20
        yield (
            f"{state.count:,} connections are open now; a full table uses about "
            f"{mebibytes:,.0f} MiB of the kernel's memory."
        )
        if state.maximum < int(state.count * _ROOM):
            yield (
                f"Undo restores {state.maximum:,}, which is too few for the {state.count:,} "
                "connections that are open now: new ones would be dropped."
            )
        yield from self._list_boot_notes(state)
        if state.buckets and self.maximum > 8 * state.buckets:
            yield (
                f"The hash table keeps {state.buckets:,} buckets; long chains slow down each "
                "packet."
            )

    def _list_boot_notes(self, state: Conntrack) -> Iterator[str]:
        others = {
            path: limit
            for path, limit in state.boot_limits.items()
            if limit != self.maximum and path != conntrack.BOOT_FILE
        }
        named = ", ".join(f"{limit:,} in {path}" for path, limit in sorted(others.items()))
        if self.boot == "same":
            yield (
                "At boot it applies if nf_conntrack is loaded by then: add the module to "
                "/etc/modules-load.d where it is not."
            )
            if named:
                yield f"Other files set another limit, and one that is read later wins: {named}."
        elif (kept := state.boot_limits.get(conntrack.BOOT_FILE)) != self.maximum:
            source = f"{kept:,} in {conntrack.BOOT_FILE}" if kept else named or "the kernel's own"
            yield f"The next boot sets another limit: {source}. boot=same sets this one."


def _make_undo(state: Conntrack) -> Shell | NoUndo:
    if MIN_CONNECTIONS <= state.maximum <= MAX_CONNECTIONS:
        return conntrack.set_maximum(state.maximum)
    return NoUndo(
        f"Keyturn cannot set the previous limit, {state.maximum:,}: it allows "
        f"{MIN_CONNECTIONS:,} to {MAX_CONNECTIONS:,}"
    )
