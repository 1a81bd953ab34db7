"""Keyturn logs what people did offline only if the record of the host verifies."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import pytest

from bot.audit import change_log, events
from bot.audit.change_log import Entry
from bot.db import migrations
from bot.db.database import Database
from bot.features.offline.reader import OfflineReader
from bot.model.plan import ResolvedPlan
from bot.model.signing import SigningKey
from bot.model.times import HOUR
from bot.queries import timeline
from bot.workflow.context import WorkflowContext
from connectors.command import Query, Shell
from connectors.errors import OutputLimitError, UnreachableError
from tests.bot.features.offline.test_commands import Desk, make_file, make_plan
from tests.bot.harness import ManualDispatcher
from tests.bot.signing.plans import STEP
from tests.playground.keys import make_key

T = TypeVar("T")

NOW = int(time.time())
NEW_KEY = make_key().public


class RecordingHost:
    """Hosts whose record is given. steps: number, action, status, and who signed."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.record, self.is_up = desk, "", True
        # The days whose record is longer than what is read of a command.
        self.too_long = 100
        self.asked = list[str]()
        (known,) = (host for host in desk.read_policy().inventory if host.signed)
        self.fingerprint = known.fingerprint

    def make_plan(self, **changed: object) -> ResolvedPlan:
        steps = (replace(STEP, fingerprint=self.fingerprint),)
        return make_plan(**{"steps": steps, **changed})

    def keep(
        self,
        plan: ResolvedPlan,
        *people: str,
        status: str = "0",
        began: int = NOW,
        step: str = "1-do",
    ) -> None:
        signatures = [self.desk.keys[name].sign(plan.document.encode()) for name in people]
        lines = "\n".join(make_file(plan, *signatures).texts.lines)
        number, _, action = step.partition("-")
        self.record += f"p x/{step} {began} {status}\na {action} {number}\n{lines}\n"

    def query_with_changer(self, _host: str, query: Query[T], **_more: object) -> T:
        if not self.is_up:
            raise UnreachableError("it does not answer")
        asked = query.command.stdin if isinstance(query.command, Shell) else ""
        self.asked.append(asked)
        if int(asked.split()[-1]) > self.too_long:
            raise OutputLimitError("it printed too much")
        return query.parse(self.record)

    run_query: Any = None
    run_command: Any = None
    query_step: Any = None
    resolve_command: Any = None


class Watch:
    """Keyturn with an enrolled host."""

    def __init__(self, place: Path) -> None:
        desk = Desk(place)
        self.host = RecordingHost(desk)
        self.database = Database(f"sqlite:///{place / 'keyturn.db'}", SigningKey.create())
        migrations.upgrade_schema(self.database)
        self.context = WorkflowContext(self.database, desk.policy, self.host, ManualDispatcher())

    def read(self) -> Sequence[Entry]:
        """Return what is logged after a reading."""
        OfflineReader(self.context, Event()).read_hosts()
        with self.database.reading() as tx:
            return change_log.list_entries_after(tx, 0)

    def list_changes(self) -> Sequence[timeline.TimelineEvent]:
        with self.database.reading() as tx:
            return timeline.build_timeline(tx, tx.now, span=HOUR).events


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path)


def test_change_is_logged_once_with_its_people_and_plan(watch: Watch):
    plan = watch.host.make_plan()
    watch.host.keep(plan, "olga", "adam")
    (entry,) = watch.read()
    event = entry.event
    assert isinstance(event, events.ChangedOffline)
    assert (entry.person, entry.host, event.digest) == ("olga", "lb1", plan.digest)
    assert (event.signers, event.reason) == (("olga", "adam"), "a customer called")
    assert event.plan["document"] == plan.document.splitlines()
    assert event.steps == {"do 1": [NOW, 0]}
    assert len(watch.read()) == 1
    (shown,) = watch.list_changes()
    assert (shown.what, shown.at, shown.rank) == (
        "abusers clear lb1 203.0.113.9, offline",
        NOW * 1_000_000,
        0,
    )
    watch.host.keep(plan, "olga", "adam", step="1-undo")
    assert [*watch.read()[-1].facts["steps"]] == ["do 1", "undo 1"]


def test_stranger_verifies_who_signed_a_change_with_ssh_keygen(watch: Watch, tmp_path: Path):
    watch.host.keep(watch.host.make_plan(), "olga", "adam")
    (entry,) = watch.read()
    export, signers = tmp_path / "export.jsonl", tmp_path / "signers"
    lines = [f"{name} {watch.host.desk.keys[name].line}\n" for name in ("olga", "adam")]
    signers.write_text("".join(lines))
    program = [sys.executable, "docs/verify_signatures.py", str(export), str(signers)]
    for reason, status, words in (
        ("a customer called", 0, ": entry 1, no run, changed offline by adam, plan"),
        ("another reason", 1, "NOT VALID: entry 1"),
    ):
        body = entry.body.replace("a customer called", reason)
        export.write_text(json.dumps({**vars(entry), "body": body}) + "\n")
        done = subprocess.run(program, capture_output=True, text=True, check=False)
        assert (done.returncode, words in done.stdout) == (status, True), done


