"""Unattended: whoever waits at a site for which no worker takes anything is told so."""

from collections.abc import Sequence
from datetime import UTC, datetime

from bot.policy import NoPolicy
from bot.run import Run, State
from bot.store import hints, runs
from bot.store.database import Transaction
from bot.workflow import gate
from bot.workflow.parts import Parts

# Workers that are free look every second: what has waited so long is seen by none.
_SECONDS = 15.0
_SAYS = "waits: no worker of "


def note(parts: Parts, tx: Transaction, moving: Sequence[Run]) -> None:
    """Say once of each of these runs that no worker of its site has been heard of, if that is so.

    On PostgreSQL only: elsewhere there are no workers. A part of a request is told of with the
    whole, until its own turn has come.
    """
    alone = {one.site: one.seconds for one in hints.unattended(tx, seconds=_SECONDS)}
    if not alone:
        return
    for run in moving:
        found = sorted(alone.keys() & _sites(parts, run))
        if not found or run.summary.startswith(_SAYS):
            continue
        since = datetime.fromtimestamp(tx.now / 1_000_000 - alone[found[0]], UTC)
        sites = f"site{'s' * (len(found) > 1)} {', '.join(found)}"
        why = f"{_SAYS}{sites} has been heard of since {since:%H:%M} UTC"
        gate.wait(tx, runs.hold(tx, run.id), why)


def _sites(parts: Parts, run: Run) -> set[str]:
    """Return the sites whose workers are to take this up next."""
    waits = run.state is State.READY or (run.state is State.ASKED and run.parent is None)
    if not waits or (run.hosts and run.state is State.READY):
        return set()
    try:
        known = parts.policies.current().inventory.hosts
    except NoPolicy:
        return set()
    return {known[host].site for host in run.hosts or (run.host,) if host in known}
