"""A change whose rules have @witnessed sends nothing before witnesses have cosigned the log."""

import re
import socket
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bot.audit import change_log, entry_proof, verification
from bot.db import cosignatures
from bot.db.database import Database
from bot.execution import witnessing
from bot.integrations.witnesses import Witnesses
from bot.model.run import Run, State
from bot.model.signing import SigningKey
from bot.model.verifier_keys import list_cosignatures, parse_signed_note
from bot.model.waiting import Waiting, WaitingFor, describe_waiting
from bot.policy.explain import PreviewQuestion
from bot.queries import log_formats
from bot.queries.preview import preview_request
from bot.service import KeyturnService
from tests.bot.authenticator_app import enrol_and_step_up
from tests.bot.databases import create_sqlite_database, skip_fsync
from tests.bot.features.witness.witness_process import WitnessProcess, list_addresses
from tests.bot.harness import Harness, open_harness
from tests.bot.rewritten_log import entries_of, rehash, rewrite
from tests.policies import get_starter_rules
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
SENT = [("lb1", "set lamp on")]


def get_witnessed_rules(number: int) -> str:
    witnessed = f'@approvals("1")\n@witnessed("{number}")'
    return re.sub(r'^@approvals\("1"\)', witnessed, get_starter_rules(), flags=re.M)


@dataclass
class Site:
    """An installation with witnesses."""

    directory: Path
    key: SigningKey
    harness: Harness
    witnesses: Witnesses
    processes: list[WitnessProcess]

    def restart(self) -> None:
        """Begin with the database as it is, as a process does that starts."""
        self.witnesses.close()
        self.harness.database.close()
        database = skip_fsync(Database(f"sqlite:///{self.directory / 'keyturn.db'}", self.key))
        addresses = list_addresses(*self.processes)
        self.witnesses = Witnesses(database, addresses)
        self.use(replace(self.harness, context=replace(self.harness.context, database=database)))

    def use(self, harness: Harness) -> None:
        context = replace(harness.context, witnesses=self.witnesses)
        self.harness = replace(harness, context=context, service=KeyturnService(context))

    def publish(self) -> None:
        """Do what the service does every few seconds."""
        with self.harness.database.reading() as tx:
            size = change_log.get_head(tx)[0]
        self.witnesses.publish_newest(size)
        self.witnesses.wait_for_answers()
        with self.harness.database.transaction() as tx:
            self.witnesses.save_cosignatures(tx)

    def list_sent(self) -> list[tuple[str, str]]:
        return [(host, command) for host, command in self.harness.fleet.sent]


@pytest.fixture
def site(tmp_path: Path) -> Generator[Site]:
    key = SigningKey.create()
    database = create_sqlite_database(tmp_path / "keyturn.db", key)
    with open_harness(tmp_path, rules=get_witnessed_rules(1), database=database) as harness:
        with database.transaction() as tx:
            verification.open_log(tx)
        process = WitnessProcess(tmp_path, database)
        site = Site(tmp_path, key, harness, Witnesses(database, [process.address]), [process])
        site.use(harness)
        yield site
        site.witnesses.close()
        for one in site.processes:
            one.stop()


def test_change_runs_once_a_witness_has_cosigned_approval_and_intent(site: Site) -> None:
    run = site.harness.approve(site.harness.request(LAMP_ON))
    assert run.state is State.SUCCEEDED
    assert site.list_sent() == SENT
    kinds = {one.kind: one.seq for one in _list_entries(site.harness, run)}
    with site.harness.database.transaction() as tx:
        site.witnesses.save_cosignatures(tx)
        size = cosignatures.get_newest_size(tx)
        note = change_log.get_checkpoint_to_prove(tx, size)
    assert kinds["approved"] < kinds["step sending"] <= size < kinds["succeeded"]
    assert note is not None
    [line] = note.cosignatures
    assert line.startswith("— w1.example ")


