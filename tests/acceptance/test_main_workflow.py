"""The main workflow and its failures in chat, over real SSH, on a real HAProxy."""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Generator
from html import unescape
from pathlib import Path
from typing import TypeVar

import pytest
from ruamel.yaml import YAML

from bot.audit import change_log, verification
from bot.db import locks, runs, search
from bot.model.run import Run, State
from tests.bot.cli.test_terminal import KEYTURN, Terminal, a_terminal
from tests.playground import sample_company
from tests.playground.fleet import LoopbackFleet
from tests.playground.keys import make_key
from tests.playground.service import Chat, Service

pytestmark = pytest.mark.real

ABUSER = "203.0.113.9"
DORA, OLGA, ADAM, STAN = "U0DORA", "U0OLGA", "U0ADAM", "U0STAN"
CLEAR = f"/keyturn abusers clear lb1 {ABUSER}"

Found = TypeVar("Found")


class Stage:
    """A fleet with an abuser on lb1, and Keyturn in front of it."""

    def __init__(self, fleet: LoopbackFleet, service: Service, chat: Chat) -> None:
        self.fleet, self.service, self.chat = fleet, service, chat

    def runs(self) -> list[Run]:
        with self.service.keyturn.database.reading() as tx:
            return search.find_newest_runs(tx, search.RunFilter())

    def entries(self) -> list[str]:
        with self.service.keyturn.database.reading() as tx:
            return [entry.kind for entry in change_log.list_entries_after(tx, 0)]

    def approval(self) -> tuple[str, str]:
        """Wait for the card and return where its approve button is."""
        return wait_for(lambda: self.chat.button("Approve"), "an approve button")

    def ended(self) -> Run:
        return wait_for(lambda: next((run for run in self.runs() if run.is_ended), None))

    def sees(self, user: str, words: str) -> None:
        """Wait until a person sees these words in the chat."""
        wait_for(lambda: words in _extract_text(self.chat.page(user)), f"{user} to see {words!r}")

    def count_refusals(self, user: str) -> int:
        """Return how many refusals a person sees, on a card or by themselves."""
        text = _extract_text(self.chat.page(user))
        return text.count("has nothing else") + text.count("Only visible to you")

    def servers(self) -> list[list[str]]:
        """Return every server of HAProxy with its operational and administrative state."""
        rows = self.fleet.haproxy.runtime("show servers state").splitlines()[2:]
        return [row.split()[:7] for row in rows]

    def change_inventory(self, host: str, **changes: object) -> None:
        path = self.fleet.inventory_file
        yaml = YAML()
        data = yaml.load(path)
        for name, value in changes.items():
            data["hosts"][host][name] = value
        yaml.dump(data, path)


