"""What people read about their own runs names no run that they may not view.

Hidden runs stand in the way of shown ones in every way there is. Nothing that the service shows or
sends of the shown runs has a word of the hidden ones.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import update

from bot.audit import change_log
from bot.db import break_glass, locks, outbox, tables
from bot.features.mcp.results import RunResult
from bot.features.rebuild.actions import RebuildActions
from bot.features.redundancy import rows
from bot.model.references import refer_to_run, show_references
from bot.model.run import RequestTerms, Run, State
from bot.model.sequence import UndoSelection
from bot.queries.run_view import build_run_view
from tests.bot.api.conftest import create_api_harness
from tests.bot.harness import WEB, Harness, open_harness
from tests.bot.restricted_view import restricted_rules
from tests.bot.slack.chat import open_chat
from tests.bot.slack.conftest import patient
from tests.bot.slack.test_home import open_home
from tests.bot.web.conftest import create_site
from tests.drift_keys import read_due_keys
from tests.policies import PEOPLE
from tests.toy import BreakSwitch, KeepSwitch, SetSwitch, TakeDown

__all__ = ["patient"]
VIEW = """
permit (principal in Role::"administrator", action == Action::"view", resource);
permit (principal in Role::"developer", action == Action::"view", resource in Area::"web");
"""
NAME, VALUE, REASON = "Zelda Zenith", "zigzagged", "a zealous reason"
# The filter of lists offers everyone in the policy.
CHOICE = re.compile(r"<option[^>]*>Zelda Zenith</option>")
# The marks that references are stored with, which no one is shown.
MARKS = re.compile("[\ufff9-\ufffb]")


@dataclass
class Crossing:
    """hidden: runs that dora may not view. shown: runs of hers that they stand in the way of."""

    harness: Harness
    hidden: Sequence[Run]
    shown: Sequence[Run]

    def check(self, text: str, where: str) -> None:
        """Check that a text tells nothing of the hidden runs."""
        for word in (NAME, "zelda", VALUE, REASON):
            assert word not in text, (where, word)
        assert not MARKS.search(text), where
        for run in self.hidden:
            found = re.search(rf"\brun #?{run.id}\b|/runs/{run.id}\b", text)
            assert not found, (where, found)


def keep(harness: Harness, name: str, value: str, person: str, reason: str = "") -> Run:
    run = harness.request(KeepSwitch(host="lb1", name=name, value=value), person, reason)
    return harness.approve(run) if run.state is State.PENDING else run


def undo(harness: Harness, run: Run) -> Run:
    asked = harness.service.request_undo(run.id, RequestTerms("dora", WEB, "undo it"))
    harness.run_queued_work()
    return harness.get_run(asked.id)


def read_all_keys(harness: Harness) -> None:
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.drift_key).values(next_at=0))
    read_due_keys(harness.service)


@contextmanager
def open_crossing(directory: Path) -> Generator[Crossing]:
    with open_harness(directory, rules=restricted_rules(VIEW)) as harness:
        people = "  zelda: {name: Zelda Zenith, roles: [administrator, developer]}\n"
        (harness.policies.path / "people.yaml").write_text(PEOPLE + people)
        inventory = harness.policies.path / "inventory.yaml"
        inventory.write_text(inventory.read_text() + "redundant: [lb1, lb2]\n")
        switches = {"bell": "off", "fan": "off", "lamp": "off", "pump": "off"}
        harness.fleet.hosts = {host: {**switches} for host in ("lb1", "lb2", "web1")}
        yield fill(harness)


@pytest.fixture(scope="module")
def crossing(tmp_path_factory: pytest.TempPathFactory) -> Generator[Crossing]:
    """One for all tests that only read it."""
    with open_crossing(tmp_path_factory.mktemp("crossing")) as crossing:
        yield crossing


@pytest.fixture
def own_crossing(tmp_path: Path) -> Generator[Crossing]:
    with open_crossing(tmp_path) as crossing:
        yield crossing


def fill(harness: Harness) -> Crossing:
    own = [keep(harness, name, "on", "dora") for name in ("bell", "fan", "lamp", "pump")]
    hidden = [keep(harness, name, VALUE, "zelda", REASON) for name in ("fan", "lamp", "pump")]
    # Outside Keyturn, so that no host has the hidden value any more: a plan says what a host has.
    harness.fleet.hosts["lb1"] |= {"fan": "dim", "lamp": "dim", "pump": "off"}
    read_all_keys(harness)
    shown = [undo(harness, run) for run in own[1:]]
    shown.append(harness.request(KeepSwitch(host="lb1", name="fan", value="red"), "dora"))
    rebuilt = harness.service.bind(RebuildActions).request_rebuild(
        "lb1", RequestTerms("dora", WEB), new_host="web1"
    )
    many = harness.service.request_undo_of_selection(
        UndoSelection(person="dora", since=1), RequestTerms("dora", WEB)
    )
    harness.run_queued_work()
    shown += [harness.get_run(run.id) for run in (rebuilt, many)]
    hidden.append(hold_leg(harness))
    shown += ask_for_other_leg(harness)
    hidden += hold_hosts(harness)
    shown += ask_for_held_hosts(harness)
    return Crossing(harness, hidden, shown)


def hold_leg(harness: Harness) -> Run:
    """Let a hidden run claim one of two legs."""
    run = harness.request(TakeDown(host="lb2", name="bell", value=VALUE), "zelda", REASON)
    with harness.database.transaction() as tx:
        rows.add_claim(tx, "lb1-lb2", "lb2", run.id)
    return run


def ask_for_other_leg(harness: Harness) -> list[Run]:
    one = harness.request(TakeDown(host="lb1", name="bell", value="red"), "dora")
    several = harness.service.request_on_hosts(
        [TakeDown(host="lb1", name="bell", value="red")],
        RequestTerms("dora", WEB),
        host_pattern="lb1,",
    )
    harness.run_queued_work()
    return [one, harness.get_run(several.id)]


def hold_hosts(harness: Harness) -> list[Run]:
    """Let hidden runs hold a host, and start before all others by break-glass."""
    held = harness.request(SetSwitch(host="lb2", name="fan", value=VALUE), "zelda", REASON)
    urgent = harness.request(SetSwitch(host="lb1", name="bell", value=VALUE), "zelda", REASON)
    with harness.database.transaction() as tx:
        locks.take_lock(tx, "lb2", held.id)
        locks.take_lock(tx, "lb1", held.id)
    harness.approve(urgent)
    with harness.database.transaction() as tx:
        break_glass.request_break_glass(tx, run=urgent.id, person="zelda", reason=REASON)
        break_glass.activate_break_glass(tx, urgent.id, until=tx.now + 10**9, factor="f")
    return [held, urgent]


def ask_for_held_hosts(harness: Harness) -> list[Run]:
    return [
        harness.approve(harness.request(SetSwitch(host=host, name="pump", value="red"), "dora"))
        for host in ("lb1", "lb2")
    ]


def test_sentences_about_shown_runs_are_complete_for_those_who_may_view_all(crossing: Crossing):
    """The twin of the other tests: there is something to hide in each of these sentences."""
    program = create_api_harness(crossing.harness).program("adam", "read")
    texts = [program.get(f"/runs/{run.id}").json()["summary"] for run in crossing.shown]
    fan, lamp, pump, leg, held, urgent = (run.id for run in crossing.hidden)
    for number, text in zip((fan, lamp, pump), texts, strict=False):
        assert f"Since then, run {number} of {NAME} set it to {VALUE} on " in text
    assert f"lb2 is held by run {leg} of {NAME} since" in texts[-4]
    assert f"lb2 is held by run {leg} of {NAME} since" in texts[-3]
    assert texts[-2] == f"waits for break-glass run {urgent}"
    assert texts[-1] == f"waits for run {held}, which has locked lb2"
    assert [run.state for run in crossing.shown[-2:]] == [State.QUEUED] * 2


def test_pages_name_no_hidden_run(crossing: Crossing):
    site = create_site(crossing.harness)
    browser = site.browser("dora")
    numbers = [run.id for run in crossing.shown]
    paths = [
        *(f"/runs/{number}" for number in numbers),
        *(f"/runs/{number}/live" for number in numbers),
        *(f"/runs/compare?a={numbers[0]}&b={number}" for number in numbers[1:]),
        *("/", "/runs", "/runs.csv", "/runs.json", "/drift", "/hosts", "/hosts/lb1", "/hosts/lb2"),
        *("/changelog", "/changelog.csv", "/changelog.json", "/changes", "/report"),
        *("/hosts/lb1/rebuild", "/redundancy", "/redundancy/lb1-lb2", "/schedules"),
    ]
    for path in paths:
        shown = browser.get(path)
        assert shown.status_code == 200, path
        crossing.check(CHOICE.sub("", shown.text), path)
    waits = browser.get(f"/runs/{numbers[-1]}").text
    assert "waits for another run, which has locked lb2" in waits
    browser.close()


def test_search_finds_shown_runs_by_no_word_of_hidden_ones(crossing: Crossing):
    program = create_api_harness(crossing.harness).program("dora", "read")
    for word in (VALUE, "Zenith", "zealous"):
        assert program.get("/runs", params={"search": word}).json()["runs"] == []
    assert program.get("/runs", params={"search": "overwrite"}).json()["runs"]


def test_api_names_no_hidden_run(crossing: Crossing):
    program = create_api_harness(crossing.harness).program("dora", "read", "request")
    numbers = [run.id for run in crossing.shown]
    paths = [
        *(f"/runs/{number}" for number in numbers),
        *(f"/runs/{number}/progress" for number in numbers),
        *("/runs", "/log?limit=500", "/changes", "/pending", "/locks", "/hosts", "/hosts/lb1"),
        *("/hosts/lb1/rebuild", "/drift", "/access", "/report/waiting", "/calendar"),
    ]
    for path in paths:
        shown = program.get(path)
        assert shown.status_code == 200, path
        crossing.check(shown.text, path)


def test_change_log_and_notes_about_shown_runs_name_no_hidden_run(crossing: Crossing):
    """The log is signed as it is, and exported: so it has the words for everyone alone."""
    for run in crossing.shown:
        with crossing.harness.database.reading() as tx:
            for entry in change_log.list_entries_of_run(tx, run.id):
                crossing.check(entry.body, f"{entry.kind} of run {run.id}")


def test_answer_to_an_agent_names_no_hidden_run(crossing: Crossing):
    policy = crossing.harness.policies.get_policy()
    for run in crossing.shown:
        with crossing.harness.database.reading(policy.get_view_rights("dora")) as tx:
            view = build_run_view(tx, run.id, policy)
            result = RunResult.from_view(tx, view, policy, "https://keyturn.example")
        crossing.check(result.model_dump_json(), f"run {run.id}")


def test_refusals_name_no_hidden_run(own_crossing: Crossing):
    program = create_api_harness(own_crossing.harness).program(
        "dora", "read", "request", "approve"
    )
    for run in own_crossing.shown:
        for action in ("approve", "withdraw", "stop", "undo", "replan"):
            body = {"digest": run.digest} if action in {"approve", "undo"} else {}
            shown = program.post(f"/runs/{run.id}/{action}", json=body)
            own_crossing.check(shown.text, f"{action} {run.id}: {run.title}")


@pytest.mark.anyio
async def test_slack_names_no_hidden_run(own_crossing: Crossing, anyio_backend: str):
    assert anyio_backend
    async with open_chat(own_crossing.harness, default_channel="C0OPS") as chat:
        chat.slack.channels |= {"C0OPS"}
        with own_crossing.harness.database.transaction() as tx:
            tx.sql.execute(tables.outbox.delete())
            for run in own_crossing.shown:
                outbox.announce_run(tx, run.id)
        await chat.settle()
        assert any("Waits for another run, which has" in card.words for card in chat.slack.posted)
        for card in chat.slack.posted:
            own_crossing.check(f"{card.text} {card.words}", f"card: {card.text}")
        for run in own_crossing.shown:
            for command in ("run", "stop", "withdraw", "undo"):
                answer = await chat.type(f"{command} {run.id}")
                own_crossing.check(answer.body.decode(), f"{command} {run.id}")
        for command in ("runs", "changed now", "drift", "tree lb1-lb2", "who lb1"):
            own_crossing.check((await chat.type(command)).body.decode(), command)
        own_crossing.check(str(await open_home(chat, "U0DORA")), "Home")


def test_run_that_an_undo_leaves_out_is_named_to_those_who_may_view_it(tmp_path: Path):
    with open_harness(tmp_path, rules=restricted_rules(VIEW)) as harness:
        harness.fleet.hosts = {host: {"pump": "off"} for host in ("lb1", "web1")}
        harness.approve(
            harness.request(KeepSwitch(host="web1", name="pump", value="on"), "adam"), "olga"
        )
        broken = harness.approve(harness.request(BreakSwitch(host="lb1", name="pump"), "adam"))
        assert broken.state is State.SUCCEEDED
        asked = harness.service.request_undo_of_selection(
            UndoSelection(person="adam", since=1), RequestTerms("adam", WEB)
        )
        harness.run_queued_work()
        api = create_api_harness(harness)
        shown = {
            person: api.program(person, "read").get(f"/runs/{asked.id}").json()["plan"]["notes"]
            for person in ("adam", "dora")
        }
        named = f"run {broken.id}, toy break lb1 pump"
        assert f"Not undone: {named}: irreversible" in shown["adam"]
        assert "Not undone: another run: irreversible" in shown["dora"]
        with harness.database.reading() as tx:
            bodies = "".join(each.body for each in change_log.list_entries_of_run(tx, asked.id))
        assert named not in bodies
        assert not MARKS.search(bodies)


def test_words_of_a_reference_cannot_end_it():
    stored = refer_to_run(7, "run 7 \ufffb\ufffa of \ufff9Zelda")
    assert show_references(f"waits for {stored}.", [7]) == "waits for run 7  of Zelda."
    assert show_references(f"waits for {stored}.", []) == "waits for another run."
