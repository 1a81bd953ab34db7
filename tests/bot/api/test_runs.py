"""Runs over the API: requested, found, decided, undone; and the change log."""

import hashlib
import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from bot.audit import change_log, verification
from bot.audit.event_type import UnknownEvent
from bot.model.run import State
from tests.bot.api.conftest import API, ApiHarness
from tests.bot.bogus_entry import add_bogus_entry
from tests.bot.web.sample_runs import add_requested_run, add_sample_runs
from tests.policies import INVENTORY
from tests.ticket_system import require_unreachable_tickets
from tests.toy import SetSwitch

LAMP = {"request": "toy set lb1 lamp on", "reason": "it is dark"}


def _request_run(
    api_harness: ApiHarness, program: TestClient, body: dict[str, Any]
) -> dict[str, Any]:
    answer = program.post("/runs", json=body)
    assert answer.status_code == 202, answer.text
    api_harness.harness.run_queued_work()
    return program.get(answer.headers["location"].removeprefix(API)).json()


def test_api_request_is_approved_executed_and_verified(api_harness: ApiHarness):
    dora, olga = api_harness.program("dora", "request"), api_harness.program("olga", "approve")
    run = _request_run(api_harness, dora, LAMP)
    assert (run["state"], run["source"], run["missing_approvals"]) == ("pending", "api", 1)
    assert run["approvals_from"] == "the owners of the edge"
    assert run["approvers"] == ["adam", "olga"]
    [step] = run["plan"]["steps"]
    assert (step["command"], step["undo"], step["state"]) == ("set lamp on", "set lamp off", None)

    answer = olga.post(f"/runs/{run['id']}/approve", json={"digest": run["digest"][:10]})
    assert (answer.status_code, answer.json()["state"]) == (200, "queued")
    api_harness.harness.run_queued_work()
    done = dora.get(f"/runs/{run['id']}").json()
    assert (done["state"], done["approved_by"]) == ("succeeded", ["olga"])
    assert done["plan"]["steps"][0]["output"].strip() == "lamp is on now"
    assert [entry["kind"] for entry in done["entries"]][:4] == [
        "requested",
        "planned",
        "token used",
        "approved",
    ]
    assert done["entries"][2]["details"]["action"] == "approve"


def test_plan_document_is_returned_with_the_texts_that_its_hashes_are_of(api_harness: ApiHarness):
    dora = api_harness.program("dora", "request")
    run = _request_run(api_harness, dora, LAMP)
    plan = dora.get(f"/runs/{run['id']}/document").json()
    [section] = plan["sections"]
    assert _hash(plan["document"]) == plan["digest"] == run["digest"]
    assert _hash(section["text"]) == section["sha256"]
    fingerprint = run["plan"]["steps"][0]["fingerprint"]
    assert plan["document"].endswith(f"\nhost lb1 {section['sha256']} {fingerprint}\n")
    check = _request_run(api_harness, dora, {"request": "toy show lb1"})
    refused = dora.get(f"/runs/{check['id']}/document")
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        f"Run {check['id']} has no plan: only a change that was planned has one",
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_api_request_takes_a_ticket_where_a_rule_requires_one(api_harness: ApiHarness):
    require_unreachable_tickets(api_harness.harness.policies.path)
    dora = api_harness.program("dora", "request")
    answer = dora.post("/runs", json=LAMP)
    assert answer.status_code == 422, answer.text
    assert "requires an approved change ticket" in answer.json()["detail"]
    run = _request_run(api_harness, dora, {**LAMP, "ticket": "CHG7"})
    assert (run["ticket"], run["state"]) == ("CHG7", "refused")
    plan = dora.post("/plans", json={**LAMP, "ticket": "CHG8"}).json()
    assert plan["ticket"] == "CHG8"


def test_api_question_answer_and_reassignment_are_part_of_the_run(api_harness: ApiHarness):
    dora, olga = api_harness.program("dora", "request"), api_harness.program("olga", "approve")
    run = _request_run(api_harness, dora, LAMP)
    assert (run["questions"], run["assigned_to"]) == ([], None)
    at = f"/runs/{run['id']}"
    assert dora.post(f"{at}/question", json={"text": "why?"}).status_code == 403
    assert olga.post(f"{at}/question", json={"text": "which ticket?"}).status_code == 200
    assert dora.post(f"{at}/answer", json={"text": "4711"}).status_code == 200
    assert dora.post(f"{at}/answer", json={"text": "4711"}).status_code == 409
    unknown = olga.post(f"{at}/reassign", json={"person": "stan"})
    assert (unknown.status_code, "Adam Admin (adam)" in unknown.json()["detail"]) == (422, True)
    after = olga.post(f"{at}/reassign", json={"person": "adam", "reason": "yours"}).json()
    assert (after["state"], after["assigned_to"]) == ("pending", "adam")
    questions = [(one["person"], one["text"], one["is_answer"]) for one in after["questions"]]
    assert questions == [("olga", "which ticket?", False), ("dora", "4711", True)]


