"""The ticket systems that tickets.yaml can name: ask about a ticket, and add a note to it.

Sources: https://developer.atlassian.com/server/jira/platform/rest/v10000/api-group-issue/,
https://www.servicenow.com/docs/r/api-reference/rest-apis/c_TableAPI.html, and for the signature of
the generic service https://www.standardwebhooks.com
"""

import base64
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode
from uuid import uuid4

from bot.integrations import safe_http
from bot.integrations.safe_http import DeliveryError
from bot.integrations.webhook_signature import build_signature_headers, parse_secret
from bot.model.text import escape_to_one_line
from bot.model.tickets import TicketAnswer, parse_hosts, parse_window_time
from bot.policy.tickets import TicketSystem
from connectors.permissions import find_reader

# Larger than the ticket with the longest list of hosts that is plausible.
_MAX_BYTES = 1024 * 1024
_NOT_FOUND = 404
# What parsing an answer of another shape raises.
_SHAPE_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError)
_SERVICENOW_TABLES = "/api/now/table"
_SERVICENOW_FIELDS = "sys_id,number,state,approval,start_date,end_date,cmdb_ci.name"


class TicketError(Exception):
    """The ticket system cannot be asked, or does not know the ticket. The message says why."""


class TicketConnection:
    """Sends JSON to the system that tickets.yaml names."""

    def __init__(self, system: TicketSystem) -> None:
        self.system = system

    def read_ticket(self, key: str, host: str) -> TicketAnswer:
        """Return the ticket. host: of the change, for systems that list no hosts."""
        raise NotImplementedError

    def add_note(self, key: str, text: str, note_id: str) -> None:
        """Add a note. note_id: the same for each attempt."""
        raise NotImplementedError

    def read_secret(self) -> str:
        """Return the secret. Raises TicketError."""
        path = Path(self.system.secret_file)
        try:
            if problem := find_reader(path):
                raise TicketError(f"tickets.yaml: secret_file: {problem}")
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TicketError(f"tickets.yaml: cannot read secret_file {path}: {error}") from None

    def build_login(self) -> dict[str, str]:
        """Return the header that authenticates by user and password, or by token."""
        secret = self.read_secret()
        if not self.system.user:
            return {"Authorization": f"Bearer {secret}"}
        pair = base64.b64encode(f"{self.system.user}:{secret}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request and return the JSON of its answer; None for an empty one.

        Raises DeliveryError, and TicketError for an answer that is not JSON.
        """
        content = json.dumps(body).encode() if isinstance(body, Mapping) else body or b""
        answer = safe_http.request(
            method,
            f"{self.system.url}{path}",
            content,
            dict(self.build_login() if headers is None else headers),
            private=self.system.private,
            max_bytes=_MAX_BYTES,
        )
        try:
            return json.loads(answer) if answer.strip() else None
        except (ValueError, RecursionError):
            raise TicketError("its answer is not JSON") from None


class GenericTickets(TicketConnection):
    """Any system, by a signed POST that a few lines of a gateway answer: see docs/tickets.md."""

    def read_ticket(self, key: str, host: str) -> TicketAnswer:
        question = {"type": "ticket", "ticket": key, "hosts": [host]}
        found = self._post(question, str(uuid4()))
        hosts = found["hosts"]
        return TicketAnswer(
            key=found["ticket"],
            state=str(found["state"])[:100],
            is_approved=found["approved"] is True,
            starts_at=parse_window_time(found.get("starts_at")),
            ends_at=parse_window_time(found.get("ends_at")),
            hosts=None if hosts is None else parse_hosts(hosts),
        )

    def add_note(self, key: str, text: str, note_id: str) -> None:
        self._post({"type": "note", "ticket": key, "text": text}, note_id)

    def _post(self, content: dict[str, Any], message_id: str) -> Any:
        try:
            secret = parse_secret(self.read_secret())
        except ValueError as error:
            raise TicketError(f"tickets.yaml: the secret is not valid: {error}") from None
        body = json.dumps(content).encode()
        headers = build_signature_headers(secret, message_id, body, timestamp=int(time.time()))
        return self.send("POST", "", body, headers)


class JiraTickets(TicketConnection):
    """Jira: an issue whose fields hold the window and the hosts."""

    def read_ticket(self, key: str, host: str) -> TicketAnswer:
        del host  # the issue lists its hosts
        names = self.system.fields
        wanted = ",".join(["status", *names.values()])
        issue = self.send("GET", f"/rest/api/2/issue/{quote(key)}?fields={quote(wanted)}")
        values, state = issue["fields"], issue["fields"]["status"]["name"]
        return TicketAnswer(
            key=issue["key"],
            state=str(state)[:100],
            is_approved=self.system.is_approved_state(state),
            starts_at=_read_jira_time(names, values, "starts_at"),
            ends_at=_read_jira_time(names, values, "ends_at"),
            hosts=parse_hosts(_list_names(values[names["hosts"]])) if "hosts" in names else None,
        )

    def add_note(self, key: str, text: str, note_id: str) -> None:
        """Add a comment. Jira has no ids for them: after a lost answer there may be two."""
        del note_id
        self.send("POST", f"/rest/api/2/issue/{quote(key)}/comment", {"body": text})


def _read_jira_time(names: Mapping[Any, str], values: Mapping[str, Any], name: str) -> int | None:
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


class ServiceNowTickets(TicketConnection):
    """ServiceNow: a change request and its affected configuration items.

    Dates of the Table API are in UTC unless display values are requested.
    """

    def read_ticket(self, key: str, host: str) -> TicketAnswer:
        del host  # the change request lists its items
        change = self._get_change(key)
        affected = self._query("task_ci", f"task={change['sys_id']}", "ci_item.name", 1000)
        names = [change.get("cmdb_ci.name") or "", *(one["ci_item.name"] for one in affected)]
        state, approval = change["state"], change["approval"]
        return TicketAnswer(
            key=change["number"],
            state=f"{state} ({approval})"[:100],
            is_approved=approval == "approved" and self.system.is_approved_state(state),
            starts_at=_read_servicenow_time(change, "start_date"),
            ends_at=_read_servicenow_time(change, "end_date"),
            hosts=parse_hosts(names),
        )

    def add_note(self, key: str, text: str, note_id: str) -> None:
        """Add a work note. It has no id: after a lost answer there may be two."""
        del note_id
        change = self._get_change(key)
        path = f"{_SERVICENOW_TABLES}/change_request/{change['sys_id']}?sysparm_fields=number"
        self.send("PATCH", path, {"work_notes": text})

    def _get_change(self, key: str) -> Mapping[str, Any]:
        found = self._query("change_request", f"number={key}", _SERVICENOW_FIELDS, 1)
        if not found:
            raise TicketError("there is no such change request, or the user may not read it")
        return found[0]

    def _query(self, table: str, query: str, fields: str, limit: int) -> Any:
        parameters = {"query": query, "fields": fields, "limit": limit, "display_value": "false"}
        values = {f"sysparm_{name}": value for name, value in parameters.items()}
        return self.send("GET", f"{_SERVICENOW_TABLES}/{table}?{urlencode(values)}")["result"]


def _read_servicenow_time(change: Mapping[str, Any], name: str) -> int | None:
    if not change[name]:
        raise ValueError(f"its {name} is empty")
    return parse_window_time(f"{change[name]}+00:00")


_CONNECTIONS: Mapping[str, type[TicketConnection]] = {
    "generic": GenericTickets,
    "jira": JiraTickets,
    "servicenow": ServiceNowTickets,
}


def ask_ticket(system: TicketSystem, key: str, host: str) -> TicketAnswer:
    """Return what the system says of a ticket now. Raises TicketError."""
    try:
        answer = _CONNECTIONS[system.system](system).read_ticket(key, host)
    except DeliveryError as error:
        if error.status == _NOT_FOUND:
            raise TicketError(f"The ticket system has no ticket {key}") from None
        raise TicketError(f"Cannot ask the ticket system about {key}: {error}") from None
    except TicketError as error:
        raise TicketError(f"Cannot ask the ticket system about {key}: {error}") from None
    except _SHAPE_ERRORS as error:
        what = escape_to_one_line(str(error))[:200]
        raise TicketError(
            f"The answer of the ticket system about {key} is not as expected: {what}"
        ) from None
    if answer.key.casefold() != key.casefold():
        raise TicketError(f"The ticket system answered about {answer.key} instead of {key}")
    return answer


def add_note(system: TicketSystem, key: str, text: str, *, note_id: str) -> None:
    """Add a note to a ticket. note_id: the same for each attempt. Raises DeliveryError."""
    try:
        _CONNECTIONS[system.system](system).add_note(key, text, note_id)
    except TicketError as error:
        raise DeliveryError(str(error)) from None
    except _SHAPE_ERRORS:
        raise DeliveryError("the answer of the ticket system is not as expected") from None
