"""Table rows show the current state of database, policy and log."""

from sqlalchemy import text

from bot.audit import change_log
from bot.audit.event_type import UnknownEvent
from bot.db import runs
from bot.model.run import State
from tests.bot.web.conftest import Site
from tests.bot.web.sample_runs import add_requested_run


def _some_runs(site: Site) -> None:
    with site.database.transaction() as tx:
        for _ in range(3):
            runs.move_run(tx, add_requested_run(tx), State.FAILED, summary="Out of reach")


def test_runs_row_shows_the_current_state_of_the_run(site: Site) -> None:
    with site.database.transaction() as tx:
        run = add_requested_run(tx)
    browser = site.browser("stan")
    assert "Failed" not in _results(browser.get("/runs").text)
    with site.database.transaction() as tx:
        runs.move_run(tx, run, State.FAILED, summary="Out of reach")
    assert "Failed" in _results(browser.get("/runs").text)


def test_runs_row_shows_the_current_name_of_a_renamed_person(site: Site) -> None:
    _some_runs(site)
    browser = site.browser("stan")
    assert "Dora Developer" in _results(browser.get("/runs").text)
    people = site.policy / "people.yaml"
    people.write_text(people.read_text().replace("Dora Developer", "Dora Married"))
    results = _results(browser.get("/runs").text)
    assert "Dora Married" in results
    assert "Dora Developer" not in results


def test_change_log_row_shows_an_altered_entry_as_it_is_stored(site: Site) -> None:
    with site.database.transaction() as tx:
        change_log.append_entry(
            tx, UnknownEvent(kind="noted", facts={"told": "the truth"}), person="dora"
        )
    browser = site.browser("stan")
    assert "the truth" in browser.get("/changelog").text
    with site.database.engine.connect() as raw:
        for (name,) in raw.execute(
            text("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'entry'")
        ).fetchall():
            raw.execute(text(f'DROP TRIGGER "{name}"'))
        raw.execute(text("UPDATE entry SET body = replace(body, 'the truth', 'a lie')"))
        raw.commit()
    assert "a lie" in browser.get("/changelog").text


def _results(page: str) -> str:
    return page.partition('id="results"')[2]