def test_repeated_refused_decisions_add_one_change_log_entry_each(api_harness: ApiHarness):
    """Nor by what is too late, or of another plan; by which token is told with what it did."""
    run = _request_run(api_harness, api_harness.program("dora", "request"), LAMP)
    at = f"/runs/{run['id']}"
    stan = api_harness.program("stan", "approve")
    for _ in range(20):
        assert stan.post(f"{at}/approve", json={"digest": run["digest"]}).status_code == 403
        assert stan.post(f"{at}/approve", json={"digest": "0" * 64}).status_code == 409
        assert stan.post(f"{at}/deny", json={"reason": "not now"}).status_code == 403
    assert api_harness.harness.list_entry_kinds(api_harness.harness.get_run(run["id"])) == [
        "requested",
        "planned",
        "token used",
        "approval refused",
        "token used",
        "denial refused",
    ]
    olga = api_harness.program("olga", "approve")
    assert olga.post(f"{at}/approve", json={"digest": run["digest"]}).status_code == 200
    for _ in range(3):
        assert olga.post(f"{at}/approve", json={"digest": run["digest"]}).status_code == 409
    assert api_harness.harness.list_entry_kinds(api_harness.harness.get_run(run["id"]))[6:] == [
        "token used",
        "approved",
    ]


def test_api_request_on_several_hosts_creates_child_runs(api_harness: ApiHarness):
    body = {"runbook": "toy set", "values": {"host": "lb*", "name": "lamp", "value": "on"}}
    run = _request_run(api_harness, api_harness.program("dora", "request"), body)
    assert run["hosts"] == ["lb1", "lb2"]
    assert [part["host"] for part in run["child_runs"]] == ["lb1", "lb2"]
    assert len(run["plan"]["steps"]) == 2


def test_api_plan_has_approvers_and_is_requested_by_its_digest(api_harness: ApiHarness):
    program = api_harness.program("dora", "request")
    plan = program.post("/plans", json=LAMP | {"reason": "it is dark"}).json()
    api_harness.harness.run_queued_work()
    plan = program.get(f"/runs/{plan['id']}").json()
    assert (plan["state"], plan["approvers"]) == ("planned", ["adam", "olga"])
    assert [step["after"] for step in plan["plan"]["steps"]] == ["on"]
    assert program.get("/runs").json()["runs"] == []
    assert api_harness.harness.fleet.sent == []
    body = {"digest": plan["digest"]}
    assert program.post(f"/runs/{plan['id']}/request", json=body).json()["state"] == "pending"
    assert program.post(f"/runs/{plan['id']}/request", json=body).status_code == 409


def test_api_policy_preview_returns_needed_approvals(api_harness: ApiHarness):
    program = api_harness.program("olga")
    mine = program.get("/policy/preview", params={"request": "toy set lb1"}).json()
    assert mine["sentences"][0] == "Runs immediately, no approval needed."
    several = program.get("/policy/preview", params={"request": "toy set lb2,lb1 lamp on"}).json()
    assert [answer["hosts"] for answer in several["areas"]] == [["lb2", "lb1"]]
    other = program.get("/policy/preview", params={"request": "toy set lb1", "person": "dora"})
    assert other.json()["areas"][0]["required_approvals"] == 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"request": "toy zet lb1 lamp on"}, "Did you mean"),
        ({"request": "toy set lb9 lamp on"}, "no host 'lb9' in the inventory: did you mean lb1"),
        ({"request": "toy set lb1"}, "name"),
        ({"runbook": "toy set", "values": {"hosst": "lb1"}}, "unknown field"),
        ({}, "give either request"),
        (LAMP | {"runbook": "toy set"}, "give either request"),
        (LAMP | {"force": True}, "force"),
        ({"request": "toy set lb1 lamp on\u202e"}, "invisible character"),
        ({"request": 12}, "must be text"),
    ],
)
def test_invalid_api_request_is_refused_with_an_explanation(
    api_harness: ApiHarness, body: dict[str, Any], says: str
):
    answer = api_harness.program("dora", "request").post("/runs", json=body)
    assert answer.status_code == 422
    assert says.lower() in answer.json()["detail"].lower()
    assert "requested" not in api_harness.harness.list_entry_kinds()


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain"])
def test_api_request_without_json_content_type_is_refused(api_harness: ApiHarness, kind: str):
    program = api_harness.program("dora", "request")
    answer = program.post("/runs", content=json.dumps(LAMP), headers={"Content-Type": kind})
    assert answer.status_code == 422
    assert (
        answer.json()["detail"] == "body: must be JSON, sent with Content-Type: application/json"
    )