def _extract_text(page: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", page)))


def wait_for(look: Callable[[], Found | None], what: str = "it") -> Found:
    """Return what *look* finds as soon as it finds something."""
    deadline = time.monotonic() + 20
    while not (value := look()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)
    return value


@pytest.fixture
def stage(tmp_path: Path) -> Generator[Stage]:
    sample_company.create_policy(tmp_path / "policy")
    with LoopbackFleet(tmp_path / "policy") as fleet, Service(tmp_path) as service:
        fleet.haproxy.abuse(ABUSER)
        chat = Chat(service)
        yield Stage(fleet, service, chat)
        chat.close()


def test_abuser_is_cleared_in_chat_by_requester_and_approver(stage: Stage):
    assert stage.fleet.haproxy.get(ABUSER) == 503
    stage.chat.say(DORA, f"{CLEAR} because a customer called")
    stage.chat.press(OLGA, *stage.approval())
    run = stage.ended()

    assert run.state is State.SUCCEEDED
    assert not stage.fleet.haproxy.marked(ABUSER)
    stage.sees(DORA, "Verified")
    assert stage.entries()[-1] == "succeeded"
    with stage.service.keyturn.database.reading() as tx:
        assert verification.verify_log(tx).broken is None


def test_cleared_abuser_is_restored_by_an_undo_approved_in_chat(stage: Stage):
    stage.chat.say(DORA, CLEAR)
    stage.chat.press(OLGA, *stage.approval())
    stage.ended()
    stage.sees(DORA, "Verified")
    stage.chat.say(DORA, "/keyturn undo 1")
    stage.chat.press(OLGA, *stage.approval())
    wait_for(lambda: stage.runs()[0].id == 2 and stage.runs()[0].is_ended)
    assert stage.runs()[0].state is State.SUCCEEDED
    assert stage.fleet.haproxy.marked(ABUSER)


def test_two_approvals_at_once_in_chat_start_one_run(stage: Stage):
    stage.chat.say(DORA, CLEAR)
    where = stage.approval()
    clicks = [
        threading.Thread(target=stage.chat.press, args=(who, *where)) for who in (OLGA, ADAM)
    ]
    for click in clicks:
        click.start()
    for click in clicks:
        click.join()
    stage.ended()
    assert stage.entries().count("started") == 1
    assert stage.entries().count("step sending") == 1


def test_stale_plan_of_a_real_host_is_not_applied(stage: Stage):
    stage.chat.say(DORA, CLEAR)
    where = stage.approval()
    stage.fleet.haproxy.runtime(f"set table http key {ABUSER} data.gpc0 0")
    stage.chat.press(OLGA, *where)
    run = stage.ended()
    assert run.state in {State.NO_CHANGES, State.STALE}
    assert "step sending" not in stage.entries()


HOSTILE = (
    "'203.0.113.9; disable server www/origin'",
    "203.0.113.9;disable",
    "999.1.1.1",
    "::1",
    "localhost",
    "www.example.com",
    "203.0.113.9/32",
    "010.0.0.1",
    "0x7f000001",
    "1",
    "'203.0.113.9 junk'",
    "-x",
    "２０３.0.113.9",
    "203.0.113.9\\",
    "fe80::1%eth0",
)


def test_hostile_values_in_chat_are_refused_and_change_nothing(stage: Stage):
    before = stage.servers()
    for value in HOSTILE:
        refusals = stage.count_refusals(DORA)
        known = {run.id for run in stage.runs()}
        stage.chat.say(DORA, f"/keyturn abusers clear lb1 {value}")
        new = [run.id for run in stage.runs() if run.id not in known]
        for number in new:
            wait_for(
                lambda number=number: next(r for r in stage.runs() if r.id == number).is_ended
            )
        assert all(run.state is State.REFUSED for run in stage.runs()), value
        # What is read first is told by a card if that takes longer than a second.
        wait_for(lambda refusals=refusals: stage.count_refusals(DORA) > refusals)
        assert stage.fleet.haproxy.marked(ABUSER), value
        assert stage.servers() == before, value
        assert "step sending" not in stage.entries(), value


def test_newline_in_a_chat_request_is_refused(stage: Stage):
    stage.chat.say(DORA, "/keyturn abusers clear lb1 '203.0.113.9\nshow info'")
    stage.sees(DORA, "invisible character U+000A")
    assert stage.runs() == []


def test_unreachable_host_fails_the_run_and_is_reported_in_chat(stage: Stage):
    stage.fleet.hosts["lb1"].stop()
    stage.chat.say(DORA, CLEAR)
    run = stage.ended()
    assert run.state is State.FAILED
    assert "lb1" in run.summary
    stage.sees(DORA, "refused the connection")


def test_host_that_goes_down_after_approval_is_sent_nothing(stage: Stage):
    stage.chat.say(DORA, CLEAR)
    where = stage.approval()
    stage.fleet.hosts["lb1"].stop()
    stage.chat.press(OLGA, *where)
    run = stage.ended()
    assert run.state is State.FAILED
    assert "Nothing was sent" in run.summary
    assert "step sending" not in stage.entries()
    with stage.service.keyturn.database.reading() as tx:
        assert locks.get_lock(tx, "lb1") is None


def test_host_key_mismatch_fails_the_run_before_any_login(stage: Stage):
    stage.change_inventory("lb1", host_key=make_key().public)
    stage.chat.say(DORA, CLEAR)
    run = stage.ended()
    assert run.state is State.FAILED
    assert "shows the key" in run.summary
    assert stage.fleet.hosts["lb1"].accepted == 0


def test_host_key_changed_after_approval_makes_the_plan_stale(stage: Stage):
    stage.chat.say(DORA, CLEAR)
    where = stage.approval()
    stage.change_inventory("lb1", host_key=make_key().public)
    stage.chat.press(OLGA, *where)
    run = stage.ended()
    assert run.state in {State.STALE, State.FAILED}
    assert "step sending" not in stage.entries()
    assert stage.fleet.haproxy.marked(ABUSER)


def test_missing_haproxy_socket_is_named_in_the_run_summary(stage: Stage):
    stage.change_inventory("lb1", settings={"haproxy.socket": "/nowhere/admin.sock"})
    stage.chat.say(DORA, CLEAR)
    run = stage.ended()
    assert run.state is State.FAILED
    assert "socket" in run.summary


def test_read_only_haproxy_socket_fails_the_run(stage: Stage):
    stage.change_inventory("lb1", settings={"haproxy.socket": stage.fleet.haproxy.socket("user")})
    stage.chat.say(DORA, CLEAR)
    run = stage.ended()
    assert run.state is State.FAILED
    assert "operator" in run.summary


def test_stopped_haproxy_fails_the_run(stage: Stage):
    stage.fleet.haproxy.stop()
    stage.chat.say(DORA, CLEAR)
    run = stage.ended()
    assert run.state is State.FAILED
    assert "HAProxy" in run.summary


def test_owner_of_another_area_cannot_approve_in_chat(stage: Stage):
    stage.chat.say(DORA, CLEAR)
    stage.chat.press(STAN, *stage.approval())
    stage.sees(STAN, "Those who can: Adam Admin, Olga Owner")
    assert stage.fleet.haproxy.marked(ABUSER)


def test_requester_cannot_approve_their_own_request_in_chat(stage: Stage):
    stage.chat.say(DORA, CLEAR)
    stage.chat.press(DORA, *stage.approval())
    stage.sees(DORA, "you requested it")
    assert stage.fleet.haproxy.marked(ABUSER)


def test_request_is_rejected_when_the_change_log_cannot_be_written(stage: Stage):
    """The disk is full for the change log: no request is taken, and no host is even asked."""
    with stage.service.keyturn.database.engine.connect() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER no_more BEFORE INSERT ON entry "
            "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        )
    connections = stage.fleet.hosts["lb1"].connections
    stage.chat.say(DORA, CLEAR)
    stage.sees(DORA, "Only visible to you")
    assert stage.runs() == []
    assert stage.fleet.hosts["lb1"].connections == connections
    assert stage.fleet.haproxy.marked(ABUSER)


def test_approved_run_is_not_sent_when_the_change_log_fails(stage: Stage):
    stage.chat.say(DORA, CLEAR)
    where = stage.approval()
    with stage.service.keyturn.database.engine.connect() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER no_intent BEFORE INSERT ON entry WHEN NEW.kind = 'claimed' "
            "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        )
    stage.chat.press(OLGA, *where)
    wait_for(lambda: "approved" in stage.entries())
    assert "step sending" not in stage.entries()
    assert stage.fleet.haproxy.marked(ABUSER)


def test_pending_run_is_approved_and_executed_after_a_restart(tmp_path: Path):
    sample_company.create_policy(tmp_path / "policy")
    with LoopbackFleet(tmp_path / "policy") as fleet:
        fleet.haproxy.abuse(ABUSER)
        with Service(tmp_path) as service:
            chat = Chat(service)
            Stage(fleet, service, chat).chat.say(DORA, CLEAR)
            Stage(fleet, service, chat).approval()
            run = Stage(fleet, service, chat).runs()[0]
            chat.close()
        with Service(tmp_path) as service:
            service.keyturn.service.approve_run(run.id, person="olga", digest=run.digest)
            with service.keyturn.database.reading() as tx:
                assert runs.get_run(tx, run.id).state is not State.PENDING
            wait_for(lambda: not fleet.haproxy.marked(ABUSER))


def test_irreversible_request_is_confirmed_in_a_terminal(stage: Stage):
    # It is marked and below every limit, so that emptying the table helps it.
    stage.fleet.haproxy.runtime("set table http key 203.0.113.10 data.gpc0 1")
    with _open_terminal(stage, "olga", "request", "abusers", "empty", "lb1") as terminal:
        assert terminal.shows("cannot be undone"), terminal.output
        assert terminal.shows("Request it all the same? [y/N]"), terminal.output
        terminal.press("n\n")
        assert terminal.ended() == 1
    assert stage.runs() == []
    assert stage.fleet.haproxy.marked(ABUSER)


def test_undo_in_a_terminal_is_planned_and_then_requested(stage: Stage):
    stage.chat.say(DORA, CLEAR)
    stage.chat.press(OLGA, *stage.approval())
    ended = stage.ended()
    with _open_terminal(stage, "olga", "undo", str(ended.id)) as terminal:
        # Everything that it does can be undone, so nobody is asked.
        terminal.ended()
    assert "all the same" not in terminal.output
    assert [run.undo_of for run in stage.runs()] == [ended.id, None]
    assert {entry for entry in stage.entries() if "plan" in entry} >= {"planned"}


def _open_terminal(
    stage: Stage, person: str, *words: str
) -> contextlib.AbstractContextManager[Terminal]:
    _, token = stage.service.keyturn.service.tokens.create_token(
        person=person, scopes=["request"], days=1, source="cli"
    )
    address = stage.service.address
    return a_terminal(KEYTURN, *words, KEYTURN_URL=address, KEYTURN_TOKEN=token)
