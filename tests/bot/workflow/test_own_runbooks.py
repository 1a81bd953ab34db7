"""Runbooks of an installation's own run only as two people have enabled them."""

from pathlib import Path

import pytest
from sqlalchemy import text, update

from bot.audit import change_log, events
from bot.audit.event_type import UnknownEvent
from bot.db import tables
from bot.db.database import StoreUnavailable
from bot.execution import gate
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import State
from bot.queries import own_runbooks
from runbooks import OwnFile, _own, load_catalogue
from runbooks._declared import PageSource
from tests.bot.harness import Harness, open_harness
from tests.policies import get_starter_rules
from tests.runbooks.pages import CHANGE
from tests.toy import SetSwitch, ShowSwitches

ON, SHOW = SetSwitch(host="lb1", name="lamp", value="on"), ShowSwitches(host="lb1")
WORDS, MODULE = SetSwitch.words, SetSwitch.__module__


_INSTALLED: dict[str, OwnFile] = {}


def install_module(monkeypatch: pytest.MonkeyPatch, content: str, module: str = MODULE) -> None:
    """Make a module, the toys by default, one of the installation's own with this content."""
    words = (SetSwitch.words, ShowSwitches.words) if module == MODULE else ()
    file = OwnFile(Path(f"{module.replace('.', '/')}.py"), content.encode(), words)
    monkeypatch.setitem(_INSTALLED, module, file)
    monkeypatch.setitem(vars(_own)["_digests"], module, file.digest)


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    install_module(monkeypatch, "a")
    monkeypatch.setattr(own_runbooks, "read_own_files", lambda: [*_INSTALLED.values()])


def enable(harness: Harness) -> None:
    for person in ("adam", "olga"):
        harness.service.enable_runbook(WORDS, person=person)


def test_own_runbook_is_refused_until_two_people_have_enabled_it(harness: Harness):
    for request in (ON, SHOW):
        refused = harness.request(request)
        assert refused.state is State.REFUSED
        assert f"{MODULE} of your own runbooks is new or was changed" in refused.summary
        assert f"keyturn runbook enable {request.words}" in refused.summary
    first = harness.service.enable_runbook(WORDS, person="adam")
    assert (first.pending, first.people) == ((MODULE,), ("adam",))
    assert harness.request(ON).state is State.REFUSED
    with pytest.raises(NotAllowed, match="another person has to enable it"):
        harness.service.enable_runbook(WORDS, person="adam")
    assert harness.service.enable_runbook(WORDS, person="olga").is_enabled
    with pytest.raises(TooLate, match="enabled already"):
        harness.service.enable_runbook(WORDS, person="olga")
    assert harness.request(SHOW).state is State.SUCCEEDED
    assert harness.approve(harness.request(ON)).state is State.SUCCEEDED
    assert harness.list_entry_kinds().count(events.LocalRunbookEnabled.kind) == 2