def test_unknown_api_field_and_short_digest_are_explained(api_harness: ApiHarness):
    run = api_harness.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    olga = api_harness.program("olga", "request", "approve")
    strange = olga.post("/runs", json=LAMP | {"because": "x"}).json()
    (problem,) = strange["problems"].items()
    assert problem[0] == "because"
    assert problem[1].startswith("is an unknown field: use ")
    assert {"request", "runbook", "values", "reason"} <= set(
        problem[1].split("use ")[1].split(", ")
    )
    short = olga.post(f"/runs/{run.id}/approve", json={"digest": "0000"}).json()
    assert short["detail"].startswith("digest: must be at least the first ten hex digits")


def test_invalid_api_value_is_reported_by_its_field(api_harness: ApiHarness):
    body = {"runbook": "toy tune", "values": {"host": "lb1", "switch": "lamp", "value": "dim"}}
    answer = api_harness.program("dora", "request").post("/runs", json=body)
    assert answer.status_code == 422
    assert "value" in answer.json()["problems"]


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_time_that_is_in_no_year_in_utc_is_refused(api_harness: ApiHarness, at: str):
    dora, olga = api_harness.program("dora", "request"), api_harness.program("olga", "approve")
    run = _request_run(api_harness, dora, LAMP)
    body = {"digest": run["digest"], "start_at": at}
    answer = olga.post(f"/runs/{run['id']}/approve", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"] == "start_at: must be between the years 1 and 9999 in UTC"


def test_api_denial_needs_a_reason_and_names_who_denied(api_harness: ApiHarness):
    run = api_harness.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    program = api_harness.program("olga", "approve")
    for reason in ({}, {"reason": ""}, {"reason": " "}):
        assert program.post(f"/runs/{run.id}/deny", json=reason).status_code == 422
    response = program.post(f"/runs/{run.id}/deny", json={"reason": "no"})
    assert response.json()["summary"] == "Olga Owner denied it: no"
    late = api_harness.program("adam", "approve").post(
        f"/runs/{run.id}/deny", json={"reason": "no"}
    )
    assert late.status_code == 409
    assert "was denied by Olga Owner" in late.json()["detail"]


def test_requester_cannot_approve_their_own_run_by_a_token(api_harness: ApiHarness):
    program = api_harness.program("adam", "request", "approve")
    run = _request_run(api_harness, program, {"request": "toy break lb1 lamp"})
    answer = program.post(f"/runs/{run['id']}/approve", json={"digest": run["digest"]})
    assert answer.status_code == 403
    assert "you requested it" in answer.json()["detail"]
    assert api_harness.harness.get_run(run["id"]).state is State.PENDING


def test_api_withdraws_stops_and_undoes_runs(api_harness: ApiHarness):
    dora, olga = api_harness.program("dora", "request"), api_harness.program("olga", "approve")
    first = _request_run(api_harness, dora, LAMP)
    assert dora.post(f"/runs/{first['id']}/withdraw").json()["state"] == "withdrawn"
    second = _request_run(api_harness, dora, LAMP)
    stopped = dora.post(f"/runs/{second['id']}/stop", json={"reason": "wrong lamp"})
    assert stopped.json()["state"] == "stopped"
    third = _request_run(api_harness, dora, LAMP)
    olga.post(f"/runs/{third['id']}/approve", json={"digest": third["digest"]})
    api_harness.harness.run_queued_work()
    undone = dora.post(f"/runs/{third['id']}/undo", json={})
    assert (undone.status_code, undone.json()["undo_of"]) == (202, third["id"])
    assert undone.headers["location"] == f"{API}/runs/{undone.json()['id']}"


def test_api_requests_an_ended_run_again_for_the_caller(api_harness: ApiHarness):
    dora, adam = api_harness.program("dora", "request"), api_harness.program("adam", "request")
    first = _request_run(api_harness, dora, LAMP)
    number = first["id"]
    no = adam.post(f"/runs/{number}/again", json={})
    assert (no.status_code, no.json()["detail"]) == (
        422,
        f"Run {number} has not ended: it is pending",
    )
    dora.post(f"/runs/{number}/withdraw")
    answer = adam.post(f"/runs/{number}/again", json={"reason": "still dark"})
    again = answer.json()["run"]
    assert (answer.status_code, again["state"]) == (202, "planning")
    assert answer.headers["location"] == f"{API}/runs/{again['id']}"
    assert (again["requested_by"], again["reason"], again["values"]) == (
        "adam",
        "still dark",
        first["values"],
    )


def test_api_requests_a_host_pattern_again_with_its_current_hosts(api_harness: ApiHarness):
    dora = api_harness.program("dora", "request")
    first = _request_run(api_harness, dora, {"request": "toy set lb* lamp on"})
    dora.post(f"/runs/{first['id']}/withdraw")
    more = "  lb3: {area: edge, tags: [haproxy]}\n"
    (api_harness.policy / "inventory.yaml").write_text(INVENTORY + more)
    again = dora.post(f"/runs/{first['id']}/again", json={}).json()["run"]
    assert (again["title"], again["hosts"]) == (first["title"], ["lb1", "lb2", "lb3"])


def test_api_run_pages_return_every_run_once(api_harness: ApiHarness):
    numbers = set(add_sample_runs(api_harness.database).values())
    program = api_harness.program("olga")
    seen: list[int] = []
    address: str | None = "/runs?limit=5"
    while address:
        page = program.get(address.removeprefix(API)).json()
        seen += [run["id"] for run in page["runs"]]
        address = page["next"]
    assert seen == sorted(numbers, reverse=True)


FOUND: list[tuple[dict[str, Any], set[str]]] = [
    ({"state": ["denied", "failed"]}, {"denied", "failed"}),
    ({"state": "needs attention"}, {"checked"}),
    ({"state": ["needs attention", "denied"]}, {"checked", "denied"}),
    ({"state": "succeeded"}, {"succeeded"}),
    ({"state": ["succeeded", "needs attention"]}, {"checked", "succeeded"}),
    ({"person": "adam"}, {"denied"}),
    ({"host": "web1", "state": "planning"}, {"planning"}),
    ({"runbook": "abusers show"}, {"checked"}),
    ({"until": "2001-01-01T00:00:00Z"}, set()),
]


@pytest.mark.parametrize(("query", "kinds"), FOUND)
def test_api_filters_runs_as_the_runs_page_does(
    api_harness: ApiHarness, query: dict[str, Any], kinds: set[str]
):
    numbers = add_sample_runs(api_harness.database)
    runs = api_harness.program("olga").get("/runs", params=query).json()["runs"]
    assert {run["id"] for run in runs} == {numbers[kind] for kind in kinds}
    assert [run["id"] for run in runs if run["needs_attention"]] == [
        numbers[kind] for kind in kinds if kind == "checked"
    ]


@pytest.mark.parametrize(
    "query",
    ["state=odd", "since=5", "since=2026-13-01T00:00:00Z", "limit=0", "who=dora", "before=x"],
)
def test_invalid_api_run_filter_is_refused(api_harness: ApiHarness, query: str):
    answer = api_harness.program("olga").get(f"/runs?{query}")
    assert answer.status_code == 422
    assert answer.json()["problems"]


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ("?state=failed&state=odd", "state"),
        ("?limit=0", "limit"),
    ],
)
def test_invalid_query_parameter_is_reported_by_its_name(
    api_harness: ApiHarness, where: str, place: str
):
    answer = api_harness.program("olga").get(f"/runs{where}").json()
    assert list(answer["problems"]) == [place]
    assert answer["detail"].startswith(f"{place}: ")


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"reason": 7}, "reason"),
        ({"values": {"host": 7}}, "/values/host"),
        ({"values": {"a/b~": 7}}, "/values/a~1b~0"),
        ({"values": {"x" * 101: "on"}}, f"/values/{'x' * 101}"[:100]),
        ({"request": ""}, "body"),
    ],
)
def test_invalid_body_value_is_reported_by_its_json_pointer(
    api_harness: ApiHarness, more: dict[str, Any], place: str
):
    answer = api_harness.program("dora", "request").post("/runs", json=LAMP | more)
    assert list(answer.json()["problems"]) == [place]


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"person": "dorra"}, "has never requested anything: did you mean “dora”?"),
        ({"person": "bob"}, "“bob” is not in the policy, and has never requested anything"),
        (
            {"host": "lb11"},
            "no host “lb11” is in the inventory, and no run was ever requested for it",
        ),
        ({"host": "mail*"}, "no host “mail*” is in the inventory"),
        ({"runbook": "abuser clear"}, "it was never requested: did you mean “abusers clear”?"),
        ({"area": "egde"}, "there is no area “egde”"),
    ],
)
def test_unknown_name_in_a_run_filter_is_reported_as_unknown(
    api_harness: ApiHarness, filters: dict[str, str], message: str
):
    add_sample_runs(api_harness.database)
    body = api_harness.program("olga").get("/runs", params=filters | {"state": "failed"}).json()
    assert body["runs"] == []
    assert list(body["unknown_filters"]) == [*filters]
    assert message in next(iter(body["unknown_filters"].values()))


