from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from connectors import certificate
from connectors.certificate import Certificate, ShownCertificate
from connectors.command import Answer
from connectors.errors import CommandError
from tests.connectors.test_certificate import ANSWERS, recorded
from tests.runbooks.declared import load_check
from tests.scripted_fleet import ScriptedFleet

NOW = datetime(2026, 11, 22, tzinfo=UTC)
CertCheck = load_check("cert check")
CHECK = CertCheck.model_validate({"host": "web1", "server_name": "www.example.com"})
GOOD = replace(
    recorded("asked-by-its-name"),
    host_time=NOW,
    not_after=NOW + timedelta(days=60),
    verify_result=(0, "ok"),
)
BEGINS_LATER = replace(GOOD, not_before=NOW + timedelta(days=1))


def test_certificate_that_is_valid_for_long_is_healthy():
    report = CHECK.report([ShownCertificate("127.0.0.1", GOOD)])
    assert report.healthy
    assert report.summary == "web1:443 has a certificate that expires on 2027-01-21, in 60 days"


@pytest.mark.parametrize(
    ("days", "findings"), [(21, 0), (20, 1), (0, 1), (-1, 1)], ids=["far", "near", "today", "past"]
)
def test_certificate_is_a_finding_from_20_days_before_its_expiry(days: int, findings: int):
    shown = replace(GOOD, not_after=NOW + timedelta(days=days))
    assert len(CHECK.report([ShownCertificate("127.0.0.1", shown)]).findings) == findings


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        (replace(GOOD, matches_name=False), "it is not for www.example.com but for"),
        (replace(GOOD, verify_result=(20, "unable to get local issuer certificate")), "(20)"),
        (BEGINS_LATER, "only from 2026-11-23"),
    ],
)
def test_certificate_that_clients_would_refuse_is_a_finding(shown: Certificate, message: str):
    report = CHECK.report([ShownCertificate("127.0.0.1", shown)])
    assert not report.healthy
    assert message in report.findings[0]


def test_cert_check_reports_the_certificate_that_expires_first():
    shown = [
        ShownCertificate("192.0.2.1", GOOD),
        ShownCertificate("192.0.2.2", replace(GOOD, not_after=NOW + timedelta(days=1))),
        ShownCertificate("192.0.2.3", None, "the service does not use TLS"),
    ]
    report = CHECK.report(shown)
    assert report.summary.endswith("in 1 days")
    assert [finding.partition(":")[0] for finding in report.findings] == ["192.0.2.2", "192.0.2.3"]


def test_cert_check_reads_every_address_when_one_fails():
    listening = (ANSWERS / "listeners.txt").read_text()
    shown = (ANSWERS / "asked-by-its-name.txt").read_text()
    queries = [
        certificate.query_certificate(at, 443, "www.example.com") for at in ("127.0.0.1", "::1")
    ]
    fleet = ScriptedFleet(
        {
            ("web1", certificate.query_listeners(443).command): listening.replace("8443", "443"),
            ("web1", queries[0].command): shown,
            ("web1", queries[1].command): Answer(1, "", "connect:errno=111"),
        }
    )
    first, second = CHECK.read(fleet.run_query)
    assert first.certificate == recorded("asked-by-its-name")
    assert "nothing listens at this address any more" in second.error


def test_cert_check_fails_when_nothing_listens_at_the_port():
    fleet = ScriptedFleet({("web1", certificate.query_listeners(443).command): ""})
    with pytest.raises(CommandError, match="nothing listens at port 443 of web1"):
        CHECK.read(fleet.run_query)


@pytest.mark.parametrize(
    "port", [0, -1, 65536, "443; id", "0x1bb", "", "４４３a", None, "4 43", []]
)
def test_cert_check_refuses_an_invalid_port(port: object):
    with pytest.raises(ValidationError):
        CertCheck.model_validate({"host": "web1", "port": port})


@pytest.mark.parametrize(
    "name",
    [
        "-servername",
        "a b",
        "a;b",
        "a\nb",
        "$(id)",
        "`id`",
        "a/b",
        ".example.com",
        "a..b",
        "*.example.com",
        "bücher.example",
        "www.example.com\u200b",
        "x" * 64,
        "a.-b",
        " ",
        "'",
        "a:443",
    ],
)
def test_cert_check_refuses_an_invalid_server_name(name: str):
    with pytest.raises(ValidationError):
        CertCheck.model_validate({"host": "web1", "server_name": name})


@pytest.mark.parametrize(
    "name", ["", "www.example.com", "localhost", "xn--bcher-kva.example", "a."]
)
def test_cert_check_accepts_a_valid_server_name(name: str):
    assert (
        CertCheck.model_validate({"host": "web1", "server_name": name}).model_dump()["server_name"]
        == name
    )
