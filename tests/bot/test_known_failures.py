"""Known failures of similar tools, each as a test."""

import ast
import subprocess
from collections.abc import Generator, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest
from pydantic import ValidationError

import connectors
import runbooks
from bot.audit import change_log
from bot.db import outbox, runs, search
from bot.db.search import RunFilter
from bot.execution import gate
from bot.model import request_form
from bot.model.errors import NotAllowed, TooLate
from bot.model.run import RequestOrigin, RequestTerms, Run, State
from bot.model.schedule import parse_cron
from bot.policy import PolicyRequest
from bot.policy.explain import evaluate_request
from bot.settings import Settings
from connectors.command import Shell
from connectors.errors import UnknownOutcomeError
from tests.bot.harness import WEB, Harness, authorise_all, open_harness
from tests.toy import SetAll, SetSwitch, ShowSwitches, TuneSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


def _queue_unapproved_run(harness: Harness) -> Run:
    """Bring a request to the point of starting through an entrance that checks nothing."""
    run = harness.request(LAMP_ON)
    with harness.database.transaction() as tx:
        runs.move_run(tx, runs.lock_run(tx, run.id), State.QUEUED)
    harness.service.advancer.advance_run(run.id)
    return harness.get_run(run.id)


class TestRulesAtTheGate:
    """Other tools checked only at one entrance, such as the API."""

    def test_gate_stops_a_run_queued_without_any_approval_check(self, harness: Harness):
        assert _queue_unapproved_run(harness).state is not State.SUCCEEDED
        assert harness.fleet.sent == []

    def test_without_the_gate_a_run_queued_without_approval_is_sent(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(gate, "authorise_run", authorise_all)
        _queue_unapproved_run(harness)
        assert harness.fleet.sent == [("lb1", "set lamp on")]

    @pytest.mark.parametrize("door", ["slack", "web", "api", "cli", "schedule"])
    def test_request_from_every_source_needs_approval(self, harness: Harness, door: str):
        run = harness.service.request_run(LAMP_ON, RequestTerms("dora", RequestOrigin(door)))
        harness.run_queued_work()
        assert harness.get_run(run.id).state is not State.SUCCEEDED
        assert harness.fleet.sent == []

    def test_runbooks_import_nothing_of_the_bot(self):
        """It is handed its question alone, and knows nothing above itself."""
        for file in _list_modules(runbooks.__path__):
            above = [name for name in _list_imports(file) if name.split(".")[0] == "bot"]
            assert above == [], file

    @pytest.mark.parametrize("name", ["dry_run", "check_mode", "force", "approved"])
    def test_request_values_such_as_force_cannot_bypass_the_approval(self, name: str):
        with pytest.raises(request_form.RequestSyntaxError):
            request_form.parse_request(SetSwitch, ["lb1", "lamp", "on", f"{name}=true"])
        with pytest.raises(ValidationError):
            SetSwitch.model_validate({"host": "lb1", "name": "a", "value": "b", name: True})

    def test_locked_host_is_also_locked_for_a_request_on_several_hosts(self, harness: Harness):
        def cut(host: str, _words: str) -> None:
            if host == "lb1":
                raise UnknownOutcomeError("nobody saw its end")

        harness.fleet.before_send = cut
        held = harness.approve(harness.request(LAMP_ON))
        assert held.state is State.UNKNOWN
        harness.fleet.before_send = lambda _host, _words: None
        requests = [SetSwitch(host=host, name="lamp", value="dim") for host in ("lb1", "lb2")]
        whole = harness.service.request_on_hosts(
            requests, RequestTerms("dora", WEB), host_pattern="lb*"
        )
        harness.run_queued_work()
        harness.approve(harness.get_run(whole.id))
        assert ("lb1", "set lamp dim") not in harness.fleet.sent


class TestApprovedPlanRuns:
    """Other tools had people approve without a plan, or ran another plan."""

    def test_run_cannot_be_approved_before_its_plan_exists(self, harness: Harness):
        run = harness.service.request_run(LAMP_ON, RequestTerms("dora", WEB))
        with pytest.raises(TooLate):
            harness.service.approve_run(run.id, person="olga", digest="")

    def test_pending_run_shows_the_command_and_the_undo_of_every_step(self, harness: Harness):
        run = harness.request(SetAll(host="lb1", value="on"))
        assert run.plan
        assert [str(step.command) for step in run.plan.steps] == ["set fan on", "set lamp on"]
        assert [str(step.undo) for step in run.plan.steps] == ["set fan off", "set lamp off"]

    def test_digest_of_one_plan_cannot_approve_another_run(self, harness: Harness):
        one, other = (
            harness.request(LAMP_ON),
            harness.request(TuneSwitch(host="lb1", name="fan", how="dim")),
        )
        with pytest.raises(TooLate, match="is not that of the plan"):
            harness.service.approve_run(other.id, person="olga", digest=one.digest)
        assert harness.get_run(other.id).state is State.PENDING


class TestPeople:
    def test_change_log_names_requester_and_approver_and_never_the_bot(self, harness: Harness):
        run = harness.approve(harness.request(LAMP_ON))
        with harness.database.reading() as tx:
            who = {
                entry.kind: entry.person for entry in change_log.list_entries_of_run(tx, run.id)
            }
        assert (who["requested"], who["approved"]) == ("dora", "olga")

    def test_two_slack_accounts_of_one_person_are_one_approver(self, harness: Harness):
        people = harness.policies.path / "people.yaml"
        one = "[{team: T0KEYTURN, user: U0ADAM}]"
        people.write_text(
            people.read_text().replace(one, one.replace("]", ", {team: T0KEYTURN, user: U0TWO}]"))
        )
        known = harness.policies.get_policy().organisation
        accounts = [
            known.find_by_slack(team="T0KEYTURN", enterprise=None, user=user)
            for user in ("U0ADAM", "U0TWO")
        ]
        assert [person and person.id for person in accounts] == ["adam", "adam"]

    def test_possible_approvers_are_named_in_explanations_and_refusals(self, harness: Harness):
        policy = harness.policies.get_policy()
        with harness.database.reading() as tx:
            request = PolicyRequest(
                runbook="toy set",
                kind="change",
                host="lb1",
                source="web",
                requested_by="dora",
                now=tx.now,
            )
        text = " ".join(evaluate_request(policy, request).describe())
        assert "Adam Admin" in text
        assert "Olga Owner" in text
        run = harness.request(LAMP_ON)
        with pytest.raises(NotAllowed, match="Those who can: Adam Admin, Olga Owner"):
            harness.approve(run, "stan")


class TestExpiredRequests:
    """Other tools deleted expired requests and did not notify the requester."""

    @pytest.fixture
    def expired(self, harness: Harness) -> Run:
        run = harness.request(LAMP_ON)
        with harness.database.transaction() as tx:
            for item in outbox.list_pending_updates(tx):
                outbox.mark_delivered(tx, item)
            runs.amend_run(tx, runs.lock_run(tx, run.id), expires_at=tx.now)
        harness.service.advancer.expire_runs()
        return harness.get_run(run.id)

    def test_expired_requests_stay_listed_and_searchable(self, harness: Harness, expired: Run):
        with harness.database.reading() as tx:
            listed = search.find_newest_runs(tx, RunFilter(states=frozenset({State.EXPIRED})))
        assert [run.id for run in listed] == [expired.id]
        assert harness.list_entry_kinds(expired)[-1] == "expired"

    def test_expired_request_is_reported_to_its_requester(self, harness: Harness, expired: Run):
        with harness.database.reading() as tx:
            assert [item.run for item in outbox.list_pending_updates(tx)] == [expired.id]


class TestDefaultDeny:
    @pytest.fixture
    def silent(self, tmp_path: Path) -> Generator[Harness]:
        """A policy that says nothing at all."""
        with open_harness(
            tmp_path, rules='@id("none") forbid (principal, action, resource);'
        ) as it:
            yield it

    @pytest.mark.parametrize("person", ["dora", "olga", "adam"])
    def test_request_that_no_rule_permits_is_refused_for_everyone(
        self, silent: Harness, person: str
    ):
        assert silent.request(LAMP_ON, person).state is State.REFUSED
        assert silent.request(ShowSwitches(host="lb1"), person).state is State.REFUSED
        assert silent.fleet.asked == 0

    def test_no_setting_disables_the_change_log(self):
        """Where it is kept can be set, and where its witnesses are: not whether."""
        assert {name for name in Settings.model_fields if "log" in name} == {"log", "syslog"}
        # What the service says of itself is another log: that is text or JSON, and never off.
        assert Settings.model_fields["log"].annotation == Literal["text", "json"]
        switches = {
            name for name, field in Settings.model_fields.items() if field.annotation is bool
        }
        assert switches == set()


class TestClockChanges:
    @pytest.mark.parametrize(("day", "hours"), [("2026-10-25", 25), ("2027-03-28", 23)])
    def test_schedule_fires_once_in_the_night_of_a_clock_change(self, day: str, hours: int):
        """Others fired twice when clocks were set back, and never when they were set forward."""
        nightly = parse_cron("30 2 * * *", "Europe/Amsterdam")
        start = datetime.fromisoformat(f"{day}T00:00:00").replace(tzinfo=UTC) - timedelta(hours=2)
        since = round(start.timestamp() * 1_000_000)
        moments = nightly.iterate_due_times(since)
        fired = [
            moment
            for moment in (next(moments) for _ in range(3))
            if moment < since + hours * 3600 * 1_000_000
        ]
        assert len(fired) == 1


class TestHostSafety:
    def test_connectors_never_accept_an_unknown_ssh_host_key(self):
        for file in _list_modules(connectors.__path__):
            source = file.read_text()
            assert "AutoAddPolicy" not in source, file
            assert "WarningPolicy" not in source, file
            assert "ssh_strict=False" not in source, file

    @pytest.mark.parametrize(
        "word", ["a; echo b", "$(echo b)", "`echo b`", "a'b", 'a"b', "a\\", "*", "-n", "#"]
    )
    def test_shell_command_quotes_every_argument(self, word: str):
        line = str(Shell(("printf", "%s|", "x", word)))
        result = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
        assert result.stdout == f"x|{word}|"

    @pytest.mark.parametrize(
        "address",
        [
            "0.0.0.0/0",
            "::/0",
            "203.0.113.9 # let in",
            "tcp|in|d=22|s=203.0.113.9",
            "203.0.113.9\n",
        ],
    )
    def test_runbooks_reject_an_address_that_is_not_one_ip_address(self, address: str):
        """Of every runbook that takes one: the value is what is refused, and not the others."""
        those = [
            one for one in runbooks.load_catalogue().values() if "address" in one.model_fields
        ]
        assert {"csf find", "abusers clear"} <= {one.words for one in those}
        for runbook in those:
            with pytest.raises(ValidationError) as refused:
                runbook.model_validate({"host": "web1", "address": address})
            about = [error for error in refused.value.errors() if error["type"] != "missing"]
            assert about, runbook.words


def _list_modules(path: Iterable[str]) -> list[Path]:
    return sorted(Path(next(iter(path))).glob("*.py"))


def _list_imports(file: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return names
