"""Rules with @ticket: a change runs only under a ticket that its system approves, now."""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from bot.db.tables import break_glass
from bot.execution import executor
from bot.model.errors import (
    BreakGlassNotNeededError,
    InvalidRequestError,
    TicketRequiredError,
)
from bot.model.plan import RemainingWork
from bot.model.run import RequestTerms, Run, State
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.policy import NoPolicyError
from bot.policy.loader import load_policy
from bot.workflow.requests import create_request
from tests.bot.authenticator_app import enrol_and_step_up
from tests.bot.harness import WEB, Harness, open_harness
from tests.policies import get_starter_rules
from tests.ticket_system import (
    TicketServer,
    open_ticket_server,
    require_ticket,
    write_secret,
    write_tickets_file,
)
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


@pytest.fixture
def server() -> Generator[TicketServer]:
    with open_ticket_server() as server:
        yield server


@pytest.fixture
def ticketed(server: TicketServer, tmp_path: Path) -> Generator[Harness]:
    """A harness whose developers need a ticket."""
    secret = write_secret(tmp_path)
    (tmp_path / "policy").mkdir()
    write_tickets_file(tmp_path / "policy", server, secret)
    with open_harness(tmp_path, rules=require_ticket(get_starter_rules())) as harness:
        yield harness


def request(harness: Harness, ticket: str = "CHG1", person: str = "dora", **more: Any) -> Run:
    run = harness.service.request_run(
        LAMP_ON, RequestTerms(person, WEB, "test", ticket=ticket, **more)
    )
    harness.run_queued_work()
    return harness.get_run(run.id)


def test_change_runs_under_an_approved_ticket(ticketed: Harness, server: TicketServer):
    run = request(ticketed)
    assert run.state is State.PENDING
    assert run.plan is not None
    assert "Change ticket CHG1: scheduled, from" in run.plan.notes[0]
    assert run.plan.notes[0].endswith("for lb1, lb2.")
    assert ticketed.approve(run).state is State.SUCCEEDED
    # Asked for the plan, and again at the gate.
    assert len(server.questions) == 2


def test_request_without_a_ticket_is_rejected_when_a_rule_requires_one(ticketed: Harness):
    with pytest.raises(InvalidRequestError, match="requires an approved change ticket"):
        request(ticketed, "")
    plan = request(ticketed, "", plan_only=True)
    assert plan.state is State.PLANNED
    with pytest.raises(InvalidRequestError, match="requires an approved change ticket"):
        ticketed.service.request_plan(plan.id, person="dora", digest=plan.digest)
    # No rule asks administrators.
    assert request(ticketed, "", "olga").state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"approved": False, "state": "assess"},
            "Ticket CHG1 is not approved: its state is asses",
        ),
        ({"starts_at": "2999-01-01T00:00:00Z"}, "The window of ticket CHG1 begins at 2999-01-01"),
        ({"ends_at": "2020-01-01T00:00:00Z"}, "The window of ticket CHG1 ended at 2020-01-01"),
        ({"hosts": ["lb2"]}, "Ticket CHG1 does not cover lb1: its hosts are lb2"),
        ({"hosts": []}, "Ticket CHG1 does not cover lb1: its hosts are none"),
    ],
)
def test_a_ticket_that_does_not_permit_the_change_refuses_plan_and_start(
    ticketed: Harness, server: TicketServer, changed: dict[str, Any], says: str
):
    waiting = request(ticketed)
    server.say(**changed)
    refused = request(ticketed)
    assert (refused.state, refused.summary[: len(says)]) == (State.REFUSED, says)
    ended = ticketed.approve(waiting)
    assert (ended.state, ended.summary[: len(says)]) == (State.REFUSED, says)
    assert ticketed.fleet.sent == []