def test_name_known_to_policy_or_runs_is_a_known_run_filter(api_harness: ApiHarness):
    with api_harness.database.transaction() as tx:
        add_requested_run(tx, person="gone", host="old1", words="abusers forget")
    api_harness.harness.service.ban_person("stan", banned_by="adam", reason="the laptop is stolen")
    program = api_harness.program("olga")
    known = (
        {"person": "stan"},
        {"person": "gone"},
        {"host": "lb2"},
        {"host": "ol*"},
        {"host": "l*"},
    )
    for filters in (*known, {"host": "old1"}, {"runbook": "abusers forget"}, {"area": "edge"}, {}):
        body = program.get("/runs", params=filters | {"state": "denied"}).json()
        assert (body["runs"], body["unknown_filters"]) == ([], {}), filters


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"person": "dorra"}, "not in the log: did you mean “dora”?"),
        ({"host": "lb11"}, "no host “lb11” is in the inventory, and it is not in the log"),
        ({"host": "mail*"}, "no host “mail*” is in the inventory"),
        ({"runbook": "abuser clear"}, "it was never requested: did you mean “abusers clear”?"),
        ({"area": "egde"}, "there is no area “egde”"),
    ],
)
def test_unknown_name_in_a_change_log_filter_is_reported_as_unknown(
    api_harness: ApiHarness, filters: dict[str, str], message: str
):
    add_sample_runs(api_harness.database)
    body = api_harness.program("olga").get("/log", params=filters | {"kind": "fired"}).json()
    assert body["entries"] == []
    assert list(body["unknown_filters"]) == [*filters]
    assert message in next(iter(body["unknown_filters"].values()))


