"""Calls of every route, made on a running API whose hosts answer from a script."""

import re
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Connection
from starlette.applications import Starlette

from bot.api.app import build_api
from bot.api.deps import ApiParts
from bot.audit import verification
from bot.auth.rate_limit import RateLimit
from bot.db import break_glass, host_contacts, locks
from bot.db.database import Database, Transaction
from bot.db.host_contacts import LastContact
from bot.features import load_hooks, load_routes
from bot.features.drift import rows as drift
from bot.features.drift.state import Candidate
from bot.model.check_result import create_ok_result, create_warning_result
from bot.model.drift_state import DriftState
from bot.model.run import State, StepState
from bot.model.signing import SigningKey
from bot.queries.form_options import FormOptions
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors import conntrack, haproxy, haproxy_limits, uptime
from connectors.inventory import Inventory
from connectors.stick_table import parse_heads
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import ManualDispatcher
from tests.bot.signing.soft_passkey import SoftPasskey
from tests.bot.web import sample_runs
from tests.connectors.test_conntrack import IN_USE
from tests.connectors.test_uptime import PLAIN
from tests.policies import write_policy
from tests.runbooks.balancer import CONFIG, build_table_output
from tests.scripted_fleet import Reply, ScriptedFleet

_API = "/api/v1"
_ADDRESS = "https://keyturn.example.com"
# Sunday, 1 March 2026, 14:30 UTC. A transaction begins 0.1 s after the one before.
_BEGIN, _TICK = 1_772_375_400_000_000, 100_000
_TABLES = """\
# table: www, type: ip, size:204800, used:1
# table: http, type: ip, size:204800, used:1

"""
_SEND = "socat -t5 stdio UNIX-CONNECT:/run/haproxy/admin.sock <<<"
_SCOPES = ("read", "request", "approve")
# Differs from one making to the next: hashes and keys, versions of files, signatures, tokens.
_VARYING = re.compile(
    r"(?s)-----BEGIN SSH SIGNATURE-----.*-----END SSH SIGNATURE-----\n|"
    r"(?<=extra )[A-Za-z0-9+/=]+|(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{40,91}={1,2}|"
    r"(?<=keyturn/)[0-9a-f]{16}\b|"
    r"\b(?:[0-9a-f]{128}|[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{12}|kt_\w+)\b"
)


@dataclass(frozen=True)
class Call:
    """A request to the API, and its response."""

    address: str
    body: Any
    status: int
    response: Any


class _SteadyDatabase(Database):
    """A database whose clock depends on nothing but the transactions before."""

    time = _BEGIN

    def read_clock(self, connection: Connection) -> int:  # noqa: ARG002
        self.time += _TICK
        return self.time


def record_calls() -> tuple[Mapping[str, Any], Mapping[str, Call]]:
    """Return the OpenAPI document, and a call of each operation by its id.

    `problem` is a call that is refused.
    """
    with tempfile.TemporaryDirectory() as directory, _start_service(Path(directory)) as service:
        for record in (
            *(_record_runs, _record_decisions, _record_schedules),
            *(_record_drift, _record_freezes, _record_host_lists, _record_rest, _record_signature),
        ):
            record(service)
        return service.api.openapi(), service.calls