class TestBreakGlass:
    """On a web server, where Adam needs an approval and Olga, its owner, needs none."""

    RULES = (
        "administrators request other changes",
        "owners make reversible changes in their own area",
    )
    LAMP_ON = SetSwitch(host="web1", name="lamp", value="on")
    WHY = "all customers see an error page"

    @pytest.fixture(autouse=True)
    def require_tickets_of_administrators(self, ticketed: Harness) -> None:
        ticketed.fleet.hosts["web1"] = {"lamp": "off"}
        rules = ticketed.policies.path / "policy.cedar"
        rules.write_text(require_ticket(rules.read_text(), *self.RULES))

    def activate(self, harness: Harness, run: Run, person: str) -> Run:
        app = enrol_and_step_up(harness, person)
        harness.service.break_glass.activate_break_glass(
            run.id, person=person, session=app.session, digest=run.digest, reason=self.WHY
        )
        harness.run_queued_work()
        return harness.get_run(run.id)

    @pytest.mark.parametrize("person", ["adam", "olga"])
    def test_starts_a_plan_without_a_ticket(
        self, ticketed: Harness, server: TicketServer, person: str
    ):
        server.status = 500
        with pytest.raises(TicketRequiredError):
            ticketed.request(self.LAMP_ON, person)
        plan = ticketed.request(self.LAMP_ON, person, plan_only=True)
        assert (plan.state, plan.lacks_ticket) == (State.PLANNED, True)
        ended = self.activate(ticketed, plan, person)
        assert (ended.state, ended.plan_only, ended.ticket) == (State.SUCCEEDED, False, "")
        assert server.sent == []
        kinds = ticketed.list_entry_kinds()
        assert kinds.index("requested") < kinds.index("break-glass activated")

    def test_asks_no_ticket_system(self, ticketed: Harness, server: TicketServer):
        server.say(hosts=["web1"])
        run = ticketed.request(self.LAMP_ON, "adam", ticket="CHG1")
        server.status = 500
        ended = self.activate(ticketed, run, "adam")
        assert (ended.state, len(server.questions)) == (State.SUCCEEDED, 1)

    def test_starts_a_plan_that_would_need_approvals(
        self, ticketed: Harness, server: TicketServer
    ):
        server.say(hosts=["web1"])
        plan = ticketed.request(self.LAMP_ON, "adam", ticket="CHG1", plan_only=True)
        assert self.activate(ticketed, plan, "adam").state is State.SUCCEEDED

    def test_starts_no_plan_that_needs_neither_ticket_nor_approval(
        self, ticketed: Harness, server: TicketServer
    ):
        server.say(hosts=["web1"])
        plan = ticketed.request(self.LAMP_ON, "olga", ticket="CHG1", plan_only=True)
        with pytest.raises(BreakGlassNotNeededError, match="run it on its page"):
            self.activate(ticketed, plan, "olga")

    def test_gate_refuses_a_run_without_a_ticket_once_it_has_ended(self, ticketed: Harness):
        app = enrol_and_step_up(ticketed, "adam")
        plan = ticketed.request(self.LAMP_ON, "adam", plan_only=True)
        ticketed.service.break_glass.activate_break_glass(
            plan.id, person="adam", session=app.session, digest=plan.digest, reason=self.WHY
        )
        with ticketed.database.transaction() as tx:
            tx.sql.execute(update(break_glass).values(active_until=tx.now))
        ticketed.run_queued_work()
        ended = ticketed.get_run(plan.id)
        says = "The policy requires an approved change ticket by now"
        assert (ended.state, ended.summary) == (State.REFUSED, says)
        assert ticketed.fleet.sent == []


def test_ticket_without_window_and_hosts_limits_nothing(ticketed: Harness, server: TicketServer):
    server.say(starts_at=None, ends_at=None, hosts=None)
    assert ticketed.approve(request(ticketed)).state is State.SUCCEEDED


def test_a_ticket_that_changed_makes_the_plan_stale(ticketed: Harness, server: TicketServer):
    run = request(ticketed)
    server.say(state="implement")
    ended = ticketed.approve(run)
    assert ended.state is State.STALE
    assert "ticket CHG1 was changed" in ended.summary
    assert ticketed.fleet.sent == []


