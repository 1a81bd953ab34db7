"""A plan is shown the same in chat, on the web, in the terminal and over the API."""

import json
from collections.abc import Callable, Mapping
from html import unescape

import pytest

from bot.cli.formatting import format_run_details
from bot.features.schedules import approval
from bot.features.schedules import rows as schedules
from bot.model.run import RequestTerms, Run, State
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.slack.run_facts import SlackRunViewBuilder
from bot.slack.run_message import render_card
from runbooks import AnyRunbook
from tests.bot.api.conftest import create_api_harness
from tests.bot.harness import WEB, Harness
from tests.bot.slack.json_walk import list_texts
from tests.bot.web.conftest import create_site
from tests.bot.web.parsed_page import Page
from tests.toy import WARNING, BreakSwitch, SetSwitch, ShowSwitches, WarmUp

HOURLY = ScheduleTiming("hourly", parse_cron("0 * * * *", "Europe/Amsterdam"))


def _render_slack_card(harness: Harness, run: Run) -> str:
    stories = SlackRunViewBuilder(
        harness.policies, team="T0", base_url="https://keyturn.example.com"
    )
    with harness.database.reading() as tx:
        return " ".join(list_texts(render_card(stories.build_slack_run_view(tx, run.id)).blocks))


def _render_web_page(harness: Harness, run: Run) -> str:
    with create_site(harness).browser("olga") as browser:
        return Page(browser.get(f"/runs/{run.id}").text).text


def _get_api_json(harness: Harness, run: Run) -> str:
    with create_api_harness(harness).program("olga") as program:
        return program.get(f"/runs/{run.id}").text


def _render_terminal(harness: Harness, run: Run) -> str:
    return format_run_details(json.loads(_get_api_json(harness, run)))


DOORS: Mapping[str, Callable[[Harness, Run], str]] = {
    "chat": _render_slack_card,
    "web": _render_web_page,
    "api": lambda harness, run: json.dumps(
        json.loads(_get_api_json(harness, run)), ensure_ascii=False
    ),
    "terminal": _render_terminal,
}
each_door = pytest.mark.parametrize("door", DOORS)


def _schedule(harness: Harness, *what: AnyRunbook) -> Run:
    spelled = "lb*" if len(what) > 1 else ""
    run = harness.service.request_on_hosts(
        what, RequestTerms("dora", WEB, timing=HOURLY), host_pattern=spelled
    )
    harness.run_queued_work()
    return harness.get_run(run.id)


def _show_run(harness: Harness, run: Run, door: str) -> str:
    return " ".join(unescape(DOORS[door](harness, run)).split())


@each_door
def test_plan_notes_are_shown_on_every_source(harness: Harness, door: str):
    run = harness.request(WarmUp(host="lb1", name="lamp", value="on"))
    assert WARNING in _show_run(harness, run, door)


@each_door
def test_irreversible_step_is_shown_on_every_source(harness: Harness, door: str):
    run = harness.request(BreakSwitch(host="lb1", name="lamp"))
    text = "no_undo" if door == "api" else "annot be undone: gone"
    assert text in _show_run(harness, run, door)


@each_door
def test_schedule_with_an_empty_plan_shows_request_due_times_and_end(harness: Harness, door: str):
    run = _schedule(harness, SetSwitch(host="lb1", name="lamp", value="off"))
    assert run.state is State.PENDING
    assert run.plan
    assert not run.plan.steps
    seen = _show_run(harness, run, door)
    with harness.database.reading() as tx:
        coming = HOURLY.cron_expression.format_due_times(tx.now)
        until = HOURLY.cron_expression.format_local_time(
            tx.now + harness.context.schedule_lifetime
        )[:-10]
    for part in (
        "toy set lb1 lamp off",
        HOURLY.description,
        *coming,
        f"Approved once. Later runs need no approval for 90 days: until {until}",
        "There is nothing to do now. Each run reads its hosts and plans its steps again",
    ):
        assert part in seen


@each_door
def test_schedule_for_several_hosts_names_every_host(harness: Harness, door: str):
    both = [SetSwitch(host=host, name="lamp", value="off") for host in ("lb1", "lb2")]
    run = _schedule(harness, *both)
    hosts = '"hosts": ["lb1", "lb2"]' if door == "api" else "lb1, lb2"
    assert hosts in _show_run(harness, run, door)


@each_door
def test_approved_schedule_shows_when_its_approval_ends(harness: Harness, door: str):
    run = harness.approve(_schedule(harness, SetSwitch(host="lb1", name="lamp", value="off")))
    assert run.state is State.SUCCEEDED
    seen = _show_run(harness, run, door)
    assert "Later runs need no approval until " in seen
    assert "nothing to do now" not in seen


@each_door
def test_schedule_of_a_check_says_that_it_needs_no_approval(harness: Harness, door: str):
    run = _schedule(harness, ShowSwitches(host="lb1"))
    seen = _show_run(harness, run, door)
    assert "No approval is needed, neither now nor for later runs." in seen
    assert "Each run only reads its host." in seen


def test_approve_button_of_a_schedule_is_labelled_approve_schedule(harness: Harness):
    run = _schedule(harness, SetSwitch(host="lb1", name="lamp", value="off"))
    assert "Approve schedule" in _render_slack_card(harness, run)
    assert "Approve schedule" in _render_web_page(harness, run)
    assert "0 commands" not in _render_web_page(harness, run)


def test_schedule_approved_with_an_empty_plan_lapses_when_a_host_key_changes(harness: Harness):
    run = harness.approve(_schedule(harness, SetSwitch(host="lb1", name="lamp", value="off")))
    path = harness.policies.path / "inventory.yaml"
    path.write_text(path.read_text().replace("AAAAIH7t6", "AAAAIH7t7"))
    with harness.database.reading() as tx:
        [schedule] = schedules.list_schedules(tx)
        with pytest.raises(approval.ScheduleNotApproved, match="host key of lb1 has changed"):
            approval.check_schedule_approval(harness.context, tx, schedule, run)


@each_door
def test_request_names_its_open_counter_proposals(harness: Harness, door: str):
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    text = "Other values are proposed in run 2. This request stays pending"
    shown = '"proposals": [2]' if door == "api" else text
    assert shown not in _show_run(harness, run, door)
    harness.service.propose_values(run.id, person="olga", changed_values={"value": "dim"})
    harness.run_queued_work()
    assert shown in _show_run(harness, run, door)
    harness.service.withdraw_run(2, person="dora")
    assert shown not in _show_run(harness, run, door)


def test_counter_proposal_can_be_withdrawn_on_its_page(harness: Harness):
    harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    harness.service.propose_values(1, person="olga", changed_values={"value": "dim"})
    harness.run_queued_work()
    with create_site(harness).browser("dora") as browser:
        page = browser.get("/runs/2").text
        assert Page(page).text.count("Withdraw") == 1
        assert "Decline" not in Page(page).text
        assert browser.post("/runs/2/withdraw").status_code == 303
    assert harness.get_run(1).state is State.PENDING
    assert harness.get_run(2).state is State.WITHDRAWN