class _Service:
    """An API with everything behind it, and one client for each person."""

    def __init__(
        self,
        database: Database,
        api: FastAPI,
        service: KeyturnService,
        queue: ManualDispatcher,
        policy: Path,
    ) -> None:
        self.policy = policy
        self.database, self.api, self._service, self._queue = database, api, service, queue
        self.calls: dict[str, Call] = {}
        self._varying: dict[str, str] = {}
        self._app = Starlette()
        self._app.mount(_API, api)
        self._clients = {
            name: self._create_client(name) for name in ("dora", "olga", "adam", "stan")
        }

    def _create_client(self, person: str) -> TestClient:
        token = self._service.tokens.create_token(
            person=person, scopes=_SCOPES, days=90, name="the deploy pipeline", source="cli"
        )[1]
        headers = {"Authorization": f"Bearer {token}"}
        return TestClient(self._app, base_url=_ADDRESS, headers=headers)

    def call(
        self,
        operation: str,
        person: str,
        address: str,
        body: Any = None,
        /,
        **query: Any,
    ) -> Any:
        """Call a route, work off what it caused, and return the response.

        operation: its id; "" to keep no record of the call. address: method and path.
        Raises AssertionError for an error that is not the recorded `problem`.
        """
        method, path = address.split()
        whole = _API + path + (f"?{urlencode(query, doseq=True, safe='*@')}" if query else "")
        answer = self._clients[person].request(method, whole, json=body)
        data = answer.json()
        assert answer.is_success or operation == "problem", (address, data)
        if operation:
            assert operation not in self.calls, operation
            self.calls[operation] = Call(
                self._steady(whole), self._steady(body), answer.status_code, self._steady(data)
            )
        self.work()
        return data

    def work(self) -> None:
        """Plan and execute what waits."""
        while self._queue.enqueued:
            self._service.advancer.advance_run(self._queue.enqueued.pop(0))

    def delegate(self, delegator: str, delegate: str) -> None:
        """Let a person decide on behalf of another for a week."""
        with self.database.reading() as tx:
            ends_at = tx.now + 7 * 86400 * 1_000_000
        self._service.delegations.create_delegation(
            delegator=delegator,
            delegate=delegate,
            ends_at=ends_at,
            area="",
            reason="on leave",
            source="cli",
        )

    def get_digest(self, run: int) -> str:
        return str(self.call("", "dora", f"GET /runs/{run}")["digest"])

    def _steady(self, value: Any) -> Any:
        """Replace what differs each time, always by the same."""
        if isinstance(value, str):
            return _VARYING.sub(lambda match: self._replace(match[0]), value)
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value).items()
            return {key: self._steady(member) for key, member in members}
        if isinstance(value, list):
            return [self._steady(item) for item in cast("list[Any]", value)]
        return value

    def _replace(self, text: str) -> str:
        if text.startswith("-----"):
            return "-----BEGIN SSH SIGNATURE-----…-----END SSH SIGNATURE-----\n"
        if text not in self._varying:
            made = sha256(str(len(self._varying)).encode()).hexdigest()
            prefix = "kt_" if text.startswith("kt_") else ""
            self._varying[text] = (prefix + made * 2)[: len(text)]
        return self._varying[text]


@contextmanager
def _start_service(directory: Path) -> Generator[_Service]:
    policies = write_policy(directory / "policy")
    inventory = directory / "policy" / "inventory.yaml"
    inventory.write_text(inventory.read_text().replace("user: keyturn", "user: root"))
    key = SigningKey.create()
    create_sqlite_database(directory / "keyturn.db", key).close()
    database = _SteadyDatabase(f"sqlite:///{directory}/keyturn.db", key)
    with database.transaction() as tx:
        verification.open_log(tx)
    fleet, queue = _script_fleet(policies.get_policy().inventory), ManualDispatcher()
    context = WorkflowContext(database, policies, fleet, queue, hooks=load_hooks())
    service = KeyturnService(context)
    api = build_api(
        ApiParts(
            service,
            database,
            policies,
            _ADDRESS,
            RateLimit(burst=10_000),
            run_health_checks=lambda: (
                create_ok_result("policy", "4 people, 4 hosts"),
                create_warning_result("witness", "none configured: set KEYTURN_WITNESS"),
            ),
            longest_wait=0.01,
            routers=load_routes(),
            form_options=FormOptions(fleet.run_query, database, policies),
        )
    )
    yield _Service(database, api, service, queue, policies.path)
    database.close()


def _script_fleet(inventory: Inventory) -> ScriptedFleet:
    """Return hosts: balancers with a marked address, which can be cleared and marked again."""
    fleet = ScriptedFleet(inventory=inventory)
    for host in ("lb1", "lb2"):
        fleet.script(host, haproxy.query_tables().command, _TABLES)
        fleet.script(host, haproxy_limits.query_limits().command, CONFIG)
        fleet.script(host, haproxy.query_peers().command, "\n")
        for table in ("http", "www"):
            fleet.script(
                host, haproxy.query_has_counter(table, "gpc0").command, build_table_output(table)
            )
            head = haproxy.find_table_head(table, parse_heads(_TABLES))
            entry = haproxy.query_entry(head, ip_address("203.0.113.9")).command
            fleet.script(host, entry, partial(_show_entry, fleet, host, table))
            marked = haproxy.query_entries_at_least(table, "gpc0", 1).command
            fleet.script(
                host, marked, build_table_output(table, "198.51.100.7 use=0 exp=98000 gpc0=3")
            )
            for change in ("clear table {} key {}", "set table {} key {} data.gpc0 57"):
                line = change.format(table, "203.0.113.9")
                fleet.script(host, f"{_SEND} '{line}'", "\n")
    fleet.script("lb1", uptime.query_uptime().command, PLAIN)
    raised = IN_USE.replace("262144", "524288")
    limits: list[Reply] = [IN_USE, IN_USE, raised, IN_USE]
    fleet.script("lb2", conntrack.query_conntrack().command, limits)
    fleet.script("lb2", conntrack.query_boot_limits().command, "")
    # The rebuild of lb2 on lb1 finds the value set.
    fleet.script("lb1", conntrack.query_conntrack().command, raised)
    fleet.script("lb1", conntrack.query_boot_limits().command, "")
    return fleet