@pytest.mark.parametrize("guarded", [True, False])
def test_without_the_ticket_check_at_the_gate_a_withdrawn_ticket_runs(
    ticketed: Harness, server: TicketServer, monkeypatch: pytest.MonkeyPatch, *, guarded: bool
):
    run = request(ticketed)
    server.say(approved=False)
    if not guarded:
        answer = run.plan.ticket if run.plan else None

        def keep_answer(*given: object) -> RemainingWork:
            remaining = given[-1]
            assert isinstance(remaining, RemainingWork)
            return replace(remaining, ticket=answer)

        monkeypatch.setattr(executor, "prepare_work", keep_answer)
    expected = State.REFUSED if guarded else State.SUCCEEDED
    assert ticketed.approve(run).state is expected


def test_unreachable_ticket_system_refuses_the_change_with_the_reason(
    ticketed: Harness, server: TicketServer
):
    run = request(ticketed)
    server.status = 500
    says = "Cannot ask the ticket system about CHG1: it returned status 500"
    assert request(ticketed).summary == says
    ended = ticketed.approve(run)
    assert (ended.state, ended.summary) == (State.REFUSED, says)
    assert ticketed.fleet.sent == []


def test_request_for_several_hosts_is_bound_to_one_ticket_answer(
    ticketed: Harness, server: TicketServer
):
    def request_both() -> Run:
        both = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
        run = ticketed.service.request_on_hosts(
            both, RequestTerms("dora", WEB, ticket="CHG1"), host_pattern="lb*"
        )
        ticketed.run_queued_work()
        return ticketed.get_run(run.id)

    run = request_both()
    assert run.plan is not None
    assert run.plan.ticket is not None
    server.say(hosts=["lb1"])
    ended = ticketed.approve(run)
    assert ended.state is State.FAILED
    assert "ticket CHG1 was changed" in ended.summary
    refused = request_both()
    assert refused.state is State.REFUSED
    assert "does not cover lb2" in refused.summary


def test_an_undo_and_a_new_plan_keep_the_ticket(ticketed: Harness):
    run = ticketed.approve(request(ticketed))
    undo = ticketed.service.request_undo(run.id, RequestTerms("dora", WEB))
    ticketed.run_queued_work()
    assert ticketed.get_run(undo.id).ticket == "CHG1"
    again = ticketed.service.replan_run(undo.id, person="dora", origin=WEB)
    assert again.ticket == "CHG1"


@pytest.mark.parametrize("ticket", ["OPS-1", "CHG1/../x", "CHG 1", "CHG1\n", "x" * 65])
def test_invalid_ticket_number_is_rejected_before_the_system_is_asked(
    ticketed: Harness, server: TicketServer, ticket: str
):
    if ticket == "CHG1\n":
        assert request(ticketed, ticket).ticket == "CHG1"
        return
    with pytest.raises(InvalidRequestError, match="ticket"):
        request(ticketed, ticket)
    assert server.sent == []


def test_a_schedule_cannot_name_a_ticket(ticketed: Harness):
    timing = ScheduleTiming("nightly", parse_cron("0 3 * * *", "UTC"))
    terms = RequestTerms("dora", WEB, timing=timing, ticket="CHG1")
    with pytest.raises(InvalidRequestError, match="only a change that runs now"):
        create_request(ticketed.context, LAMP_ON, terms)
    with pytest.raises(InvalidRequestError, match="a schedule cannot name one"):
        create_request(ticketed.context, LAMP_ON, replace(terms, ticket=""))


def test_without_a_ticket_system_a_ticket_is_refused(harness: Harness):
    with pytest.raises(InvalidRequestError, match="no ticket system is configured"):
        request(harness)


def test_a_rule_with_ticket_needs_a_ticket_system(ticketed: Harness):
    file = ticketed.policies.path / "tickets.yaml"
    file.write_text(file.read_text().replace("system: generic", "system: jira"))
    with pytest.raises(NoPolicyError, match="approved: list the states"):
        load_policy(ticketed.policies.path)
    file.unlink()
    with pytest.raises(NoPolicyError, match=r"tickets\.yaml, which names the ticket system"):
        load_policy(ticketed.policies.path)
