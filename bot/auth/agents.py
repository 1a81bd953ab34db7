"""Agents: the programs that may make requests, in a table whose rows each have a MAC.

That an agent was ended cannot be undone by restoring an older row, because it is also in the
change log.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, insert, select, update

from bot.audit import events, followed_log
from bot.auth import row_mac
from bot.db import tables
from bot.db.database import Transaction
from bot.model.canonical import encode_canonical
from bot.model.signing import SigningKey

_AGENT, _ENTRY = tables.agent, tables.entry.c
_GET = select(_AGENT).where(_AGENT.c.name == bindparam("which"))


@dataclass(frozen=True)
class Agent:
    """A program that may make requests. Times are microseconds since 1970, UTC."""

    name: str
    owner: str
    """The person who answers for it."""
    purpose: str
    added_by: str
    added_at: int
    ends_at: int
    confirmed_by: str | None = None
    """The second person; without one, the agent may do nothing."""
    confirmed_at: int | None = None
    ended_at: int | None = None
    paused_at: int | None = None
    paused_by: str | None = None
    """Who paused it; "" if Keyturn did."""
    pause_reason: str | None = None
    resumed_at: int | None = None

    def get_refusal(self, now: int, *, ignores_pause: bool = False) -> str:
        """Return why the agent may make no request now; "" if it may."""
        if self.ended_at is not None or now >= self.ends_at:
            return f"the agent {self.name} has ended"
        if self.confirmed_at is None:
            return f"the agent {self.name} is not confirmed by a second person"
        if self.paused_at is not None and not ignores_pause:
            return f"the agent {self.name} is paused: {self.pause_reason}"
        return ""

    def get_state(self, now: int) -> str:
        """Return active, pending, paused or ended."""
        if self.ended_at is not None or now >= self.ends_at:
            return "ended"
        if self.confirmed_at is None:
            return "pending"
        return "active" if self.paused_at is None else "paused"


def add_agent(
    tx: Transaction, *, name: str, owner: str, purpose: str, added_by: str, ends_at: int
) -> bool:
    """Add an agent that is not confirmed; False if there is or was one with this name."""
    new = {
        "name": name,
        "owner": owner,
        "purpose": purpose,
        "added_by": added_by,
        "added_at": tx.now,
        "ends_at": ends_at,
    }
    if tx.sql.execute(_GET, {"which": name}).first() is not None:
        return False
    tx.sql.execute(insert(_AGENT).values(row_mac.add_mac(tx, _AGENT, new)))
    return True


def find_agent(tx: Transaction, name: str) -> Agent | None:
    """Return an agent; None if there is none, or its row was not written by Keyturn."""
    return _read_agent(tx, tx.sql.execute(_GET, {"which": name}).first())


def lock_agent(tx: Transaction, name: str) -> Agent | None:
    """Return an agent as find_agent() does, and lock its row."""
    return _read_agent(tx, tx.sql.execute(_GET.with_for_update(), {"which": name}).first())


def update_agent(tx: Transaction, name: str, **values: object) -> None:
    """Change an agent whose row is locked."""
    row = tx.sql.execute(_GET, {"which": name}).one()
    new = row_mac.amend_with_mac(tx, _AGENT, row, values)
    tx.sql.execute(update(_AGENT).where(_AGENT.c.name == name).values(new))


def list_agents(tx: Transaction) -> list[Agent]:
    """Return all agents by name, ended ones too."""
    rows = tx.sql.execute(select(_AGENT).order_by(_AGENT.c.name)).all()
    return [agent for row in rows if (agent := _read_agent(tx, row)) is not None]


def remac_agents(tx: Transaction, new_key: SigningKey) -> None:
    """Give the agents a MAC by a new signing key."""
    row_mac.remac_rows(tx, _AGENT, new_key)


def _read_agent(tx: Transaction, row: Any) -> Agent | None:
    if row is None or not row_mac.is_mac_valid(tx, _AGENT, row):
        return None
    values = {name: value for name, value in row._asdict().items() if name != "mac"}
    if values["ended_at"] is None:
        values["ended_at"] = _find_logged_end(tx, row.name)
    return Agent(**values)


def _find_logged_end(tx: Transaction, name: str) -> int | None:
    """Return when the agent was ended according to the change log; None if it was not."""
    fact = encode_canonical({"agent": name})[1:-1]
    query = select(_ENTRY.at).where(
        _ENTRY.kind == events.AgentEnded.kind, _ENTRY.body.contains(fact, autoescape=True)
    )
    found = tx.sql.execute(query.limit(1)).first()
    return (
        found.at
        if found
        else followed_log.find_known_revocation_time(tx, events.AgentEnded.kind, name, since=0)
    )
