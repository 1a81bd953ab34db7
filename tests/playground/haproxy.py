"""A real HAProxy that marks clients above a request rate, as a shop's load balancer does.

Traffic carries the client's address by the PROXY protocol: a listener with `accept-proxy`, a Unix
socket that nobody else can take; a plain TCP listener is there for people with curl. `src` is then
203.0.113.9 before the request is read, where clients are tracked in production, and rates count
connections. `http-request set-src hdr(X-Forwarded-For)` would come after that. One word differs
from a load balancer that is the first to see its clients: it tracks in `tcp-request session`
rules, because those of `tcp-request connection` run before the PROXY header is read.

A client whose mark alone is cleared is marked again by its next request while its rate in the
table `www` is still above the limit. Whoever lets a client back in at once clears both entries.
"""

import socket
from pathlib import Path
from typing import Literal

from tests.playground.backend_server import BackendServer
from tests.playground.daemon import Daemon, find_free_port, find_program

HAPROXY = "/usr/sbin/haproxy"
Level = Literal["admin", "operator", "user"]

_CONFIG = """\
global
    nbthread 1
    maxconn 500
    # Or another HAProxy could bind the same port and take half of the connections.
    noreuseport
    stats socket {admin} mode 600 level admin
    stats socket {operator} mode 600 level operator
    stats socket {user} mode 600 level user

defaults
    mode http
    timeout connect 5s
    timeout client 10s
    timeout server 10s

frontend http
    bind {address}:{port}
    bind unix@{proxied} accept-proxy
    stick-table type ip size 200k expire 10m store gpc0
    acl source_is_abuser src_get_gpc0(http) gt 0
    # An abuser is not tracked, so that the entry can expire while requests still come in.
    tcp-request session track-sc0 src if !source_is_abuser
    use_backend abusers if source_is_abuser
    default_backend www

backend www
    stick-table type ip size 200k expire {period}s store {rates}
    http-request track-sc1 src
    acl conn_rate_abuse sc1_conn_rate gt {conn_limit}
    acl data_rate_abuse sc1_bytes_out_rate gt {bytes_limit}
    acl mark_as_abuser sc0_inc_gpc0 gt 0
    http-request deny deny_status 503 if conn_rate_abuse mark_as_abuser
    http-request deny deny_status 503 if data_rate_abuse mark_as_abuser
    server origin 127.0.0.1:{origin}

backend abusers
    http-request return status 503 content-type text/plain string "Too many requests."

frontend others
    bind unix@{others} accept-proxy
    http-request track-sc0 req.hdr(X-User) table tbl-string
    http-request track-sc1 src table tbl-ipv6
    http-request return status 200

backend tbl-string
    stick-table type string len 64 size 10k expire 1h store gpt0,http_req_rate(10s)

backend tbl-ipv6
    stick-table type ipv6 size 100k expire 1h store gpc0
"""

# What the tables beside the story hold: texts with blanks and equals signs, and IPv6 addresses.
USERS = ("alice", "bob smith", "x=1 key=evil", "été")
ADDRESSES = ("2001:db8::7", "2001:db8::8")


class Haproxy(Daemon):
    """HAProxy with the tables `http` (marks) and `www` (rates), and an origin server behind.

    conn_limit: connections of one client within `period` seconds; one more marks it.
    bytes_limit: bytes sent to one client within 60 seconds.
    """

    def __init__(
        self,
        *,
        address: str = "127.0.0.1",
        conn_limit: int = 42,
        bytes_limit: int = 20_000_000,
        period: int = 100,
    ) -> None:
        self._haproxy = find_program(HAPROXY, package="haproxy")
        super().__init__()
        self.address = address
        self.port = 0
        self._origin: BackendServer | None = None
        self._limits = {"conn_limit": conn_limit, "bytes_limit": bytes_limit, "period": period}

    @property
    def url(self) -> str:
        """Where a person reaches the site."""
        return f"http://{self.address}:{self.port}/"

    @property
    def config(self) -> Path:
        """The path of its configuration."""
        return self.directory / "haproxy.cfg"

    def socket(self, level: Level) -> str:
        """Return the path of the runtime socket that allows this much."""
        return self._socket(level)

    def runtime(self, command: str, *, level: Level = "admin") -> str:
        """Say one line to the runtime socket and return its whole answer, as it is."""
        return _exchange(self.socket(level), f"{command}\n".encode()).decode()

    def tables(self) -> str:
        """Return what `show table` says: one line for each table."""
        return self.runtime("show table")

    def table(self, name: str) -> str:
        """Return what `show table NAME` says: the entries, one a line."""
        return self.runtime(f"show table {name}")

    def marked(self, address: str) -> bool:
        return " gpc0=1" in self.runtime(f"show table http key {address}")

    def get(self, address: str, path: str = "/") -> int:
        """Ask for a page as the client with this address; return the status."""
        return self._get("proxied", address, path)

    def abuse(self, address: str, *, requests: int = 200, path: str = "/") -> int:
        """Ask as this client until it is marked; return how many requests that took."""
        for count in range(1, requests + 1):
            if self.get(address, path) == 503 and self.marked(address):
                return count
        raise RuntimeError(f"{requests} requests of {address} did not mark it")

    def clear(self, address: str) -> None:
        """Forget the client's mark and its rates."""
        for name in ("http", "www"):
            self.runtime(f"clear table {name} key {address}")

    def bury(self) -> None:
        super().bury()
        if self._origin is not None:
            self._origin.stop()
            self._origin = None

    def _choose_ports(self) -> None:
        self.port = find_free_port(self.address)

    def _configure(self) -> list[str]:
        self._origin = BackendServer().start()
        sockets = {name: self._socket(name) for name in ("admin", "operator", "user")}
        self.config.write_text(
            _CONFIG.format(
                address=self.address,
                port=self.port,
                origin=self._origin.port,
                proxied=self._socket("proxied"),
                others=self._socket("others"),
                rates=f"conn_rate({self._limits['period']}s),bytes_out_rate(60s)",
                **sockets,
                **self._limits,
            )
        )
        return [self._haproxy, "-db", "-f", str(self.config)]

    def _answers(self) -> bool:
        try:
            if "table: http," not in self.tables():
                return False
        except OSError:  # not there yet, or left by the process before
            return False
        for user, address in zip(USERS * len(ADDRESSES), ADDRESSES * len(USERS), strict=True):
            self._get("others", address, "/", user)
        return True

    def _socket(self, name: str) -> str:
        return str(self.directory / f"{name}.sock")

    def _get(self, listener: str, address: str, path: str, user: str = "") -> int:
        family, here = ("TCP6", "::1") if ":" in address else ("TCP4", "127.0.0.1")
        # https://www.haproxy.org/download/2.6/doc/proxy-protocol.txt, version 1
        request = (
            f"PROXY {family} {address} {here} 50000 80\r\n"
            f"GET {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n"
            f"X-User: {user}\r\n\r\n"
        )
        answer = _exchange(self._socket(listener), request.encode())
        return int(answer.split(maxsplit=2)[1])


def _exchange(path: str, request: bytes) -> bytes:
    """Say something to a Unix socket and return all that comes until the other side closes."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(path)
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))