def test_page_with_an_error_in_a_condition_cannot_be_enabled(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    text = CHANGE.replace("now != value", "now != valu")
    page = PageSource(Path("runbooks/swappiness_set.yaml"), text.encode())
    file = OwnFile(page.path, page.content, ("swappiness set",), page)
    monkeypatch.setitem(_INSTALLED, file.module, file)
    with pytest.raises(InvalidRequestError, match=r"swappiness_set.yaml: line 17, column 5"):
        harness.service.enable_runbook("swappiness set", person="adam")
    assert events.LocalRunbookEnabled.kind not in harness.list_entry_kinds()


def test_without_the_guard_an_own_runbook_runs_without_being_enabled(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    def find_no_refusal(*_: object) -> str:
        return ""

    monkeypatch.setattr(own_runbooks, "find_refusal", find_no_refusal)
    assert harness.approve(harness.request(ON)).state is State.SUCCEEDED
    assert harness.fleet.sent


def test_changed_own_runbook_is_refused_although_its_plan_was_approved(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    enable(harness)
    run = harness.request(ON)
    assert run.state is State.PENDING
    install_module(monkeypatch, "b")
    refused = harness.approve(run)
    assert refused.state is State.REFUSED
    assert "was changed" in refused.summary
    assert not harness.fleet.sent
    install_module(monkeypatch, "a")
    assert harness.request(SHOW).state is State.SUCCEEDED


def test_gate_refuses_an_own_runbook_that_is_not_enabled(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    enable(harness)
    run = harness.request(ON)
    install_module(monkeypatch, "b")
    with (
        harness.database.transaction() as tx,
        pytest.raises(gate.GateRefused, match="new or was changed"),
    ):
        gate.authorise_run(harness.context, tx, run, harness.policies.get_policy())


def test_own_connector_module_has_to_be_enabled_as_well(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    enable(harness)
    install_module(monkeypatch, "c", "runbooks.another")
    assert harness.request(SHOW).state is State.SUCCEEDED
    install_module(monkeypatch, "c", "connectors.lamps")
    refused = harness.request(SHOW)
    assert refused.state is State.REFUSED
    assert refused.summary.startswith("connectors.lamps of your own")


def test_own_runbook_is_enabled_by_those_who_may_resume_and_alone_by_the_only_one(
    harness: Harness, tmp_path: Path
):
    with pytest.raises(NotAllowed, match="Those who can"):
        harness.service.enable_runbook(WORDS, person="dora")
    with pytest.raises(NotAllowed, match="without --alone"):
        harness.service.enable_runbook(WORDS, person="olga", alone=True)
    with pytest.raises(InvalidRequestError, match="none of your own runbooks"):
        harness.service.enable_runbook("uptime check", person="olga")
    only_olga = """
    @id("nobody else resumes") @description("Only Olga resumes.")
    forbid (principal, action == Action::"resume", resource)
    unless { principal == Person::"olga" };
    """
    with open_harness(tmp_path / "small", rules=get_starter_rules() + only_olga) as small:
        state = small.service.enable_runbook(WORDS, person="olga", alone=True)
        assert state.is_enabled
        with small.database.reading() as tx:
            (entry,) = change_log.list_entries_since(tx, events.LocalRunbookEnabled.kind, 0)
        assert entry.facts["alone"] is True
        assert entry.facts["files"] == {MODULE: _INSTALLED[MODULE].digest}
        assert small.request(SHOW).state is State.SUCCEEDED


def test_altered_log_entry_does_not_enable_an_own_runbook(harness: Harness):
    enable(harness)
    with harness.database.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="noted"))
    with harness.database.transaction() as tx:
        tx.sql.execute(text("DROP TRIGGER entry_no_update"))
        tx.sql.execute(
            update(tables.entry)
            .where(tables.entry.c.kind == events.LocalRunbookEnabled.kind)
            .values(hash="0" * 64)
        )
    with harness.database.transaction() as tx:
        assert own_runbooks.find_refusal(tx, SetSwitch)
        digests = {MODULE: _INSTALLED[MODULE].digest}
        assert own_runbooks.list_enabled_modules(tx, digests) == []


def test_process_without_the_signing_key_loads_no_own_runbook(harness: Harness):
    """It cannot check who signed an entry."""
    enable(harness)
    digests = {MODULE: _INSTALLED[MODULE].digest}
    with harness.database.transaction() as tx:
        assert own_runbooks.list_enabled_modules(tx, digests) == [MODULE]
    with harness.database.reading() as tx, pytest.raises(StoreUnavailable):
        own_runbooks.list_enabled_modules(tx, digests)


def test_run_of_a_runbook_that_is_not_loaded_says_who_enables_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    enable(harness)
    run = harness.request(ON)
    load_catalogue()
    monkeypatch.setitem(vars(harness.context), "runbooks", {})
    monkeypatch.setitem(vars(_own), "_pending", {WORDS})
    refused = harness.approve(run)
    assert refused.is_ended
    assert not harness.fleet.sent
    assert f"run `keyturn runbook enable {WORDS}`. Then restart Keyturn" in refused.summary
