"""The runbook that counts web clients, against the syslog lines of a real HAProxy."""

import gzip
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from runbooks.bots_top import BotsTop
from tests.playground.daemon import Daemon, find_program
from tests.playground.haproxy import HAPROXY
from tests.playground.sshd import Sshd

pytestmark = pytest.mark.real

LOOK = BotsTop.model_validate({"host": "lb1"})
_CONFIG = """\
global
    log {0}/syslog.sock format rfc3164 local0
defaults
    mode http
    log global
    option httplog
    timeout connect 5s
    timeout client 5s
    timeout server 5s
frontend http
    bind unix@{0}/http.sock accept-proxy
    capture request header User-Agent len 64
    http-request deny deny_status 503 if {{ path /busy }}
    http-request return status 200
"""


class Logging(Daemon):
    """A HAProxy with syslog's part played here: its lines go to a file, with the host's name."""

    def __init__(self) -> None:
        super().__init__()
        self._syslog = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._syslog.bind(str(self.directory / "syslog.sock"))
        self._syslog.settimeout(10)
        self.journal = self.directory / "haproxy.log"

    def get(self, address: str, path: str, agent: str) -> None:
        """Ask for a page, and have what is logged of it."""
        self._get(address, path, agent)
        while path not in self._noted():
            pass

    def close(self) -> None:
        self._syslog.close()
        super().close()

    def _noted(self) -> str:
        datagram = self._syslog.recv(65536).decode()
        line = re.sub(r"^<\d+>(\w+ +\d+ [\d:]+) ", r"\1 lb1 ", datagram)
        with self.journal.open("a") as log:
            log.write(line.rstrip("\n") + "\n")
        return line

    def _get(self, address: str, path: str, agent: str) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(self.directory / "http.sock"))
            family = "TCP6" if ":" in address else "TCP4"
            here = "::1" if ":" in address else "127.0.0.1"
            connection.sendall(
                f"PROXY {family} {address} {here} 50000 80\r\nGET {path} HTTP/1.1\r\n"
                f"Host: shop.example\r\nConnection: close\r\nUser-Agent: {agent}\r\n\r\n".encode()
            )
            while connection.recv(65536):
                pass

    def _choose_ports(self) -> None:
        pass

    def _configure(self) -> list[str]:
        config = self.directory / "haproxy.cfg"
        config.write_text(_CONFIG.format(self.directory))
        return [find_program(HAPROXY, package="haproxy"), "-db", "-f", str(config)]

    def _answers(self) -> bool:
        return (self.directory / "http.sock").exists()


@pytest.fixture
def balancer() -> Iterator[Logging]:
    with Logging() as balancer:
        yield balancer


@pytest.fixture
def fleet(sshd: Sshd, balancer: Logging) -> Iterator[Fleet]:
    settings = {"access_log.files": f"{balancer.directory}/haproxy.log*"}
    entry = sshd.inventory_entry(area="edge", settings=settings)
    fleet = Fleet(Inventory.model_validate({"hosts": {"lb1": entry}}), SshPool(Path("/")))
    yield fleet
    fleet.close()


def test_haproxy_log_clients_are_counted_in_rotated_files(fleet: Fleet, balancer: Logging):
    for address, path, agent in (
        ("203.0.113.9", "/", "curl/8.0 (a; b)"),
        ("203.0.113.9", "/busy", "curl/8.0 (a; b)"),
        ("2001:db8::7", "/", "Mozilla/5.0 Firefox/133.0"),
    ):
        balancer.get(address, path, agent)
    with balancer.journal.open("a") as log:
        log.write(f"{time.strftime('%b %d %T')} lb1 haproxy[7]: Proxy http started.\n")
        log.write(
            f"{time.strftime('%b %d %T')} lb1 haproxy[7]: 203.0.113.9:50000 "
            f"[{time.strftime('%d/%b/%Y:%T')}.123] tcp db/one 0/0/120 212 -- 1/1/0/0/0 0/0\n"
        )
    rotated = balancer.journal.with_name("haproxy.log.2.gz")
    rotated.write_bytes(gzip.compress(balancer.journal.read_bytes()))
    traffic = LOOK.read(fleet.run_query).traffic
    # What is no request is passed over; of what else it is logged, it is told that it is.
    assert (traffic.requests, traffic.unparsed_lines) == (6, 2)
    assert {
        (each.address, each.agent, each.requests, each.refused_requests)
        for each in traffic.clients
    } == {
        ("203.0.113.9", "curl/8.0 (a; b)", 4, 2),
        ("2001:db8::7", "Mozilla/5.0 Firefox/133.0", 2, 0),
    }
