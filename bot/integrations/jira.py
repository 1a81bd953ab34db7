"""Jira: an issue whose fields hold the window and the hosts.

Source: https://developer.atlassian.com/server/jira/platform/rest/v10000/api-group-issue/
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from bot.integrations.ticket_connection import TicketConnection
from bot.model.tickets import TicketAnswer, parse_hosts, parse_window_time


def read_ticket(connection: TicketConnection, key: str, host: str) -> TicketAnswer:
    """Return the ticket. host: not used, since the issue lists its hosts."""
    del host
    names = connection.system.fields
    wanted = ",".join(["status", *names.values()])
    issue = connection.send("GET", f"/rest/api/2/issue/{quote(key)}?fields={quote(wanted)}")
    values, state = issue["fields"], issue["fields"]["status"]["name"]
    return TicketAnswer(
        key=issue["key"],
        state=str(state)[:100],
        is_approved=connection.system.is_approved_state(state),
        starts_at=_read_time(names, values, "starts_at"),
        ends_at=_read_time(names, values, "ends_at"),
        hosts=parse_hosts(_list_names(values[names["hosts"]])) if "hosts" in names else None,
    )


def add_note(connection: TicketConnection, key: str, text: str, note_id: str) -> None:
    """Add a comment. Jira has no ids for them: after a lost answer there may be two."""
    del note_id
    connection.send("POST", f"/rest/api/2/issue/{quote(key)}/comment", {"body": text})


def _read_time(names: Mapping[Any, str], values: Mapping[str, Any], name: str) -> int | None:
    if name not in names:
        return None
    if not values[names[name]]:
        raise ValueError(f"its field {names[name]} is empty")
    return parse_window_time(values[names[name]])


def _list_names(value: object) -> Sequence[str]:
    """Return the names in a field: a text, labels, or options and assets with a name."""
    if isinstance(value, str):
        return value.replace(",", " ").split()
    if not isinstance(value, list):
        return ()
    items = cast("list[str | dict[str, str]]", value)
    return [one if isinstance(one, str) else one.get("name") or one["value"] for one in items]