def test_name_known_to_policy_or_change_log_is_a_known_log_filter(api_harness: ApiHarness):
    """Nor whoever never asked for anything, and has only approved or looked on."""
    with api_harness.database.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="approved"), person="gone", host="old1")
        add_requested_run(tx, host="old2", words="abusers forget")
    program = api_harness.program("olga")
    known = ({"person": "gone"}, {"person": "stan"}, {"host": "old1"}, {"host": "ol*"})
    for filters in (*known, {"host": "lb2"}, {"runbook": "abusers forget"}, {"area": "edge"}):
        body = program.get("/log", params=filters | {"kind": "fired"}).json()
        assert (body["entries"], body["unknown_filters"]) == ([], {}), filters


def test_api_returns_runs_in_every_state(api_harness: ApiHarness):
    program = api_harness.program("olga")
    for number in add_sample_runs(api_harness.database).values():
        response = program.get(f"/runs/{number}")
        assert (response.status_code, response.json()["id"]) == (200, number)


def test_api_pages_and_verifies_the_change_log(api_harness: ApiHarness):
    with api_harness.database.transaction() as tx:
        verification.open_log(tx)
    add_sample_runs(api_harness.database)
    program = api_harness.program("olga")
    page = program.get("/log?limit=3").json()
    older = program.get(page["next"].removeprefix(API)).json()
    assert older["entries"][0]["seq"] == page["entries"][-1]["seq"] - 1
    verdict = program.post("/log/verify").json()
    assert (verdict["broken"], verdict["entries"]) == (None, page["head_seq"])
    assert verdict["root"] == page["head_root"]


def test_api_lists_runbook_fields_and_hosts_with_owners(api_harness: ApiHarness):
    program = api_harness.program("dora")
    [runbook] = program.get("/runbooks?prefix=toy set all").json()["runbooks"]
    assert [field["name"] for field in runbook["fields"]] == ["host", "value"]
    assert runbook["usage"] == "toy set all HOST VALUE"
    hosts = program.get("/hosts?tag=haproxy").json()["hosts"]
    assert [host["name"] for host in hosts] == ["lb1", "lb2"]
    assert hosts[0]["owners"] == ["olga", "adam"]
    assert "keys/" not in program.get("/hosts").text


def test_api_says_which_entry_of_the_change_log_is_not_ours(api_harness: ApiHarness):
    program = api_harness.program("dora", "request")
    says = add_bogus_entry(api_harness.database)
    answer = program.post("/runs", json={"request": "toy set lb1 lamp on"})
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:keyturn:problem:change-log-altered"
    assert answer.json()["detail"] == says
    # It does not get better by itself.
    assert "retry-after" not in answer.headers
