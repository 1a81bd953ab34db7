"""Runbooks: one module each. A module whose name starts with "_" is what they are written in."""

from runbooks._catalogue import catalogue, own_digests
from runbooks._clock import Clock
from runbooks._earlier import Earlier, last_time
from runbooks._fields import (
    Address,
    AgentName,
    CounterName,
    Host,
    Instant,
    InterfaceName,
    PoolName,
    ServiceName,
    TableName,
    tagged,
)
from runbooks._own import BadOwn
from runbooks._plan import NoUndo, Plan, Refused, Report, Step, Table
from runbooks._runbook import AnyRunbook, Change, Check, Runbook

__all__ = [
    "Address",
    "AgentName",
    "AnyRunbook",
    "BadOwn",
    "Change",
    "Check",
    "Clock",
    "CounterName",
    "Earlier",
    "Host",
    "Instant",
    "InterfaceName",
    "NoUndo",
    "Plan",
    "PoolName",
    "Refused",
    "Report",
    "Runbook",
    "ServiceName",
    "Step",
    "Table",
    "TableName",
    "catalogue",
    "last_time",
    "own_digests",
    "tagged",
]
