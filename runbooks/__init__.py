"""Runbooks: one module for each. Modules with a leading "_" are the API for their authors."""

from runbooks._catalogue import (
    list_own_digests,
    list_pending_words,
    load_catalogue,
    load_usable_catalogue,
    set_enabled_source,
)
from runbooks._clock import Clock
from runbooks._earlier_report import EarlierReport, query_earlier_report
from runbooks._fields import (
    Address,
    AgentName,
    BondName,
    CounterName,
    DatasetName,
    Host,
    Instant,
    InterfaceName,
    PoolName,
    ServiceName,
    TableName,
    make_host_field,
)
from runbooks._odd_rows import OddRowRefused, read_plan, read_report
from runbooks._own import enable_all
from runbooks._own_files import OwnFile, OwnRunbookError, read_own_files
from runbooks._parts import PartReader
from runbooks._plan import Leg, NoUndo, Plan, Refused, Report, Step, Table
from runbooks._probation import put_on_probation
from runbooks._runbook import AnyRunbook, Change, Check, Runbook

__all__ = [
    "Address",
    "AgentName",
    "AnyRunbook",
    "BondName",
    "Change",
    "Check",
    "Clock",
    "CounterName",
    "DatasetName",
    "EarlierReport",
    "Host",
    "Instant",
    "InterfaceName",
    "Leg",
    "NoUndo",
    "OddRowRefused",
    "OwnFile",
    "OwnRunbookError",
    "PartReader",
    "Plan",
    "PoolName",
    "Refused",
    "Report",
    "Runbook",
    "ServiceName",
    "Step",
    "Table",
    "TableName",
    "enable_all",
    "list_own_digests",
    "list_pending_words",
    "load_catalogue",
    "load_usable_catalogue",
    "make_host_field",
    "put_on_probation",
    "query_earlier_report",
    "read_own_files",
    "read_plan",
    "read_report",
    "set_enabled_source",
]
