"""A site without a worker: something waits for it, and nobody takes it."""

import threading
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from bot.custody.condition import Condition, sites
from bot.dispatch.crew import Crew
from bot.dispatch.procrastinated import Procrastinated
from bot.doctor import records
from bot.doctor.patient import Patient
from bot.finding import Finding
from bot.redaction import Redactor
from bot.store import schema
from bot.store.database import Database
from bot.store.seal import Seal
from tests.bot.office import Office, an_office
from tests.bot.web.conftest import a_site
from tests.playground.postgres import Postgres

pytestmark = pytest.mark.real


@pytest.fixture
def database(postgres: Postgres) -> Generator[Database]:
    with closing(Database(postgres.new_database(), Seal.new())) as database:
        schema.upgrade(database)
        yield database


def _waits_at(database: Database, site: str, *runs: int, seconds: int = 20) -> None:
    """Have runs wait at a site, for so long already."""
    with database.transaction() as tx:
        for run in runs:
            Procrastinated().enqueue(tx, run, site)
    with database.transaction() as tx:
        tx.sql.execute(
            text("UPDATE procrastinate_events SET at = at - make_interval(secs => :seconds)"),
            {"seconds": seconds},
        )


def _sites(database: Database) -> Finding:
    with database.reading() as tx:
        return sites(tx)


def test_a_site_that_nobody_works_for_is_told_with_what_to_do(database: Database):
    assert _sites(database).mark == "ok"
    _waits_at(database, "ams", 1, 2)
    found = _sites(database)
    assert found.mark == "mend"
    assert found.said.startswith("no worker is heard of at ams (2 wait, the first for 2")
    assert found.said.endswith(": keyturn worker --site ams")
    assert found in Condition(database).findings()


def test_what_has_just_been_asked_is_no_trouble(database: Database):
    _waits_at(database, "ams", 1, seconds=5)
    assert _sites(database).mark == "ok"


def test_a_site_whose_workers_are_busy_has_some(database: Database):
    """Its twin is above: without the worker the very same wait is told of."""
    begun, go = threading.Event(), threading.Event()

    def advance(_: int) -> None:
        begun.set()
        assert go.wait(20)

    crew = Crew(database.url, sites=["ams"], threads=1, look_threads=1)
    crew.start(advance)
    try:
        _waits_at(database, "ams", 1)
        assert begun.wait(10)
        _waits_at(database, "ams", 2)
        _waits_at(database, "fra", 3)
        found = _sites(database)
        assert "fra" in found.said
        assert "ams" not in found.said
    finally:
        go.set()
        assert crew.stop(20)


def test_one_process_alone_has_no_sites_to_tell_of(office: Office):
    assert "Sites" not in {one.about for one in Condition(office.database).findings()}


def test_the_doctor_tells_where_workers_do_the_work(database: Database, tmp_path: Path):
    _waits_at(database, "ams", 1)

    def looked(*, distributed: bool) -> dict[str, str]:
        patient = Patient(
            data=tmp_path,
            policy=tmp_path,
            keys=tmp_path,
            database=database.url,
            redactor=Redactor(),
            distributed=distributed,
        )
        return {one.about: one.mark for one in records.findings(patient)}

    assert looked(distributed=True)["the sites"] == "mend"
    assert "the sites" not in looked(distributed=False)


def test_strangers_are_told_that_there_is_one_and_not_which(database: Database, tmp_path: Path):
    _waits_at(database, "ams", 1)
    with an_office(tmp_path, database=database) as office:
        site = a_site(office)
        answer = site.browser().get("/readyz")
        site.browsers[0].close()
    assert answer.status_code == 200
    assert "keyturn doctor says which" in answer.json()["sites"]
    assert "ams" not in answer.text
