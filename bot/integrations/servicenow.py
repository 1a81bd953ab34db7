"""ServiceNow: a change request and its affected configuration items.

Dates of the Table API are in UTC unless display values are requested.
Source: https://www.servicenow.com/docs/r/api-reference/rest-apis/c_TableAPI.html
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from bot.integrations.ticket_connection import TicketConnection, TicketError
from bot.model.tickets import TicketAnswer, parse_hosts, parse_window_time

_TABLES = "/api/now/table"
_FIELDS = "sys_id,number,state,approval,start_date,end_date,cmdb_ci.name"


def read_ticket(connection: TicketConnection, key: str, host: str) -> TicketAnswer:
    """Return the ticket. host: not used, since the change request lists its items."""
    del host
    change = _get_change(connection, key)
    affected = _query(connection, "task_ci", f"task={change['sys_id']}", "ci_item.name", 1000)
    names = [change.get("cmdb_ci.name") or "", *(one["ci_item.name"] for one in affected)]
    state, approval = change["state"], change["approval"]
    return TicketAnswer(
        key=change["number"],
        state=f"{state} ({approval})"[:100],
        is_approved=approval == "approved" and connection.system.is_approved_state(state),
        starts_at=_read_time(change, "start_date"),
        ends_at=_read_time(change, "end_date"),
        hosts=parse_hosts(names),
    )


def add_note(connection: TicketConnection, key: str, text: str, note_id: str) -> None:
    """Add a work note. It has no id: after a lost answer there may be two."""
    del note_id
    change = _get_change(connection, key)
    path = f"{_TABLES}/change_request/{change['sys_id']}?sysparm_fields=number"
    connection.send("PATCH", path, {"work_notes": text})


def _get_change(connection: TicketConnection, key: str) -> Mapping[str, Any]:
    found = _query(connection, "change_request", f"number={key}", _FIELDS, 1)
    if not found:
        raise TicketError("there is no such change request, or the user may not read it")
    return found[0]


def _query(connection: TicketConnection, table: str, query: str, fields: str, limit: int) -> Any:
    parameters = {"query": query, "fields": fields, "limit": limit, "display_value": "false"}
    values = {f"sysparm_{name}": value for name, value in parameters.items()}
    return connection.send("GET", f"{_TABLES}/{table}?{urlencode(values)}")["result"]


def _read_time(change: Mapping[str, Any], name: str) -> int | None:
    if not change[name]:
        raise ValueError(f"its {name} is empty")
    return parse_window_time(f"{change[name]}+00:00")
