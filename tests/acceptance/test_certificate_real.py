"""The certificate check against a real TLS server, over a real sshd."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.errors import CommandError
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from runbooks import Report
from tests.playground.daemon import Daemon, find_free_port, find_program
from tests.playground.sshd import Sshd
from tests.runbooks.declared import load_check

pytestmark = pytest.mark.real

OPENSSL = "/usr/bin/openssl"
_NAMES = "subjectAltName=DNS:www.example.com,DNS:*.example.org,IP:127.0.0.1"


class TlsServer(Daemon):
    """A TLS server whose certificate, signed by itself, ends in *days*."""

    def __init__(self, *, days: int, address: str = "127.0.0.1") -> None:
        super().__init__()
        self._days = days
        self._address = address
        self.port = 0

    def _choose_ports(self) -> None:
        self.port = find_free_port(self._address)

    def _configure(self) -> list[str]:
        openssl = find_program(OPENSSL, package="openssl")
        key, asked, shown = (str(self.directory / name) for name in ("key", "csr", "crt"))
        for words in (
            f"genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out {key}",
            f"req -new -key {key} -out {asked} -subj /CN=www.example.com -addext {_NAMES}",
            f"x509 -req -in {asked} -signkey {key} -days {self._days} -copy_extensions copy "
            f"-out {shown}",
        ):
            subprocess.run([openssl, *words.split()], check=True, capture_output=True)
        at = f"{self._address}:{self.port}"
        return [openssl, "s_server", "-accept", at, "-cert", shown, "-key", key, "-www"]

    def _answers(self) -> bool:
        return "ACCEPT" in self._read_log()


@pytest.fixture
def fleet(sshd: Sshd) -> Iterator[Fleet]:
    entry = sshd.inventory_entry(area="web")
    fleet = Fleet(Inventory.model_validate({"hosts": {"web1": entry}}), SshPool(Path("/")))
    yield fleet
    fleet.close()


def check_certificate(fleet: Fleet, port: int, name: str = "") -> Report:
    check = load_check("cert check").model_validate(
        {"host": "web1", "port": port, "server_name": name}
    )
    return check.report(check.read(fleet.run_query))


def test_certificate_is_read_with_its_names_and_expiry(fleet: Fleet):
    with TlsServer(days=90) as server:
        report = check_certificate(fleet, server.port, "shop.example.org")
    assert re.search("in (89|90) days$", report.summary)
    assert report.table is not None
    assert report.table.rows[0][4] == "www.example.com, *.example.org, 127.0.0.1"
    # Nobody trusts a certificate that was signed by itself, and that is all that is wrong with it.
    (finding,) = report.findings
    assert "self-signed certificate (18)" in finding


# A day begins to count a second after the certificate was made.
@pytest.mark.parametrize(
    ("days", "pattern"), [(20, "in (19|20) days: renew it"), (-1, "that expired on")]
)
def test_certificate_near_or_past_its_expiry_is_a_finding(fleet: Fleet, days: int, pattern: str):
    with TlsServer(days=days) as server:
        report = check_certificate(fleet, server.port)
    assert any(re.search(pattern, finding) for finding in report.findings)


def test_a_certificate_for_another_name_is_a_finding(fleet: Fleet):
    with TlsServer(days=90) as server:
        report = check_certificate(fleet, server.port, "example.net")
    assert "it is not for example.net but for www.example.com" in report.findings[0]


def test_tls_server_at_another_address_of_the_host_is_found(fleet: Fleet):
    with TlsServer(days=90, address="127.0.0.77") as server:
        report = check_certificate(fleet, server.port)
    assert report.table is not None
    assert report.table.rows[0][0] == "127.0.0.77"


def test_port_without_tls_is_reported(fleet: Fleet, sshd: Sshd):
    report = check_certificate(fleet, sshd.port)
    assert not report.healthy
    assert "does not use TLS" in report.findings[0]


def test_closed_port_is_an_error_of_the_certificate_check(fleet: Fleet):
    with pytest.raises(CommandError, match="nothing listens at port"):
        check_certificate(fleet, find_free_port("127.0.0.1"))
