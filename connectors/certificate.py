"""TLS certificates that a host's servers present. No I/O.

The host connects to itself, so no firewall is in between. Formats: ss(8), openssl-s_client(1),
openssl-x509(1), which prints the fields of a name as `CN = www.example.com`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address

from connectors.command import Hint, Query, QueryRunner, Shell
from connectors.errors import CommandError, ParseError
from connectors.rows import Rows, parse_each
from connectors.script import load_script

# Ports whose protocol starts in plain text and switches to TLS (STARTTLS).
_STARTTLS = {
    21: "ftp",
    25: "smtp",
    110: "pop3",
    143: "imap",
    389: "ldap",
    587: "smtp",
    3306: "mysql",
    5432: "postgres",
}

# Addresses to check; more of them usually have the same certificate.
_MOST = 8
_SHOW = load_script("certificate-show")
_HINTS = (
    Hint(r"errno=111|Connection refused", "nothing listens at this address any more"),
    Hint(
        r"wrong version number|packet length too long|unexpected eof",
        "the service does not use TLS, or not from the start of a connection",
    ),
    Hint(
        r"unrecognized name|handshake failure|no peer certificate",
        "the server presents a certificate only for a server name: set server_name",
    ),
    Hint(
        r"Could not (read|find) .*certificate|unable to load certificate",
        "the server presented no certificate within 15 s: it does not use TLS, or requires a "
        "server_name",
    ),
    Hint(r"openssl: .*not found", "install openssl on the host"),
)


@dataclass(frozen=True)
class Certificate:
    """A certificate that a server presents, checked against the host's own trust store."""

    host_time: datetime
    """The host's clock."""
    subject: str
    issuer: str
    names: tuple[str, ...]
    """The subject's alternative names."""
    not_before: datetime
    not_after: datetime
    fingerprint: str
    """SHA-256, in hexadecimal."""
    matches_name: bool | None
    """Whether it is valid for the server name; None if none was given."""
    verify_result: tuple[int, str]
    """OpenSSL's number and message; (0, "ok") for a chain that the host trusts."""

    @property
    def days_left(self) -> int:
        """Whole days until it expires; negative after that."""
        return (self.not_after - self.host_time).days

    @property
    def end(self) -> str:
        """When it expires, as a clause."""
        end = f"{self.not_after:%Y-%m-%d}"
        if self.days_left < 0:
            return f"that expired on {end}"
        return f"that expires on {end}, in {self.days_left} days"

    @property
    def valid_for(self) -> str:
        """Its names, or its subject if it has none."""
        return ", ".join(self.names) or self.subject


@dataclass(frozen=True)
class ShownCertificate:
    """The certificate of one address."""

    address: str
    certificate: Certificate | None
    error: str = ""
    """Why there is none."""


def read_certificates(
    run_query: QueryRunner, host: str, port: int, server_name: str
) -> Sequence[ShownCertificate]:
    """Read what is presented at each address. Raises CommandError if nothing listens there."""
    addresses = run_query(host, query_listeners(port))
    if not addresses:
        raise CommandError(f"nothing listens at port {port} of {host}")
    shown: list[ShownCertificate] = []
    for address in addresses[:_MOST]:
        try:
            found = run_query(host, query_certificate(address, port, server_name))
            shown.append(ShownCertificate(address, found))
        except CommandError as failed:
            shown.append(ShownCertificate(address, None, str(failed)))
    return shown


def query_listeners(port: int) -> Query[tuple[str, ...]]:
    """Query the addresses where something listens at *port*; there may be none."""
    words = ("ss", "-Hltn", "sport", "=", f":{port}")
    return Query(Shell(words), lambda answer: parse_listeners(answer, port))


def query_certificate(address: str, port: int, server_name: str = "") -> Query[Certificate]:
    """Query the certificate that is presented at one address of the host."""
    at = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    name = ("-servername", server_name) if server_name else ("-noservername", "")
    plain = ("-starttls", _STARTTLS[port]) if port in _STARTTLS else ()
    shell = Shell((_SHOW, at, *name, *plain), hints=_HINTS)
    return Query(shell, parse_certificate)


def parse_listeners(answer: str, port: int) -> Rows[str]:
    found = parse_each(answer.splitlines(), lambda line: _parse_listener(line, port))
    listeners = dict(found)
    # Listening at all addresses of both families is one server.
    if "0.0.0.0" in listeners:  # noqa: S104 - it is read, not bound
        listeners.pop("[::]", None)
    return Rows(dict.fromkeys(listeners.values()), found.odd)


def _parse_listener(line: str, port: int) -> tuple[str, str]:
    """Return an address as ss prints it, and an address to connect to."""
    words = line.split()
    local = words[3].rpartition(":") if len(words) > 3 else ("", "", "")
    if local[2] != str(port):
        raise ParseError(f"it is no listener at port {port}")
    return local[0], _make_reachable(local[0])


def _make_reachable(listener: str) -> str:
    """Return an address to connect to: the loopback for a server at all addresses."""
    bare = listener.partition("%")[0].strip("[]") or "*"
    if bare == "*":
        return "127.0.0.1"
    try:
        address = ip_address(bare)
    except ValueError:
        raise ParseError("it has no address") from None
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"
    return str(address)


def parse_certificate(answer: str) -> Certificate:
    lines = answer.splitlines()
    try:
        return Certificate(
            host_time=datetime.fromtimestamp(int(lines[0]), UTC),
            subject=_find_field(r"subject=\s*(.*)", answer),
            issuer=_find_field(r"issuer=\s*(.*)", answer),
            names=tuple(re.findall(r"(?:DNS|IP Address):([^,\s]+)", answer)),
            not_before=_parse_time(_find_field(r"notBefore=(.*)", answer)),
            not_after=_parse_time(_find_field(r"notAfter=(.*)", answer)),
            fingerprint=_find_field(r"(?:sha256|SHA256) Fingerprint=([0-9A-F:]+)", answer),
            matches_name=_parse_name_match(answer),
            verify_result=_parse_verify_result(answer),
        )
    except (ValueError, IndexError):
        raise ParseError(f"openssl printed {answer[:300]!r} instead of a certificate") from None


def _find_field(pattern: str, answer: str) -> str:
    found = re.search(rf"(?m)^{pattern}$", answer)
    if found is None:
        raise ValueError(pattern)
    return found[1].strip()


def _parse_time(text: str) -> datetime:
    return datetime.strptime(text, "%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)


def _parse_name_match(answer: str) -> bool | None:
    found = re.search(r"(?m)^Hostname .* does (NOT )?match certificate$", answer)
    return None if found is None else found[1] is None


def _parse_verify_result(answer: str) -> tuple[int, str]:
    found = re.search(r"Verify return code: (\d+) \((.*)\)", answer)
    if found is None:
        raise ValueError("no verify return code")
    return int(found[1]), found[2]
