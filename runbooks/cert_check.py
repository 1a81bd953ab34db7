from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from connectors import certificate
from connectors.certificate import Certificate
from connectors.command import QueryRunner
from connectors.errors import CommandError
from runbooks import Check, Host, Report, Table

# ACME clients renew 30 days before the expiry: with fewer left, the renewal failed.
_SOON = 21
# Addresses to check; more of them usually have the same certificate.
_MOST = 8

_DNS_NAME = r"^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?(\.|$)){1,12}$|^$"


@dataclass(frozen=True)
class ShownCertificate:
    """The certificate of one address."""

    address: str
    certificate: Certificate | None
    error: str = ""
    """Why there is none."""


class CertCheck(
    Check[tuple[ShownCertificate, ...]],
    words="cert check",
    also_called=("ssl expiry",),
    example="web1 443 server_name=www.example.com",
    columns=("address", "subject", "issuer", "expires", "names"),
):
    """Check a host's TLS certificate: its expiry, its names and its chain."""

    host: Host
    port: Annotated[int, Field(ge=1, le=65535, description="The port of the server")] = 443
    server_name: Annotated[
        str,
        Field(
            pattern=_DNS_NAME,
            max_length=253,
            title="Server name (SNI)",
            description="The server name that clients send, such as www.example.com",
        ),
    ] = ""

    def read(self, run_query: QueryRunner) -> tuple[ShownCertificate, ...]:
        addresses = run_query(self.host, certificate.query_listeners(self.port))
        if not addresses:
            raise CommandError(f"nothing listens at port {self.port} of {self.host}")
        return tuple(self._read_certificate(run_query, address) for address in addresses[:_MOST])

    def _read_certificate(self, run_query: QueryRunner, address: str) -> ShownCertificate:
        try:
            query = certificate.query_certificate(address, self.port, self.server_name)
            return ShownCertificate(address, run_query(self.host, query))
        except CommandError as failed:
            return ShownCertificate(address, None, str(failed))

    def report(self, shown: Sequence[ShownCertificate]) -> Report:
        findings = [
            f"{one.address}: {finding}" for one in shown for finding in self._list_findings(one)
        ]
        ends = [one.certificate for one in shown if one.certificate]
        if not ends:
            return Report(
                f"{self.host}:{self.port} has no certificate", healthy=False, findings=findings
            )
        first = min(ends, key=lambda one: one.not_after)
        return Report.from_findings(
            f"{self.host}:{self.port} has a certificate {_format_end(first)}",
            findings,
            table=Table(
                self.columns,
                [_format_row(one.address, one.certificate) for one in shown if one.certificate],
            ),
        )

    def _list_findings(self, one: ShownCertificate) -> Iterator[str]:
        cert = one.certificate
        if cert is None:
            yield one.error
            return
        if cert.days_left < _SOON:
            yield (
                f"{cert.subject} has a certificate {_format_end(cert)}: renew it. If it is "
                "already renewed, reload the server, which still uses the old one"
            )
        if cert.not_before > cert.host_time:
            yield (
                f"it is valid only from {cert.not_before:%Y-%m-%d}, by the clock of {self.host}"
            )
        if cert.matches_name is False:
            yield f"it is not for {self.server_name} but for {_format_names(cert)}"
        code, message = cert.verify_result
        if code:
            yield (
                f"{self.host} does not trust it: {message} ({code}). Other clients do not either, "
                "unless they are configured to, or have a missing intermediate certificate"
            )


def _format_end(cert: Certificate) -> str:
    end = f"{cert.not_after:%Y-%m-%d}"
    if cert.days_left < 0:
        return f"that expired on {end}"
    return f"that expires on {end}, in {cert.days_left} days"


def _format_names(cert: Certificate) -> str:
    return ", ".join(cert.names) or cert.subject


def _format_row(address: str, cert: Certificate) -> tuple[str, ...]:
    ends = f"{cert.not_after:%Y-%m-%d %H:%M UTC}"
    return (address, cert.subject, cert.issuer, ends, _format_names(cert))
