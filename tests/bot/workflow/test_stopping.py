"""Stopping runs and everything, and bans: nothing more is sent, and the summary says so."""

from collections.abc import Generator
from pathlib import Path

import pytest

from bot.audit import change_log, evidence
from bot.db import locks, runs, stops
from bot.db.database import Database, Transaction
from bot.model.errors import InvalidRequestError, NotAllowed, StepUpRequired, TooLate
from bot.model.run import RequestTerms, Run, State, StepState
from bot.queries import stop_reasons
from bot.queries.banned_people import PolicyWithoutBanned
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.errors import UnknownOutcomeError
from tests.bot.harness import WEB, Harness, ManualDispatcher
from tests.toy import BreakSwitch, SetAll, SetSwitch, ShowSwitches

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
ALL_ON = SetAll(host="lb1", value="on")


@pytest.fixture
def other(harness: Harness) -> Generator[KeyturnService]:
    """The workflow of another process on the same database."""
    database = Database(harness.database.url, harness.database._signing_key)  # pyright: ignore[reportPrivateUsage] - the same key
    yield KeyturnService(
        WorkflowContext(database, harness.policies, harness.fleet, ManualDispatcher())
    )
    database.close()


def _entries(harness: Harness, kind: str) -> list[change_log.Entry]:
    with harness.database.reading() as tx:
        return [entry for entry in change_log.list_entries_after(tx, 0) if entry.kind == kind]