def test_running_step_is_logged_when_it_has_ended_or_an_hour_later(watch: Watch):
    plan = watch.host.make_plan()
    watch.host.keep(plan, "olga", "adam", status="unknown")
    assert watch.read() == []
    watch.host.record = ""
    watch.host.keep(plan, "olga", "adam", status="unknown", began=NOW - 3601)
    (entry,) = watch.read()
    assert entry.facts["steps"] == {"do 1": [NOW - 3601, None]}


_FINDINGS: Sequence[tuple[Sequence[str], Mapping[str, object], tuple[str, str], str]] = [
    ((), {}, ("", ""), "no one signed do of step 1"),
    (("olga", "eve"), {}, ("", ""), "which people.yaml names for no one"),
    (("olga",), {}, ("g -----END", "g AAAA\ng -----END"), "a signature"),
    (("olga",), {}, ("s step", "s step x"), "not the text of"),
    (("olga",), {"run": 12}, ("", ""), "is no offline plan"),
    (("olga",), {"installation": "x"}, ("", ""), "is no offline plan"),
    (("olga",), {"steps": (STEP,)}, ("", ""), "or for another host key"),
    (("olga",), {"steps": (replace(STEP, host="lb2"),)}, ("", ""), "its plan is for lb2"),
]


@pytest.mark.parametrize(("people", "changed", "altered", "words"), _FINDINGS)
def test_record_that_does_not_verify_is_a_finding_and_no_change_by_anyone(
    watch: Watch,
    people: Sequence[str],
    changed: Mapping[str, object],
    altered: tuple[str, str],
    words: str,
):
    watch.host.keep(watch.host.make_plan(**changed), *people)
    watch.host.record = watch.host.record.replace(*altered)
    (entry,) = watch.read()
    event = entry.event
    assert isinstance(event, events.OfflineRecordInvalid)
    assert words in event.reason
    assert (entry.person, entry.host) == ("", "lb1")
    assert len(watch.read()) == 1
    (shown,) = watch.list_changes()
    assert (shown.rank, shown.person, words in shown.outcome) == (0, "", True)


def test_step_that_the_plan_does_not_have_is_a_finding(watch: Watch):
    watch.host.keep(watch.host.make_plan(), "olga", "adam", step="2-do")
    (entry,) = watch.read()
    assert entry.facts["reason"] == "its plan has no step 2"


def test_host_that_does_not_answer_is_read_the_next_time(watch: Watch):
    watch.host.keep(watch.host.make_plan(), "olga", "adam")
    watch.host.is_up = False
    assert watch.read() == []
    watch.host.is_up = True
    assert len(watch.read()) == 1


def test_record_that_is_too_long_is_read_from_fewer_days_and_is_a_finding(watch: Watch):
    watch.host.keep(watch.host.make_plan(), "olga", "adam")
    watch.host.too_long = 10
    change, finding = watch.read()
    assert watch.host.asked == ["a history 31\n", "a history 15\n", "a history 7\n"]
    assert change.event.kind == events.ChangedOffline.kind
    assert isinstance(finding.event, events.OfflineRecordInvalid)
    assert "only that of the last 7 days was read" in finding.event.reason
    assert len(watch.read()) == 2


def test_record_of_one_day_that_is_too_long_is_a_finding(watch: Watch):
    watch.host.too_long = 0
    (finding,) = watch.read()
    assert isinstance(finding.event, events.OfflineRecordInvalid)
    assert "so none of it was read" in finding.event.reason


def test_odd_part_of_a_record_is_a_finding_and_hides_no_change(watch: Watch):
    watch.host.record = "kernel: a message\np y/1-do 5\n"
    watch.host.keep(watch.host.make_plan(), "olga", "adam")
    change, finding = watch.read()
    assert change.event.kind == events.ChangedOffline.kind
    assert isinstance(finding.event, events.OfflineRecordInvalid)
    assert "2 parts of the record of the host cannot be read" in finding.event.reason
    assert "“kernel: a message”: its format is unknown" in finding.event.reason
    assert len(watch.read()) == 2


def test_change_stays_logged_as_it_is_after_a_signer_has_left(watch: Watch):
    watch.host.keep(watch.host.make_plan(), "olga", "adam")
    watch.read()
    people = watch.host.desk.policy.path / "people.yaml"
    people.write_text(people.read_text().replace(watch.host.desk.keys["adam"].line, NEW_KEY))
    assert len(watch.read()) == 1


def test_database_is_not_locked_where_nothing_is_new(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
):
    for _ in range(3):
        watch.host.keep(watch.host.make_plan(), "olga", "adam")
    watch.host.record += "p y/1-do 5\n"
    assert len(watch.read()) == 4

    def refuse() -> None:
        raise AssertionError("the database is locked")

    monkeypatch.setattr(watch.database, "transaction", refuse)
    assert len(watch.read()) == 4
