from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from connectors import certificate
from connectors.certificate import Certificate
from connectors.command import QueryRunner
from connectors.errors import CommandError
from runbooks import Check, Host, Report, Table

# Who renews by ACME does so 30 days before the end: with fewer left, it did not work.
_SOON = 21
# An address each; more of them are behind one proxy, and hosts are not asked for ever.
_MOST = 8

_DNS_NAME = r"^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?(\.|$)){1,12}$|^$"


@dataclass(frozen=True)
class ShownCertificate:
    """What one address showed, or why it showed nothing."""

    address: str
    certificate: Certificate | None
    error: str = ""


class CertCheck(
    Check[tuple[ShownCertificate, ...]],
    words="cert check",
    example="web1 443 server_name=www.example.com",
):
    """See when the certificate ends that a host shows, and whether it is good until then."""

    host: Host
    port: Annotated[int, Field(ge=1, le=65535, description="The port that is listened at")] = 443
    server_name: Annotated[
        str,
        Field(
            pattern=_DNS_NAME,
            max_length=253,
            title="Server name (SNI)",
            description="The name that a client would ask for, such as www.example.com",
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
                f"{self.host}:{self.port} shows no certificate", healthy=False, findings=findings
            )
        first = min(ends, key=lambda one: one.not_after)
        return Report(
            f"{self.host}:{self.port} shows a certificate {_format_end(first)}",
            healthy=not findings,
            findings=findings,
            table=Table(
                ("address", "subject", "issuer", "ends", "names"),
                [_format_row(one.address, one.certificate) for one in shown if one.certificate],
            ),
        )

    def _list_findings(self, one: ShownCertificate) -> Iterator[str]:
        found = one.certificate
        if found is None:
            yield one.error
            return
        if found.days_left < _SOON:
            yield (
                f"the certificate of {found.subject} is one {_format_end(found)}: renew it; "
                "where that "
                "was done already, what listens there has not read it yet and wants a reload"
            )
        if found.not_before > found.host_time:
            yield (
                f"it is good only from {found.not_before:%Y-%m-%d} on, by the clock of {self.host}"
            )
        if found.matches_name is False:
            yield f"it is not for {self.server_name} but for {_format_names(found)}"
        code, words = found.verify_result
        if code:
            yield (
                f"{self.host} would not trust it: {words} ({code}); other clients neither, unless "
                "they were told to, or know an intermediate certificate that is not sent"
            )


def _format_end(found: Certificate) -> str:
    end = f"{found.not_after:%Y-%m-%d}"
    if found.days_left < 0:
        return f"that ended on {end}"
    return f"that ends on {end}, in {found.days_left} days"


def _format_names(found: Certificate) -> str:
    return ", ".join(found.names) or found.subject


def _format_row(address: str, found: Certificate) -> tuple[str, ...]:
    ends = f"{found.not_after:%Y-%m-%d %H:%M UTC}"
    return (address, found.subject, found.issuer, ends, _format_names(found))