def _show_entry(fleet: ScriptedFleet, host: str, table: str) -> str:
    """Return the entry of the address, unless the last command cleared it."""
    sent = [words for name, words in fleet.sent if name == host and f" table {table} " in words]
    is_cleared = bool(sent) and "clear table" in sent[-1]
    return (
        "\n" if is_cleared else build_table_output(table, "203.0.113.9 use=0 exp=578000 gpc0=57")
    )


def _record_runs(service: _Service) -> None:
    clear = {"request": "abusers clear lb1 203.0.113.9", "reason": "ticket 4711"}
    run = service.call("requestRun", "dora", "POST /runs", clear)["run"]["id"]
    digest = service.get_digest(run)
    service.call("problem", "dora", f"POST /runs/{run}/approve", {"digest": digest})
    service.call("listPending", "olga", "GET /pending")
    approval = {"digest": digest, "reason": "known customer"}
    service.call("approveRun", "olga", f"POST /runs/{run}/approve", approval)
    service.call("getRun", "dora", f"GET /runs/{run}")
    service.call("getPlanDocument", "dora", f"GET /runs/{run}/document")
    service.call("getProgress", "dora", f"GET /runs/{run}/progress")
    service.call("listRuns", "dora", "GET /runs", host="lb*", state="succeeded", limit=1)
    service.call("verifyRun", "dora", f"POST /runs/{run}/verify")
    service.call("proveRun", "dora", f"GET /runs/{run}/proof")
    service.call("undoRun", "dora", f"POST /runs/{run}/undo", {"reason": "it attacks again"})
    service.call("repeatRun", "dora", f"POST /runs/{run}/again", {"reason": "ticket 4712"})
    plan = service.call(
        "planRun", "dora", "POST /plans", {"request": "abusers clear lb2 203.0.113.9"}
    )
    service.get_digest(plan["id"])
    new = service.call("replanRun", "dora", f"POST /runs/{plan['id']}/replan")["id"]
    shown = {"digest": service.get_digest(new)}
    service.call("requestPlan", "dora", f"POST /runs/{new}/request", shown)


def _record_signature(service: _Service) -> None:
    """Sign a request, under rules and with a key that no other example has."""
    passkey = SoftPasskey()
    rules, people = service.policy / "policy.cedar", service.policy / "people.yaml"
    signed = '@approvals("1")\n@signed("both")'
    rules.write_text(rules.read_text().replace('@approvals("1")', signed, 1))
    key = f'dora: {{signing_keys: ["{passkey.public.line}"], '
    people.write_text(people.read_text().replace("dora: {", key, 1))
    clear = {"request": "abusers clear lb2 203.0.113.9"}
    run = service.call("", "dora", "POST /runs", clear)["run"]["id"]
    plan = service.call("", "dora", f"GET /runs/{run}/document")
    signature = passkey.sign(plan["document"].encode())
    body = {"digest": plan["digest"], "signature": signature}
    service.call("signRequest", "dora", f"POST /runs/{run}/sign", body)