def test_forecast_names_the_required_witnesses(site: Site) -> None:
    policy = site.harness.policies.get_policy()
    with site.harness.database.reading() as tx:
        question = PreviewQuestion(SetSwitch, ("lb1",))
        preview = preview_request(tx, policy, question, person="dora", source="web")
    [area] = preview.areas
    assert (
        "The change log is cosigned by 1 witness before anything is sent."
        in area.evaluation.describe()
    )


def test_witness_that_hangs_delays_no_duty(site: Site) -> None:
    [process] = site.processes
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(20)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        witnesses = Witnesses(site.harness.database, [replace(process.address, url=url)])
        witnesses.publish_newest(1)
        asked, _ = silent.accept()
        # It has not answered, and what others received can be saved.
        with site.harness.database.transaction() as tx:
            witnesses.save_cosignatures(tx)
        witnesses.publish_newest(1)
        assert [one.level for one in witnesses.list_states()] == ["unasked"]
    asked.close()
    witnesses.wait_for_answers()
    assert [one.level for one in witnesses.list_states()] == ["away"]
    witnesses.close()


def _list_entries(harness: Harness, run: Run) -> list[change_log.Entry]:
    with harness.database.reading() as tx:
        return change_log.list_entries_of_run(tx, run.id)


def test_request_waits_while_witnesses_are_away_and_goes_on_when_they_are_back(site: Site) -> None:
    [process] = site.processes
    process.stop()
    site.publish()
    run = site.harness.approve(site.harness.request(LAMP_ON))
    assert (run.state, site.list_sent()) == (State.QUEUED, [])
    assert run.waiting == Waiting(WaitingFor.WITNESSES, "w1.example")
    assert run.waiting is not None
    assert describe_waiting(run.waiting) == (
        "waits for witnesses of the change log that do not cosign it: w1.example"
    )
    for _ in range(2):
        site.harness.service.advancer.advance_run(run.id)
    assert site.harness.list_entry_kinds(run).count("on hold") == 1
    process.start()
    site.publish()
    site.harness.service.advancer.advance_run(run.id)
    run = site.harness.get_run(run.id)
    assert (run.state, run.waiting, site.list_sent()) == (State.SUCCEEDED, None, SENT)


def test_run_waits_for_a_witness_that_restarts_after_the_gate(site: Site) -> None:
    [process] = site.processes
    run = site.harness.request(LAMP_ON)
    site.publish()
    process.stop()
    thread = threading.Thread(target=site.harness.approve, args=(run,))
    thread.start()
    until = time.monotonic() + 10
    while not (waiting := site.harness.get_run(run.id).waiting):
        assert time.monotonic() < until, "it never waited"
    assert (waiting.reason, site.list_sent()) == (WaitingFor.WITNESSES, [])
    process.start()
    thread.join()
    run = site.harness.get_run(run.id)
    assert (run.state, run.waiting, site.list_sent()) == (State.SUCCEEDED, None, SENT)


def test_run_that_loses_its_authority_while_it_waits_sends_nothing(site: Site) -> None:
    [process] = site.processes
    run = site.harness.request(LAMP_ON)
    site.publish()
    process.stop()
    thread = threading.Thread(target=site.harness.approve, args=(run,))
    thread.start()
    until = time.monotonic() + 10
    while not site.harness.get_run(run.id).waiting:
        assert time.monotonic() < until, "it never waited"
    site.harness.service.ban_person(
        "dora", banned_by="adam", reason="her laptop was stolen", requires_factor=False
    )
    process.start()
    thread.join()
    run = site.harness.get_run(run.id)
    assert (run.state, site.list_sent()) == (State.FAILED, [])
    assert "lost its authority. Nothing was sent" in run.summary


def test_run_fails_and_says_that_nothing_was_sent_when_witnesses_stay_away(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witnessing, "PATIENCE_SECONDS", 0)
    site.publish()
    site.processes[0].stop()
    run = site.harness.approve(site.harness.request(LAMP_ON))
    assert (run.state, site.list_sent()) == (State.FAILED, [])
    why = "the cosignature of 1 witness is required, and w1.example is away. Nothing was sent"
    assert why in run.summary


