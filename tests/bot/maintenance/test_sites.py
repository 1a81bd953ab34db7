"""Sites without a worker while runs wait for them."""

import threading
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from bot.db.database import Database
from bot.execution.procrastinate_dispatch import ProcrastinateDispatcher
from bot.execution.procrastinate_worker import ProcrastinateWorker
from bot.health import ServiceHealth, check_sites
from bot.maintenance import check_installation
from bot.maintenance.installation import Installation
from bot.model.check_result import CheckResult
from bot.model.redaction import Redactor
from tests.bot.databases import create_postgresql_database
from tests.bot.harness import Harness, open_harness
from tests.bot.web.conftest import create_site
from tests.playground.postgres import Postgres

pytestmark = pytest.mark.real


@pytest.fixture
def database(postgres: Postgres) -> Generator[Database]:
    with closing(create_postgresql_database(postgres)) as database:
        yield database


def _add_waiting_runs(database: Database, site: str, *runs: int, seconds: int = 20) -> None:
    """Have runs wait at a site, for so long already."""
    with database.transaction() as tx:
        for run in runs:
            ProcrastinateDispatcher().enqueue_run(tx, run, site)
    with database.transaction() as tx:
        tx.sql.execute(
            text("UPDATE procrastinate_events SET at = at - make_interval(secs => :seconds)"),
            {"seconds": seconds},
        )


def _check_sites(database: Database) -> CheckResult:
    with database.reading() as tx:
        return check_sites(tx)


def test_site_without_a_worker_is_reported_with_the_command_to_start_one(database: Database):
    assert _check_sites(database).level == "ok"
    _add_waiting_runs(database, "ams", 1, 2)
    sites = _check_sites(database)
    assert sites.level == "error"
    assert sites.message.startswith("no worker at ams (2 waiting, the first for 2")
    assert sites.message.endswith(": run keyturn worker --site ams")
    assert sites in ServiceHealth(database).list_results()


def test_site_with_a_fresh_request_is_not_reported_as_without_a_worker(database: Database):
    _add_waiting_runs(database, "ams", 1, seconds=5)
    assert _check_sites(database).level == "ok"


def test_site_with_busy_workers_is_not_reported(database: Database):
    """Its twin is above: without the worker the very same wait is told of."""
    begun, go = threading.Event(), threading.Event()

    def advance(_: int) -> None:
        begun.set()
        assert go.wait(20)

    crew = ProcrastinateWorker(database.url, sites=["ams"], threads=1, check_threads=1)
    crew.start(advance)
    try:
        _add_waiting_runs(database, "ams", 1)
        assert begun.wait(10)
        _add_waiting_runs(database, "ams", 2)
        _add_waiting_runs(database, "fra", 3)
        sites = _check_sites(database)
        assert "fra" in sites.message
        assert "ams" not in sites.message
    finally:
        go.set()
        assert crew.stop(20)


def test_embedded_engine_reports_no_sites(harness: Harness):
    assert "Sites" not in {one.subject for one in ServiceHealth(harness.database).list_results()}


def test_doctor_checks_sites_only_in_distributed_mode(database: Database, tmp_path: Path):
    _add_waiting_runs(database, "ams", 1)

    def looked(*, distributed: bool) -> dict[str, str]:
        patient = Installation(
            data=tmp_path,
            policy=tmp_path,
            keys=tmp_path,
            database=database.url,
            redactor=Redactor(),
            distributed=distributed,
        )
        return {one.subject: one.level for one in check_installation.check_records(patient)}

    assert looked(distributed=True)["sites"] == "error"
    assert "sites" not in looked(distributed=False)


def test_readiness_reports_a_missing_worker_without_naming_the_site(
    database: Database, tmp_path: Path
):
    _add_waiting_runs(database, "ams", 1)
    with open_harness(tmp_path, database=database) as harness:
        site = create_site(harness)
        answer = site.browser().get("/readyz")
        site.browsers[0].close()
    assert answer.status_code == 200
    assert "run keyturn doctor" in answer.json()["sites"]
    assert "ams" not in answer.text