class TestStopRun:
    @pytest.mark.parametrize("person", ["dora", "olga", "adam", "stan"])
    def test_stopped_pending_run_ends_at_once(self, harness: Harness, person: str):
        run = harness.request(LAMP_ON, person="dora")
        ended = harness.service.stop_run(run.id, person=person, reason="the wrong lamp")
        assert ended.state is State.STOPPED
        assert ended.summary.endswith("(the wrong lamp). Nothing was sent.")
        with pytest.raises(TooLate):
            harness.approve(run)
        assert harness.fleet.sent == []

    def test_stopped_approved_run_sends_nothing(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        harness.service.stop_run(run.id, person="dora")
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.STOPPED
        assert harness.fleet.sent == []

    def test_run_stopped_between_two_steps_does_not_send_the_second(
        self, harness: Harness, other: KeyturnService
    ):
        def stop(_host: str, _words: str) -> None:
            other.stop_run(1, person="dora", reason="smoke")

        harness.fleet.before_send = stop
        run = harness.request(ALL_ON)
        ended = harness.approve(run)
        assert ended.state is State.STOPPED
        assert ended.summary == (
            "Dora Developer stopped it (smoke), before step 2 of 2. Done: “Set fan”. "
            "To revert it, request the undo of run 1."
        )
        assert harness.fleet.sent == [("lb1", "set fan on")]
        with harness.database.reading() as tx:
            assert [step.state for step in runs.list_steps(tx, run.id)] == [StepState.SUCCEEDED]
            assert locks.get_lock(tx, "lb1") is None
        kinds = harness.list_entry_kinds(ended)
        assert kinds[-3:] == ["stop requested", "step succeeded", "stopped"]

    def test_completed_steps_of_a_stopped_run_can_be_undone(self, harness: Harness):
        harness.fleet.after_send = lambda _host, _words: _forge_stop(harness)
        harness.approve(harness.request(ALL_ON))
        harness.fleet.after_send = lambda _host, _words: None
        undo = harness.service.request_undo(1, RequestTerms("dora", WEB))
        harness.run_queued_work()
        assert harness.approve(harness.get_run(undo.id)).state is State.SUCCEEDED
        assert harness.fleet.sent[-1] == ("lb1", "set fan off")

    def test_run_stopped_during_its_last_step_succeeds(self, harness: Harness):
        harness.fleet.before_send = lambda _host, _words: _forge_stop(harness)
        assert harness.approve(harness.request(LAMP_ON)).state is State.SUCCEEDED

    def test_run_stopped_during_a_lost_step_stays_unknown_outcome(self, harness: Harness):
        def cut(_host: str, _words: str) -> None:
            _forge_stop(harness)
            raise UnknownOutcomeError("the connection was lost")

        harness.fleet.before_send = cut
        assert harness.approve(harness.request(LAMP_ON)).state is State.UNKNOWN

    def test_run_is_stopped_only_by_its_requester_or_an_owner(self, harness: Harness):
        people = harness.policies.path / "people.yaml"
        people.write_text(people.read_text() + "  gus: {name: Gus Guest, roles: [developer]}\n")
        run = harness.request(LAMP_ON)
        with pytest.raises(NotAllowed, match="Its requester and the owners of the edge can"):
            harness.service.stop_run(run.id, person="gus")
        assert harness.list_entry_kinds(run)[-1] == "stop refused"
        assert harness.get_run(run.id).state is State.PENDING

    def test_ended_run_cannot_be_stopped(self, harness: Harness):
        done = harness.approve(harness.request(LAMP_ON))
        with pytest.raises(TooLate, match="has succeeded already"):
            harness.service.stop_run(done.id, person="dora")

    def test_without_the_stop_check_the_second_step_is_sent(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(stops, "get_stop_of_run", _skip_check)
        harness.fleet.before_send = lambda _host, _words: _forge_stop(harness)
        harness.approve(harness.request(ALL_ON))
        assert len(harness.fleet.sent) == 2


def _skip_check(_tx: Transaction, _run: Run) -> None: ...


def _nobody(_tx: Transaction) -> frozenset[str]:
    return frozenset()


def _forge_stop(harness: Harness) -> None:
    with harness.database.transaction() as tx:
        stops.add_stop(tx, "1", person="dora", why="")


class TestStopParentRun:
    def _ask(self, harness: Harness) -> int:
        harness.fleet.hosts = {name: {"lamp": "off"} for name in ("lb1", "lb2")}
        requests = [SetSwitch(host=name, name="lamp", value="on") for name in ("lb1", "lb2")]
        whole = harness.service.request_on_hosts(
            requests, RequestTerms("dora", WEB), host_pattern="lb*"
        )
        harness.run_queued_work()
        return whole.id

    def test_stopped_parent_run_changes_no_further_host(
        self, harness: Harness, other: KeyturnService
    ):
        whole = self._ask(harness)

        def stop(_host: str, _words: str) -> None:
            other.stop_run(whole, person="olga", reason="smoke")

        harness.fleet.after_send = stop
        ended = harness.approve(harness.get_run(whole))
        assert ended.state is State.STOPPED
        assert ended.summary == (
            "Succeeded on 1 of 2 hosts. lb2: Olga Owner stopped it (smoke). Nothing was sent"
        )
        assert harness.fleet.sent == [("lb1", "set lamp on")]

    def test_child_run_can_only_be_stopped_with_its_parent(self, harness: Harness):
        whole = self._ask(harness)
        with pytest.raises(InvalidRequestError, match=f"belongs to run {whole}: stop that run"):
            harness.service.stop_run(whole + 1, person="dora")

    def test_stopped_parent_run_that_has_not_started_sends_nothing(self, harness: Harness):
        whole = self._ask(harness)
        harness.service.stop_run(whole, person="dora")
        harness.run_queued_work()
        assert harness.get_run(whole).state is State.STOPPED
        assert harness.fleet.sent == []


class TestStopAll:
    def test_stop_all_from_another_process_takes_effect_before_the_next_step(
        self, harness: Harness, other: KeyturnService
    ):
        def stop(_host: str, _words: str) -> None:
            other.stop_everything(person="", reason="something is wrong")

        harness.fleet.before_send = stop
        ended = harness.approve(harness.request(ALL_ON))
        assert ended.state is State.STOPPED
        assert ended.summary.startswith(
            "An administrator on the command line stopped everything (something is wrong), before"
        )
        assert harness.fleet.sent == [("lb1", "set fan on")]

    def test_stop_all_ends_queued_runs_for_good(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        assert harness.service.stop_everything(person="adam", reason="fire in the cellar") == 1
        harness.service.resume_everything(person="olga", reason="it was a drill")
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.STOPPED
        assert harness.fleet.sent == []
        assert _entries(harness, "everything stopped")[0].person == "adam"
        assert _entries(harness, "everything resumed")[0].facts["stopped_by"] == "adam"

    def test_stop_all_stops_new_checks_without_reading_a_host(self, harness: Harness):
        harness.service.stop_everything(person="adam", reason="fire in the cellar")
        run = harness.request(ShowSwitches(host="lb1"))
        assert run.state is State.STOPPED
        assert harness.list_entry_kinds(run) == ["requested", "stopped"]
        assert harness.fleet.asked == 0

    def test_stop_all_stops_runs_that_are_not_planned_yet(
        self, harness: Harness, other: KeyturnService
    ):
        run = harness.service.request_run(LAMP_ON, RequestTerms("dora", WEB))
        other.stop_everything(person="", reason="something is wrong")
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.STOPPED
        assert harness.fleet.asked == 0

    def test_pending_run_can_be_approved_after_stop_all_was_resumed(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.service.stop_everything(person="adam", reason="fire in the cellar")
        harness.service.resume_everything(person="olga", reason="it was a drill")
        assert harness.approve(harness.get_run(run.id)).state is State.SUCCEEDED

    def test_run_approved_during_stop_all_is_stopped(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.service.stop_everything(person="adam", reason="fire in the cellar")
        assert harness.approve(run).state is State.STOPPED
        assert harness.fleet.sent == []

    def test_person_who_stopped_everything_cannot_resume_it(self, harness: Harness):
        harness.service.stop_everything(person="adam", reason="fire in the cellar")
        with pytest.raises(
            NotAllowed,
            match=r"nother person has to revert what you ordered.*Olga Owner, Stan Storage",
        ):
            harness.service.resume_everything(person="adam", reason="it was a drill")
        assert harness.request(LAMP_ON).state is State.STOPPED

    def test_developer_can_neither_stop_nor_resume_everything(self, harness: Harness):
        with pytest.raises(NotAllowed, match="Those who can: Adam Admin"):
            harness.service.stop_everything(person="dora", reason="I feel like it")
        harness.service.stop_everything(person="adam", reason="fire in the cellar")
        with pytest.raises(NotAllowed):
            harness.service.resume_everything(person="dora", reason="I feel like it")
        assert [entry.person for entry in _entries(harness, "stop refused")] == ["dora"]

    def test_second_stop_all_names_the_person_who_was_first(self, harness: Harness):
        harness.service.stop_everything(person="adam", reason="fire in the cellar")
        with pytest.raises(TooLate, match="stopped by Adam Admin: fire in the cellar"):
            harness.service.stop_everything(person="olga", reason="smoke")

    def test_resume_is_rejected_when_nothing_is_stopped(self, harness: Harness):
        with pytest.raises(TooLate, match="Nothing is stopped"):
            harness.service.resume_everything(person="olga", reason="to be sure")

    @pytest.mark.parametrize("why", ["", " no "])
    def test_stop_all_needs_a_reason_of_three_characters(self, harness: Harness, why: str):
        with pytest.raises(InvalidRequestError, match="enter a reason of at least 3 characters"):
            harness.service.stop_everything(person="adam", reason=why)

    def test_stop_all_on_the_command_line_works_without_a_valid_policy(self, harness: Harness):
        run = harness.request(LAMP_ON)
        (harness.policies.path / "policy.cedar").write_text("permit (")
        harness.service.stop_everything(person="", reason="something is wrong")
        assert harness.get_run(run.id).state is State.PENDING
        with harness.database.reading() as tx:
            assert stops.get_stop_of_everything(tx)

    def test_without_the_stop_and_ban_checks_a_run_is_sent_during_stop_all(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(stops, "get_stop_of_run", _skip_check)
        # What is stopped is so by the log, too.
        monkeypatch.setattr(evidence, "list_banned", _nobody)
        run = harness.request(LAMP_ON)
        harness.service.stop_everything(person="adam", reason="fire in the cellar")
        assert harness.approve(run).state is State.SUCCEEDED


def _build_service_without_banned(harness: Harness) -> KeyturnService:
    """Return the service as the app builds it: those who are banned are left out."""
    admitted = PolicyWithoutBanned(harness.policies, harness.database)
    return KeyturnService(
        WorkflowContext(
            harness.database, admitted, harness.fleet, harness.dispatcher, harness.context.runbooks
        )
    )


class TestBans:
    def test_ban_during_a_run_stops_it_before_the_next_step(
        self, harness: Harness, other: KeyturnService
    ):
        def shut_out(_host: str, _words: str) -> None:
            other.ban_person("dora", banned_by="adam", reason="the laptop is stolen")

        harness.fleet.before_send = shut_out
        ended = harness.approve(harness.request(ALL_ON))
        assert ended.state is State.FAILED
        assert "Stopped before step 2" in ended.summary
        assert harness.fleet.sent == [("lb1", "set fan on")]

    def test_without_the_ban_check_the_next_step_is_sent(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(stops, "list_banned_people", _nobody)
        harness.fleet.before_send = lambda _host, _words: _forge_ban(harness)
        assert harness.approve(harness.request(ALL_ON)).state is State.SUCCEEDED

    def test_approval_of_a_banned_person_does_not_count(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        harness.service.ban_person("olga", banned_by="adam", reason="the account is taken over")
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.REFUSED
        assert harness.fleet.sent == []

    def test_banned_person_cannot_request_approve_or_stop(self, harness: Harness):
        service = _build_service_without_banned(harness)
        waiting = service.request_run(LAMP_ON, RequestTerms("dora", WEB))
        harness.run_queued_work()
        service.ban_person("olga", banned_by="adam", reason="the account is taken over")
        assert service.request_run(LAMP_ON, RequestTerms("olga", WEB)).state is State.REFUSED
        with pytest.raises(NotAllowed):
            service.approve_run(
                waiting.id, person="olga", digest=harness.get_run(waiting.id).digest
            )
        with pytest.raises(NotAllowed):
            service.stop_run(waiting.id, person="olga")
        service.unban_person("olga", unbanned_by="stan", reason="the account is hers again")
        assert service.approve_run(
            waiting.id, person="olga", digest=harness.get_run(waiting.id).digest
        )

    def test_another_process_applies_a_ban_within_seconds(
        self, harness: Harness, other: KeyturnService
    ):
        now = [0.0]
        admitted = PolicyWithoutBanned(harness.policies, harness.database, clock=lambda: now[0])
        assert admitted.get_policy().find_person("dora")
        other.ban_person("dora", banned_by="adam", reason="the laptop is stolen")
        now[0] = 5.0
        assert admitted.get_policy().find_person("dora") is None
        assert [*admitted.get_policy().get_area("lb1").owners] == ["olga", "adam"]

    def test_person_who_banned_another_cannot_lift_the_ban(self, harness: Harness):
        harness.service.ban_person("dora", banned_by="adam", reason="the laptop is stolen")
        with pytest.raises(NotAllowed, match="nother person has to revert what you ordered"):
            harness.service.unban_person("dora", unbanned_by="adam", reason="it was found")
        harness.service.unban_person("dora", unbanned_by="olga", reason="it was found")
        assert _entries(harness, "ban lifted")[0].facts["banned_by"] == "adam"

    @pytest.mark.parametrize(
        ("person", "by", "trouble"),
        [
            ("adam", "adam", InvalidRequestError),
            ("olga", "dora", NotAllowed),
            ("nobody", "adam", InvalidRequestError),
        ],
    )
    def test_ban_needs_the_right_and_a_known_other_person(
        self, harness: Harness, person: str, by: str, trouble: type[Exception]
    ):
        with pytest.raises(trouble):
            harness.service.ban_person(person, banned_by=by, reason="for the fun of it")
        with harness.database.reading() as tx:
            assert stops.list_bans(tx) == []

    def test_ban_on_the_command_line_needs_no_second_factor(self, harness: Harness):
        rules = harness.policies.path / "policy.cedar"
        annotation = '@id("administrators stop everything")'
        rules.write_text(rules.read_text().replace(annotation, f"{annotation} @stepup"))
        with pytest.raises(StepUpRequired):
            harness.service.ban_person("dora", banned_by="adam", reason="the laptop is stolen")
        with pytest.raises(NotAllowed):
            harness.service.ban_person(
                "olga", banned_by="dora", reason="for the fun of it", requires_factor=False
            )
        harness.service.ban_person(
            "dora", banned_by="adam", reason="the laptop is stolen", requires_factor=False
        )
        assert _entries(harness, "banned")[0].person == "adam"

    def test_ban_holds_when_the_database_becomes_unreachable(
        self, harness: Harness, tmp_path: Path
    ):
        now = [0.0]
        admitted = PolicyWithoutBanned(harness.policies, harness.database, clock=lambda: now[0])
        harness.service.ban_person("dora", banned_by="adam", reason="the laptop is stolen")
        assert admitted.get_policy().find_person("dora") is None
        admitted._database = Database(f"sqlite:///{tmp_path / 'gone' / 'x.db'}")  # pyright: ignore[reportPrivateUsage] - it is lost
        now[0] = 60.0
        assert admitted.get_policy().find_person("dora") is None


def _forge_ban(harness: Harness) -> None:
    with harness.database.transaction() as tx:
        stops.add_ban(tx, "dora", by="adam", why="")


def test_summary_of_a_stopped_run_names_an_irreversible_step(harness: Harness):
    run = harness.request(BreakSwitch(host="lb1", name="lamp"))
    harness.approve(run)
    with harness.database.reading() as tx:
        description = stop_reasons.describe_stopped_run(
            tx, harness.get_run(run.id), "Olga Owner stopped it"
        )
    assert description == (
        "Olga Owner stopped it. Done: “Break it”. “Break it” cannot be undone: gone."
    )