@pytest.mark.parametrize("is_known", [True, False])
def test_break_glass_goes_on_without_witnesses_and_logs_it(site: Site, *, is_known: bool) -> None:
    site.publish()
    site.processes[0].stop()
    if is_known:
        site.publish()
    site.harness.fleet.hosts["web1"] = {"lamp": "off"}
    app = enrol_and_step_up(site.harness, "adam")
    change = SetSwitch(host="web1", name="lamp", value="on")
    run = site.harness.request(change, person="adam", reason="the cellar is dark")
    site.harness.service.break_glass.activate_break_glass(
        run.id,
        person="adam",
        session=app.session,
        digest=run.digest,
        reason="all customers see an error page",
    )
    site.harness.run_queued_work()
    assert site.harness.get_run(run.id).state is State.SUCCEEDED
    [entry] = [one for one in _list_entries(site.harness, run) if one.kind == "not witnessed"]
    assert entry.facts == {"required": 1, "away": ["w1.example"]}
    sending = [one for one in _list_entries(site.harness, run) if one.kind == "step sending"]
    succeeded = [one for one in _list_entries(site.harness, run) if one.kind == "step succeeded"]
    assert sending[0].seq < entry.seq < succeeded[0].seq


def _forge(site: Site) -> Run:
    """Rewrite an old entry with the stolen key of the log, and approve a request afterwards."""
    run = site.harness.request(LAMP_ON)
    site.publish()
    entries = entries_of(site.harness.database)
    altered = [replace(one, at=one.at - 1) if one.kind == "requested" else one for one in entries]
    rewrite(site.harness.database, rehash(altered), site.key)
    site.restart()
    return site.harness.approve(site.harness.get_run(run.id))


def test_rewritten_history_with_a_stolen_key_runs_nothing(site: Site) -> None:
    run = _forge(site)
    assert (run.state, site.list_sent()) == (State.FAILED, [])
    assert "witness w1.example refuses the log" in run.summary
    # The next one is not even started.
    other = site.harness.approve(
        site.harness.request(SetSwitch(host="lb2", name="lamp", value="on"))
    )
    assert (other.state, site.list_sent()) == (State.QUEUED, [])
    assert other.waiting == Waiting(WaitingFor.WITNESSES, "w1.example")


def test_rewritten_history_runs_where_no_rule_requires_witnesses(site: Site) -> None:
    (site.directory / "policy" / "policy.cedar").write_text(get_starter_rules())
    run = _forge(site)
    assert (run.state, site.list_sent()) == (State.SUCCEEDED, SENT)


def test_log_that_was_cut_off_runs_nothing(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    site.harness.request(SetSwitch(host="lb2", name="lamp", value="on"))
    site.publish()
    kept = [one for one in entries_of(site.harness.database) if one.run in {None, run.id}]
    rewrite(site.harness.database, kept, site.key)
    site.restart()
    run = site.harness.approve(site.harness.get_run(run.id))
    assert (run.state, site.list_sent()) == (State.FAILED, [])
    [state] = site.witnesses.list_states()
    assert state.level == "contradicts"


def test_export_and_proof_hold_the_cosignatures(site: Site) -> None:
    run = site.harness.approve(site.harness.request(LAMP_ON))
    site.publish()
    with site.harness.database.reading() as tx:
        approved = next(one for one in _list_entries(site.harness, run) if one.kind == "approved")
        proof = entry_proof.build_proof(tx, approved.seq)
        notes = [
            one["checkpoint"] for one in log_formats.iterate_export(tx) if "checkpoint" in one
        ]
    for note in (proof.partition("\n\n")[2], notes[-1]):
        signed = parse_signed_note(note)
        assert signed is not None
        [cosigned] = list_cosignatures(
            signed.text, signed.signatures, [site.processes[0].address.key]
        )
        assert cosigned.name == "w1.example"
