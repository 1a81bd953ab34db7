"""The runbook that counts web clients, against a real nginx over a real sshd."""

import gzip
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.errors import CommandError
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from runbooks.bots_top import BotsTop
from tests.playground.nginx import Nginx
from tests.playground.sshd import Sshd

pytestmark = pytest.mark.real

LOOK = BotsTop.model_validate({"host": "web1"})


@pytest.fixture
def nginx() -> Iterator[Nginx]:
    with Nginx("location /busy { return 503; }") as nginx:
        yield nginx


@pytest.fixture
def fleet(sshd: Sshd, nginx: Nginx) -> Iterator[Fleet]:
    files = f"{nginx.directory}/access.log*"
    entry = sshd.inventory_entry(area="web", settings={"access_log.files": files})
    fleet = Fleet(Inventory.model_validate({"hosts": {"web1": entry}}), SshPool(Path("/")))
    yield fleet
    fleet.close()


def test_access_log_requests_are_counted_by_agent_in_rotated_files(fleet: Fleet, nginx: Nginx):
    for path, agent in (("/", "ada/1"), ("/", "ada/1"), ("/busy", "eve/2"), ("/", "eve/2")):
        nginx.get(path, agent)
    log = nginx.directory / "access.log"
    # nginx logs a request when it has closed the connection, which may be after the next one.
    deadline = time.monotonic() + 10
    while log.read_text().count("\n") < 4:
        assert time.monotonic() < deadline
    with log.open("rb") as plain, gzip.open(f"{log}.2.gz", "wb") as packed:
        shutil.copyfileobj(plain, packed)
    report = LOOK.report(LOOK.read(fleet.run_query))
    assert report.table is not None
    assert {(row[1], row[3], row[5]) for row in report.table.rows} >= {
        ("4", "0%", "ada/1"),
        ("4", "50%", "eve/2"),
    }


def test_client_that_pretends_to_be_a_search_engine_is_reported(fleet: Fleet, nginx: Nginx):
    nginx.get("/", "Mozilla/5.0 (compatible; Googlebot/2.1)")
    report = LOOK.report(LOOK.read(fleet.run_query))
    assert any("claims to be Googlebot and is not" in finding for finding in report.findings)


def test_missing_access_log_is_reported_with_the_setting(fleet: Fleet, nginx: Nginx):
    nginx.stop()
    for log in nginx.directory.glob("access.log*"):
        log.unlink()
    with pytest.raises(CommandError, match=r"set access_log\.files"):
        LOOK.read(fleet.run_query)
