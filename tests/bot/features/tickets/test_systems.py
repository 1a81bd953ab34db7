"""Each kind of ticket system over HTTP, with answers from its documentation."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from bot.features.tickets.systems import TicketError, add_note, ask_ticket
from bot.integrations.safe_http import DeliveryError
from bot.model.tickets import TicketAnswer
from bot.policy.tickets import TicketSystem
from tests.ticket_system import TicketServer, open_ticket_server, write_secret

# 2026-11-25 22:00 UTC in microseconds, and two hours later.
STARTS, ENDS = 1_795_644_000_000_000, 1_795_651_200_000_000
ISSUE: dict[str, Any] = {
    "id": "10002",
    "key": "OPS-7",
    "self": "https://jira.example.com/rest/api/2/issue/10002",
    "fields": {
        "status": {"name": "Approved", "id": "10100", "statusCategory": {"key": "indeterminate"}},
        "customfield_10101": "2026-11-25T23:00:00.000+0100",
        "customfield_10102": "2026-11-26T01:00:00.000+0100",
        "labels": ["LB2", "lb1.example.com"],
    },
}
CHANGE = {
    "sys_id": "c83c5e5347c12200e0ef563dbb9a7190",
    "number": "CHG0030001",
    "state": "-2",
    "approval": "approved",
    "start_date": "2026-11-25 22:00:00",
    "end_date": "2026-11-26 00:00:00",
    "cmdb_ci.name": "lb1",
}
AFFECTED = [{"ci_item.name": "LB2"}, {"ci_item.name": "lb1"}]


@pytest.fixture
def server() -> Generator[TicketServer]:
    with open_ticket_server() as server:
        yield server


@pytest.fixture
def generic(server: TicketServer, tmp_path: Path) -> TicketSystem:
    return build_ticket_system(server, tmp_path, "generic")


@pytest.fixture
def jira(server: TicketServer, tmp_path: Path) -> TicketSystem:
    server.answers = {"/rest/api/2/issue/OPS-7": ISSUE, "": {}}
    fields = {
        "starts_at": "customfield_10101",
        "ends_at": "customfield_10102",
        "hosts": "labels",
    }
    return build_ticket_system(server, tmp_path, "jira", approved=["approved"], fields=fields)


@pytest.fixture
def servicenow(server: TicketServer, tmp_path: Path) -> TicketSystem:
    server.answers = {
        "/api/now/table/change_request": {"result": [CHANGE]},
        "/api/now/table/task_ci": {"result": AFFECTED},
        "": {"result": {"number": "CHG0030001"}},
    }
    return build_ticket_system(
        server, tmp_path, "servicenow", approved=["-2", "-1"], user="keyturn"
    )


def build_ticket_system(
    server: TicketServer, tmp_path: Path, system: str, **more: Any
) -> TicketSystem:
    secret = str(write_secret(tmp_path))
    given = {"system": system, "url": server.url, "secret_file": secret, "private": True}
    return TicketSystem.model_validate({**given, **more})


def test_generic_ticket_system_is_queried_by_a_signed_post(
    server: TicketServer, generic: TicketSystem
):
    answer = ask_ticket(generic, "CHG1", "lb1")
    assert (answer.key, answer.state, answer.is_approved) == ("CHG1", "scheduled", True)
    assert answer.hosts == ("lb1", "lb2")
    [sent] = server.sent
    # The server has checked its signature.
    assert sent.headers["webhook-signature"].startswith("v1,")
    assert sent.body == {"type": "ticket", "ticket": "CHG1", "hosts": ["lb1"]}


def test_ticket_note_has_the_same_id_at_each_attempt(server: TicketServer, generic: TicketSystem):
    for _ in range(2):
        add_note(generic, "CHG1", "it began", note_id="ticket notes-7")
    assert [one.headers["webhook-id"] for one in server.sent] == ["ticket notes-7"] * 2
    assert server.sent[0].body == {"type": "note", "ticket": "CHG1", "text": "it began"}


def test_jira_issue_has_its_window_and_hosts_in_fields(server: TicketServer, jira: TicketSystem):
    assert ask_ticket(jira, "OPS-7", "lb1") == TicketAnswer(
        "OPS-7", "Approved", True, STARTS, ENDS, ("lb1", "lb2")
    )
    add_note(jira, "OPS-7", "it began", note_id="1")
    question, note = server.sent
    assert question.path.endswith(
        "?fields=status%2Ccustomfield_10101%2Ccustomfield_10102%2Clabels"
    )
    assert question.headers["authorization"].startswith("Bearer a-secret")
    assert (note.method, note.path) == ("POST", "/rest/api/2/issue/OPS-7/comment")
    assert note.body == {"body": "it began"}


def test_servicenow_change_request_covers_its_configuration_items(
    server: TicketServer, servicenow: TicketSystem
):
    assert ask_ticket(servicenow, "CHG0030001", "lb1") == TicketAnswer(
        "CHG0030001", "-2 (approved)", True, STARTS, ENDS, ("lb1", "lb2")
    )
    add_note(servicenow, "CHG0030001", "it began", note_id="1")
    assert "sysparm_query=number%3DCHG0030001" in server.sent[0].path
    assert server.sent[0].headers["authorization"].startswith("Basic ")
    assert (server.sent[-1].method, server.sent[-1].body) == ("PATCH", {"work_notes": "it began"})
    assert CHANGE["sys_id"] in server.sent[-1].path


@pytest.mark.parametrize(
    ("state", "approval", "approved"),
    [("-2", "approved", True), ("-5", "approved", False), ("-2", "requested", False)],
)
def test_servicenow_change_needs_state_and_approval_to_be_approved(
    server: TicketServer, servicenow: TicketSystem, state: str, approval: str, approved: bool
):
    change = {**CHANGE, "state": state, "approval": approval}
    server.answers["/api/now/table/change_request"] = {"result": [change]}
    assert ask_ticket(servicenow, "CHG0030001", "lb1").is_approved is approved


@pytest.mark.parametrize(
    ("status", "answer", "says"),
    [
        (404, {}, "The ticket system has no ticket CHG1"),
        (500, {}, "Cannot ask the ticket system about CHG1: it returned status 500"),
        (302, {}, "it returned status 302"),
        (200, b"<html>", "Cannot ask the ticket system about CHG1: its answer is not JSON"),
        (200, b"", "is not as expected"),
        (200, [], "is not as expected"),
        (200, {"ticket": "CHG1"}, "is not as expected"),
        (200, b"[" * 100_000, "its answer is not JSON"),
        (200, b'"' + b"x" * 1_100_000 + b'"', "its response is longer than"),
    ],
)
def test_unreachable_ticket_system_raises_an_error_with_the_reason(
    server: TicketServer, generic: TicketSystem, status: int, answer: Any, says: str
):
    server.status, server.answers[""] = status, answer
    with pytest.raises(TicketError, match=says):
        ask_ticket(generic, "CHG1", "lb1")


@pytest.mark.parametrize(
    "changed",
    [
        {"ticket": "CHG2"},
        {"starts_at": "2026-11-25T22:00:00"},
        {"ends_at": "tomorrow"},
        {"hosts": 7},
    ],
)
def test_ticket_answer_of_another_ticket_or_without_a_zone_is_rejected(
    server: TicketServer, generic: TicketSystem, changed: dict[str, Any]
):
    server.say(**changed)
    with pytest.raises(TicketError):
        ask_ticket(generic, "CHG1", "lb1")


@pytest.mark.parametrize("approved", ["true", 1, None, False])
def test_only_the_json_value_true_approves_a_ticket(
    server: TicketServer, generic: TicketSystem, approved: object
):
    server.say(approved=approved)
    assert not ask_ticket(generic, "CHG1", "lb1").is_approved


def test_empty_window_of_a_jira_issue_is_an_error(server: TicketServer, jira: TicketSystem):
    fields = {**ISSUE["fields"], "customfield_10102": None}
    server.answers["/rest/api/2/issue/OPS-7"] = {**ISSUE, "fields": fields}
    with pytest.raises(TicketError, match="customfield_10102 is empty"):
        ask_ticket(jira, "OPS-7", "lb1")


def test_missing_servicenow_change_request_is_an_error(
    server: TicketServer, servicenow: TicketSystem
):
    server.answers["/api/now/table/change_request"] = {"result": []}
    with pytest.raises(TicketError, match="there is no such change request"):
        ask_ticket(servicenow, "CHG9", "lb1")


def test_ticket_secret_that_others_can_read_is_not_used(
    server: TicketServer, generic: TicketSystem, tmp_path: Path
):
    (tmp_path / "ticket-secret").chmod(0o644)
    with pytest.raises(TicketError, match="secret_file"):
        ask_ticket(generic, "CHG1", "lb1")
    (tmp_path / "ticket-secret").unlink()
    with pytest.raises(DeliveryError, match="cannot read secret_file"):
        add_note(generic, "CHG1", "it began", note_id="1")
    assert server.sent == []