def _record_decisions(service: _Service) -> None:
    clear = {"request": "abusers clear lb2 203.0.113.9"}

    def request() -> int:
        return service.call("", "dora", "POST /runs", clear)["run"]["id"]

    service.call(
        "denyRun", "olga", f"POST /runs/{request()}/deny", {"reason": "not during the sale"}
    )
    service.call("withdrawRun", "dora", f"POST /runs/{request()}/withdraw")
    run = request()
    later = {"digest": service.get_digest(run), "start_at": "2026-03-01T22:00:00Z"}
    service.call("", "olga", f"POST /runs/{run}/approve", later)
    service.call("holdRun", "olga", f"POST /runs/{run}/hold", {"reason": "the sale begins early"})
    service.call("", "dora", f"POST /runs/{run}/withdraw")
    service.call("stopRun", "dora", f"POST /runs/{request()}/stop", {"reason": "wrong host"})
    run = request()
    question = {"text": "Which ticket is this for?"}
    service.call("askQuestion", "olga", f"POST /runs/{run}/question", question)
    service.call("answerQuestion", "dora", f"POST /runs/{run}/answer", {"text": "Ticket 4711"})
    assignee = {"person": "adam", "reason": "it is your load balancer"}
    service.call("reassignRun", "olga", f"POST /runs/{run}/reassign", assignee)
    other = {"values": {"table": "www"}, "reason": "it is marked in www"}
    proposal = service.call("counterRun", "olga", f"POST /runs/{run}/counter", other)["id"]
    accepted = {"digest": service.get_digest(proposal)}
    service.call("acceptRun", "dora", f"POST /runs/{proposal}/accept", accepted)
    with service.database.transaction() as tx:
        bypassed = _bypass_approvals(tx)
        unknown = _lose_outcome(tx)
    reviewed = {"findings": "the shop was down; the change was right"}
    service.call("reviewRun", "olga", f"POST /runs/{bypassed}/review", reviewed)
    service.call("listLocks", "dora", "GET /locks")
    outcome = {"succeeded": False, "reason": "the table on lb1 is unchanged"}
    service.call("resolveRun", "olga", f"POST /runs/{unknown}/resolve", outcome)
    service.call("getErasure", "dora", "GET /runs/1/erasure")
    secret = {"reason": "the output holds a password"}
    service.call("requestErasure", "dora", "POST /runs/1/erasure", secret)


def _bypass_approvals(tx: Transaction) -> int:
    """Add a run that Adam started by break-glass, and return its number."""
    run = sample_runs.add_succeeded_run(tx, sample_runs.add_requested_run(tx, person="adam"))
    reason = "the shop is down, and no one answers"
    break_glass.request_break_glass(tx, run=run.id, person="adam", reason=reason)
    break_glass.activate_break_glass(tx, run.id, until=tx.now, factor="1")
    return run.id


def _lose_outcome(tx: Transaction) -> int:
    """Add a run with an unknown outcome, which locks lb1, and return its number."""
    planned = sample_runs.add_pending_run(tx, sample_runs.add_requested_run(tx))
    run = sample_runs.start_run(tx, sample_runs.approve(tx, planned))
    locks.take_lock(tx, "lb1", run.id)
    error = "lb1 closed the connection"
    sample_runs.end_run(tx, run, StepState.UNKNOWN, trouble=error)
    sample_runs.add_ended_run(
        tx, run, State.UNKNOWN, f"The outcome of step 1 of 1 is unknown: {error}."
    )
    return run.id


def _record_schedules(service: _Service) -> None:
    monthly = {
        "request": "uptime check lb1",
        "name": "monthly uptime check",
        "cron": "0 3 1 * *",
        "zone": "Europe/Amsterdam",
    }
    service.call("requestSchedule", "dora", "POST /schedules", monthly)
    [schedule] = service.call("listSchedules", "dora", "GET /schedules")["schedules"]
    number = schedule["id"]
    service.call("getSchedule", "dora", f"GET /schedules/{number}")
    service.call("getCalendar", "dora", "GET /calendar", days=40)
    moved = {"reason": "the host is being moved"}
    service.call("suspendSchedule", "dora", f"POST /schedules/{number}/suspend", moved)
    service.call("resumeSchedule", "dora", f"POST /schedules/{number}/resume")
    leave = {"reason": "Dora is on leave"}
    service.call("takeOverSchedule", "olga", f"POST /schedules/{number}/take", leave)
    over = {"reason": "the host is gone"}
    numbers = [one["id"] for one in service.call("", "olga", "GET /schedules")["schedules"]]
    service.call("endSchedule", "olga", f"POST /schedules/{max(numbers)}/end", over)
    service.call("describeCron", "dora", "GET /calendar/cron", cron="0 3 1 * *", count=2)


