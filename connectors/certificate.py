"""Which certificates a host shows to those who connect to it. No I/O.

It asks the host itself, so that no firewall stands between. Formats: ss(8), openssl-s_client(1),
openssl-x509(1); fields of a name are told as `CN = www.example.com`.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError

# What is spoken in the clear at first, and says then that it wants to be encrypted.
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

# $1: address and port, $2: "-servername" or "-noservername", $3: that name, the rest: -starttls.
# The verdict on the chain stands at the end of what s_client says, and the first certificate is
# the server's own. Without one, x509 says so and ends with 1.
_SCRIPT = (
    'at=$1; how=$2; name=$3; shift 3; if [ -n "$name" ]; then set -- "$how" "$name" "$@"; '
    'else set -- "$how" "$@"; fi; date +%s; '
    'said=$(timeout 15 openssl s_client -connect "$at" -showcerts "$@" </dev/null 2>&1); '
    'last() { printf \'%s\\n\' "$said" | sed -nE "/$1/h; \\${g; /./p; }"; }; '
    "last 'Verify return code'; last 'errno=|wrong version number|alert' >&2; "
    "printf '%s\\n' \"$said\" | openssl x509 -noout -subject -issuer -dates -fingerprint -sha256 "
    '${name:+-checkhost "$name"} -ext subjectAltName'
)
_HINTS = (
    Hint(r"errno=111|Connection refused", "nothing listens there any more"),
    Hint(
        r"wrong version number|packet length too long|unexpected eof",
        "what listens there speaks no TLS, at least not from the beginning",
    ),
    Hint(
        r"unrecognized name|handshake failure|no peer certificate",
        "the server shows a certificate only to those who ask for a name: give server_name",
    ),
    Hint(
        r"Could not (read|find) .*certificate|unable to load certificate",
        "the server showed no certificate within 15 s: it speaks no TLS, or wants a server_name",
    ),
    Hint(r"openssl: .*not found", "install openssl on the host"),
)


@dataclass(frozen=True)
class Certificate:
    """What a server showed, and what the host's own trust store makes of it.

    now: the host's clock. fits: whether it is for the name asked for; None if none was.
    verdict: OpenSSL's number and words, (0, "ok") for a chain that the host trusts.
    """

    host_time: datetime
    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    fingerprint: str
    matches_name: bool | None
    verify_result: tuple[int, str]

    @property
    def days_left(self) -> int:
        """Whole days until it ends; below 0 once it has."""
        return (self.not_after - self.host_time).days


def query_listeners(port: int) -> Query[tuple[str, ...]]:
    """Query at which addresses something listens, ready to connect to; none is an answer."""
    words = ("ss", "-Hltn", "sport", "=", f":{port}")
    return Query(Shell(words), lambda answer: parse_listeners(answer, port))


def query_certificate(address: str, port: int, server_name: str = "") -> Query[Certificate]:
    """Query the certificate that is shown at one address of the host."""
    at = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    name = ("-servername", server_name) if server_name else ("-noservername", "")
    plain = ("-starttls", _STARTTLS[port]) if port in _STARTTLS else ()
    shell = Shell(("sh", "-c", _SCRIPT, "keyturn", at, *name, *plain), hints=_HINTS)
    return Query(shell, parse_certificate)


def parse_listeners(answer: str, port: int) -> tuple[str, ...]:
    told: list[str] = []
    for line in answer.splitlines():
        words = line.split()
        local = words[3].rpartition(":") if len(words) > 3 else ("", "", "")
        if local[2] != str(port):
            raise ParseError(f"ss answered {line[:120]!r} instead of who listens at {port}")
        told.append(local[0])
    # What listens at every address of both families is one server.
    if "[::]" in told and "0.0.0.0" in told:  # noqa: S104 - it is read, not bound
        told.remove("[::]")
    return tuple(dict.fromkeys(_make_reachable(each) for each in told))


def _make_reachable(told: str) -> str:
    """Return an address to connect to: behind "every address" it is the host's loopback."""
    bare = told.partition("%")[0].strip("[]") or "*"
    if bare == "*":
        return "127.0.0.1"
    try:
        address = ip_address(bare)
    except ValueError:
        raise ParseError(f"ss says that {told[:60]!r} is listened at") from None
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
        raise ParseError(f"openssl answered {answer[:300]!r} and no certificate") from None


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
        raise ValueError("no verdict")
    return int(found[1]), found[2]
