"""Parsers of a server's certificate and listeners, with recorded output of OpenSSL 3.0 and ss."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from connectors import certificate
from connectors.certificate import Certificate, parse_certificate, parse_listeners
from connectors.command import Answer, Shell, find_failure
from connectors.errors import ParseError
from tests.connectors.understanding import is_understood

ANSWERS = Path(__file__).parent / "answers" / "certificate"


def recorded(name: str) -> Certificate:
    return parse_certificate((ANSWERS / f"{name}.txt").read_text())


def test_certificate_of_a_server_is_parsed():
    assert recorded("asked-by-its-name") == Certificate(
        host_time=datetime(2026, 11, 21, 11, 52, 59, tzinfo=UTC),
        subject="CN = www.example.com",
        issuer="CN = www.example.com",
        names=("www.example.com", "*.example.org", "127.0.0.1"),
        not_before=datetime(2026, 11, 21, 11, 49, 55, tzinfo=UTC),
        not_after=datetime(2026, 12, 11, 11, 49, 55, tzinfo=UTC),
        fingerprint="81:DA:5D:99:DA:66:EB:AD:6A:2E:AC:93:CB:16:89:A0:93:50:CE:E5:55:6D:F7:29:4B:"
        "37:EA:2B:6B:A7:06:F7",
        matches_name=True,
        verify_result=(18, "self-signed certificate"),
    )


def test_certificate_is_matched_only_when_a_name_is_requested():
    assert recorded("asked-by-no-name").matches_name is None
    assert recorded("asked-by-another-name").matches_name is False


def test_expired_certificate_has_negative_days_left():
    ended = recorded("asked-by-no-name")
    assert ended.days_left == 19
    assert (
        parse_certificate(
            (ANSWERS / "asked-by-no-name.txt").read_text().replace("Dec 11", "Nov 21")
        ).days_left
        == -1
    )


def test_listeners_of_a_port_are_parsed_as_addresses_to_connect_to():
    assert parse_listeners((ANSWERS / "listeners.txt").read_text(), 8443) == ("127.0.0.1", "::1")
    every = "LISTEN 0 4096 *:443 *:*\n"
    both = "LISTEN 0 5 0.0.0.0:443 0.0.0.0:*\nLISTEN 0 5 [::]:443 [::]:*\n"
    card = "LISTEN 0 5 192.0.2.7%eth0:443 0.0.0.0:*\n"
    assert parse_listeners(every, 443) == ("127.0.0.1",)
    assert parse_listeners(both, 443) == ("127.0.0.1",)
    assert parse_listeners(card + every, 443) == ("192.0.2.7", "127.0.0.1")
    assert parse_listeners("", 443) == ()


@pytest.mark.parametrize(
    "answer", ["nonsense\n", "LISTEN 0 5 x:443 y\n", "LISTEN 0 5 1.2.3.4:80 y"]
)
def test_invalid_list_of_listeners_is_not_understood(answer: str):
    assert not is_understood(lambda: parse_listeners(answer, 443))


@pytest.mark.parametrize("line", ["subject", "notAfter", "notBefore", "sha256", "Verify", "17952"])
def test_certificate_that_lacks_a_line_is_a_parse_error(line: str):
    whole = (ANSWERS / "asked-by-its-name.txt").read_text()
    cut = "\n".join(each for each in whole.splitlines() if line not in each)
    assert len(cut) < len(whole) - 1
    with pytest.raises(ParseError):
        parse_certificate(cut)


@pytest.mark.parametrize(
    ("file", "means"),
    [
        ("speaks-no-tls", "does not use TLS"),
        ("refused", "nothing listens at this address any more"),
    ],
)
def test_certificate_query_errors_say_what_to_do(file: str, means: str):
    answer = Answer(1, "", (ANSWERS / f"{file}.txt").read_text())
    error = find_failure(
        certificate.query_certificate("127.0.0.1", 443).command, answer, frozenset({0})
    )
    assert means in str(error)


def test_certificate_query_uses_starttls_on_the_smtp_port():
    shell = certificate.query_certificate("::1", 25, "mail.example.com").command
    assert isinstance(shell, Shell)
    assert shell.words[4:] == ("[::1]:25", "-servername", "mail.example.com", "-starttls", "smtp")
    assert certificate.query_listeners(443).command.words == ("ss", "-Hltn", "sport", "=", ":443")  # pyright: ignore[reportAttributeAccessIssue]