def _record_drift(service: _Service) -> None:
    raised = {"request": "conntrack set lb2 524288", "reason": "new connections are dropped"}
    service.call("", "olga", "POST /runs", raised)
    service.call("getRebuild", "olga", "GET /hosts/lb2/rebuild")
    new = {"new_host": "lb1", "reason": "lb2 is replaced by lb1"}
    service.call("requestRebuild", "olga", "POST /hosts/lb2/rebuild", new)
    since = {"person": "olga", "since": "2026-03-01T14:30:00Z", "area": "edge", "plan_only": True}
    service.call("undoSelection", "olga", "POST /undo", since)
    with service.database.transaction() as tx:
        key = _change_by_hand(tx)
    service.call("readDrift", "olga", "POST /hosts/lb2/drift")
    service.call("listDrift", "dora", "GET /drift", state="changed")
    service.call("getDrift", "olga", f"GET /drift/{key}")
    load_test = {
        "until": "2026-03-04T00:00:00Z",
        "range": "200000..600000",
        "reason": "a load test until Wednesday",
    }
    service.call("expectDrift", "olga", f"POST /drift/{key}/expect", load_test)
    with service.database.transaction() as tx:
        _change_by_hand(tx)
    again = {"reason": "a mistake"}
    service.call("restoreDrift", "olga", f"POST /drift/{key}/restore", again)
    with service.database.transaction() as tx:
        _change_by_hand(tx)
    right = {"reason": "half of it is enough"}
    service.call("adoptDrift", "olga", f"POST /drift/{key}/adopt", right)


def _record_freezes(service: _Service) -> None:
    until = "2026-03-01T18:00:00Z"
    fair = {"hosts": "lb*", "until": until, "reason": "the fair is on"}
    number = service.call("orderFreeze", "olga", "POST /freezes", fair)["id"]
    service.call("listFreezes", "dora", "GET /freezes")
    over = {"reason": "it ended early"}
    service.call("endFreeze", "olga", f"POST /freezes/{number}/end", over)


def _record_host_lists(service: _Service) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJrbYp1uX3mwUoTgxqIVAtRQS7Gl2hCgZVhXQO6UkmYP"
    web9 = {"address": "192.0.2.9", "host_key": key, "area": "web", "tags": ["nginx"]}
    listed: Mapping[str, Any] = {"hosts": {"web9": web9}, "remove": []}
    found = service.call("proposeHostList", "dora", "POST /host-lists", listed)
    path = f"/host-lists/{found['id']}"
    service.call("getHostList", "dora", f"GET {path}")
    service.call("listHostLists", "dora", "GET /host-lists")
    digest = {"digest": found["digest"]}
    service.call("confirmHostList", "olga", f"POST {path}/confirm", digest)
    wrong = {"reason": "web9 is a test machine"}
    service.call("withdrawHostList", "dora", f"POST {path}/withdraw", wrong)


def _change_by_hand(tx: Transaction) -> int:
    """Have the limit of lb2 changed by hand, and return the number of its watched value."""
    key = next(one for one in drift.list_keys(tx) if one.name == "conntrack limit")
    command = "/usr/sbin/sysctl -w net.netfilter.nf_conntrack_max=262144 as root"
    drift.store_key(
        tx,
        replace(
            key,
            state=DriftState.CHANGED,
            since_at=tx.now,
            read_at=tx.now,
            digest="0" * 64,
            value="262,144 connections",
            candidates=[Candidate(key.good_at + 500_000, "sudo", "stan", command)],
        ),
    )
    return key.id


def _record_rest(service: _Service) -> None:
    with service.database.transaction() as tx:
        contact = LastContact("lb1", tx.now, tx.now, tx.now, "", "")
        host_contacts.store_contacts(tx, [contact])
    service.call("listHosts", "dora", "GET /hosts", tag="haproxy")
    service.call("getHost", "dora", "GET /hosts/lb1")
    service.call("listRunbooks", "dora", "GET /runbooks", prefix="abusers clear")
    service.call("listFieldOptions", "dora", "GET /hosts/lb1/options", runbook="abusers clear")
    service.delegate("olga", "adam")
    service.call("getMe", "dora", "GET /me")
    service.call("getAccess", "olga", "GET /access")
    service.call("getPolicy", "dora", "GET /policy", person="dora")
    service.call("previewRequest", "dora", "GET /policy/preview", request="abusers clear lb*")
    service.call("listChanges", "dora", "GET /changes", host="lb*", within="2 hours", limit=1)
    service.call("listEntries", "dora", "GET /log", kind="approved")
    service.call("proveEntry", "dora", "GET /log/2/proof")
    service.call("verifyLog", "olga", "POST /log/verify")
    view = {"name": "failed on balancers", "filters": {"host": "lb*", "state": "failed"}}
    number = service.call("saveView", "dora", "POST /views", view)["id"]
    service.call("listViews", "dora", "GET /views")
    service.call("getView", "dora", f"GET /views/{number}")
    service.call("deleteView", "dora", f"POST /views/{number}/delete")
    service.call("getWaitReport", "dora", "GET /report/waiting")
    service.call("getHealth", "olga", "GET /health")
