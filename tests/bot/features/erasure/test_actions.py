"""Output can be erased by two persons, and the change log still verifies."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from bot.audit import change_log, verification
from bot.db import outbox, outputs, runs, search, search_words
from bot.features.erasure.actions import ErasureActions
from bot.features.erasure.readings import preview_erasure
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.redaction import MARK
from bot.model.run import RequestTerms, Run
from bot.queries.log_formats import iterate_export
from tests.bot.audit.test_verification import VERIFIER
from tests.bot.harness import WEB, Harness
from tests.toy import SetSwitch, ShowSwitches

WHY = "it names a customer"


def _find_broken_entry(harness: Harness) -> int | None:
    with harness.database.reading() as tx:
        return verification.verify_log(tx).broken


def _verify_alone(harness: Harness, directory: Path) -> str:
    file = directory / "export.jsonl"
    with harness.database.reading() as tx:
        file.write_text("".join(f"{json.dumps(line)}\n" for line in iterate_export(tx)))
    ended = subprocess.run(
        [sys.executable, str(VERIFIER), str(file)], capture_output=True, text=True, check=False
    )
    return ended.stdout + ended.stderr


def _request_erasure(harness: Harness, number: int, person: str, why: str = WHY) -> None:
    harness.service.bind(ErasureActions).request_erasure(
        number, person=person, reason=why, source="web"
    )


def _get_digest(harness: Harness, number: int) -> str:
    with harness.database.reading() as tx:
        return preview_erasure(tx, runs.get_run(tx, number)).digest


def _confirm_erasure(harness: Harness, number: int, person: str) -> int:
    digest = _get_digest(harness, number)
    return harness.service.bind(ErasureActions).confirm_erasure(
        number, person=person, digest=digest
    )


@pytest.fixture
def done(harness: Harness) -> Run:
    with harness.database.transaction() as tx:
        verification.open_log(tx)
    return harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))


def _read_output(harness: Harness, run: Run) -> str:
    with harness.database.reading() as tx:
        return runs.list_steps(tx, run.id)[0].output


def test_erasure_by_two_persons_removes_output_and_the_log_still_verifies(
    harness: Harness, done: Run, tmp_path: Path
):
    assert _read_output(harness, done) == "lamp is on now"
    _request_erasure(harness, done.id, "dora", WHY)
    assert _read_output(harness, done) == "lamp is on now"
    assert _confirm_erasure(harness, done.id, "olga") == 1
    assert _read_output(harness, done) == ""
    with harness.database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"lamp is on now" not in (tmp_path / "keyturn.db").read_bytes()
    assert _find_broken_entry(harness) is None
    assert "log intact" in _verify_alone(harness, tmp_path)
    assert harness.list_entry_kinds(done)[-2:] == ["erasure requested", "output erased"]


def test_erasure_removes_the_report_of_a_check(harness: Harness):
    run = harness.request(ShowSwitches(host="lb1"))
    assert run.report
    _request_erasure(harness, run.id, "dora", WHY)
    _confirm_erasure(harness, run.id, "olga")
    assert harness.get_run(run.id).report is None


@pytest.mark.parametrize("person", ["dora", "stan"])
def test_erasure_is_refused_when_requester_or_another_area_confirms(
    harness: Harness, done: Run, person: str
):
    _request_erasure(harness, done.id, "dora", WHY)
    with pytest.raises(NotAllowed):
        _confirm_erasure(harness, done.id, person)
    assert _read_output(harness, done) == "lamp is on now"
    assert harness.list_entry_kinds(done)[-1] == "erasure refused"


def test_erasure_cannot_be_confirmed_without_an_open_request(harness: Harness, done: Run):
    with pytest.raises(TooLate, match="has no open request"):
        _confirm_erasure(harness, done.id, "olga")
    _request_erasure(harness, done.id, "dora", WHY)
    _confirm_erasure(harness, done.id, "olga")
    with pytest.raises(TooLate):
        _confirm_erasure(harness, done.id, "olga")
    with pytest.raises(TooLate, match="has no stored output"):
        _request_erasure(harness, done.id, "dora", WHY)


def test_erasure_confirmation_is_rejected_when_the_request_changed(harness: Harness, done: Run):
    _request_erasure(harness, done.id, "dora")
    seen = _get_digest(harness, done.id)
    _request_erasure(harness, done.id, "stan", "it names another customer")
    with pytest.raises(TooLate, match="has changed: reload the page"):
        harness.service.bind(ErasureActions).confirm_erasure(done.id, person="olga", digest=seen)
    assert _read_output(harness, done) == "lamp is on now"
    # The twin: what they see now is erased.
    assert _confirm_erasure(harness, done.id, "olga") == 1


class TestDeclinedErasure:
    WHY = "the audit of this year needs it"

    def _decline(self, harness: Harness, number: int, person: str) -> None:
        harness.service.bind(ErasureActions).decline_erasure(
            number, person=person, reason=self.WHY
        )

    def test_declined_erasure_keeps_the_output_and_cannot_be_confirmed(
        self, harness: Harness, done: Run
    ):
        _request_erasure(harness, done.id, "dora")
        seen = _get_digest(harness, done.id)
        self._decline(harness, done.id, "olga")
        with pytest.raises(TooLate, match="has no open request"):
            harness.service.bind(ErasureActions).confirm_erasure(
                done.id, person="adam", digest=seen
            )
        assert _read_output(harness, done) == "lamp is on now"
        with harness.database.reading() as tx:
            entry = change_log.get_last_entry_of_run(tx, done.id)
            news_of = [item.run for item in outbox.list_pending_updates(tx)]
        assert entry
        assert (entry.kind, entry.person) == ("erasure declined", "olga")
        assert (entry.facts["reason"], entry.facts["requested_by"]) == (self.WHY, "dora")
        assert done.id in news_of

    def test_declined_erasure_can_be_requested_again(self, harness: Harness, done: Run):
        _request_erasure(harness, done.id, "dora")
        self._decline(harness, done.id, "olga")
        _request_erasure(harness, done.id, "dora", "the customer insists on it")
        assert _confirm_erasure(harness, done.id, "olga") == 1

    @pytest.mark.parametrize("person", ["dora", "stan"])
    def test_erasure_is_declined_neither_by_its_requester_nor_by_a_non_owner(
        self, harness: Harness, done: Run, person: str
    ):
        _request_erasure(harness, done.id, "dora")
        with pytest.raises(NotAllowed):
            self._decline(harness, done.id, person)
        assert harness.list_entry_kinds(done)[-1] == "erasure refused"
        # The twin: it waits still, and an owner's no counts.
        self._decline(harness, done.id, "adam")

    def test_erasure_is_declined_only_with_a_reason_and_an_open_request(
        self, harness: Harness, done: Run
    ):
        with pytest.raises(TooLate):
            self._decline(harness, done.id, "olga")
        _request_erasure(harness, done.id, "dora")
        with pytest.raises(InvalidRequestError, match="reason"):
            harness.service.bind(ErasureActions).decline_erasure(
                done.id, person="olga", reason="no"
            )


def test_erasure_cannot_be_requested_twice_by_one_person(harness: Harness, done: Run):
    _request_erasure(harness, done.id, "dora")
    with pytest.raises(TooLate, match="you have already requested it"):
        _request_erasure(harness, done.id, "dora")


def test_erasure_of_output_in_a_removed_area_cannot_be_confirmed(harness: Harness, done: Run):
    _request_erasure(harness, done.id, "dora")
    path = harness.policies.path
    for name in ("areas.yaml", "inventory.yaml"):
        file = path / name
        file.write_text(file.read_text().replace("edge", "rim"))
    with pytest.raises(NotAllowed, match="no area edge any more"):
        _confirm_erasure(harness, done.id, "olga")


def test_erasure_request_needs_a_reason_and_an_ended_run(harness: Harness, done: Run):
    with pytest.raises(InvalidRequestError, match="reason"):
        _request_erasure(harness, done.id, "dora", "so")
    with pytest.raises(NotAllowed):
        _request_erasure(harness, done.id, "nobody", WHY)
    waiting = harness.request(SetSwitch(host="lb1", name="fan", value="on"))
    with pytest.raises(InvalidRequestError, match="is pending"):
        _request_erasure(harness, waiting.id, "dora", WHY)


@pytest.mark.parametrize(
    ("tampering", "message"),
    [
        ("UPDATE output SET text = 'lamp is off now'", "was altered"),
        ("UPDATE output SET text = NULL, salt = NULL", "was erased without a request"),
        ("DELETE FROM output", "is missing"),
    ],
)
def test_output_altered_or_erased_in_the_database_is_found_by_verification(
    harness: Harness, done: Run, tampering: str, message: str, tmp_path: Path
):
    with harness.database.transaction() as tx:
        tx.sql.execute(text(tampering))
    with harness.database.reading() as tx:
        verdict = verification.verify_log(tx)
    assert message in verdict.why
    assert f"BROKEN at entry {verdict.broken}:" in _verify_alone(harness, tmp_path)


def test_long_output_is_truncated_after_redaction(harness: Harness):
    harness.database.redactor.add_secrets("a-secret-of-ours")
    with harness.database.transaction() as tx:
        edge = "x" * (outputs.MAX_CHARACTERS - 5) + "a-secret-of-ours" + "y" * 100
        stored = outputs.prepare_output(tx, edge)
    assert MARK[:5] in stored.text
    assert "a-sec" not in stored.text
    assert "characters are left out here" in stored.text


def test_check_is_found_by_its_summary_before_and_after_erasure(
    harness: Harness,
):
    run = harness.request(ShowSwitches(host="lb1"))
    wanted = search.RunFilter(text=search_words.parse_search(run.summary))
    with harness.database.reading() as tx:
        assert [one.id for one in search.find_newest_runs(tx, wanted, most=9)] == [run.id]
    _request_erasure(harness, run.id, "dora")
    _confirm_erasure(harness, run.id, "olga")
    with harness.database.reading() as tx:
        assert [one.id for one in search.find_newest_runs(tx, wanted, most=9)] == [run.id]


def test_output_of_a_check_of_several_areas_is_erased_by_an_owner_of_all(harness: Harness):
    harness.fleet.hosts |= {"lb2": {"lamp": "off"}, "web1": {"lamp": "on"}}
    requests = [ShowSwitches(host=name) for name in ("lb1", "lb2", "web1")]
    run = harness.service.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern="*")
    harness.run_queued_work()
    erasing = harness.service.bind(ErasureActions)
    erasing.request_erasure(run.id, person="dora", reason="it names a customer", source="web")
    with harness.database.reading() as tx:
        digest = preview_erasure(tx, harness.get_run(run.id)).digest
    with pytest.raises(NotAllowed, match="an owner of the edge and the web servers can"):
        erasing.confirm_erasure(run.id, person="adam", digest=digest)
    assert harness.get_run(run.id).report
    erasing.confirm_erasure(run.id, person="olga", digest=digest)
    assert harness.get_run(run.id).report is None
