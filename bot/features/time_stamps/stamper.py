"""Time stamps of checkpoints by an authority (RFC 3161): that a log existed at a time.

An authority compares no histories, as a witness does. But a person who rewrites the log cannot
have the new checkpoints stamped with an old time.
"""

import logging
import time
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

from bot.audit import change_log
from bot.db import cosignatures
from bot.db.database import Database
from bot.model.times import HOUR, MINUTE, SECOND
from connectors import https

log = logging.getLogger(__name__)

_LIMITS = https.Limits(seconds=5.0, max_bytes=64 * 1024)
_RETRY_SECONDS = 5 * MINUTE / SECOND


class TimeStampError(Exception):
    """The authority gives no valid stamp."""


@dataclass(frozen=True)
class TimeStampAuthority:
    """An authority that the settings name."""

    url: str
    certificates: Path
    """The PEM certificates that its stamps lead to."""

    def stamp(self, content: bytes) -> bytes:
        """Return the verified stamp of a content, in DER. Raises TimeStampError."""
        # Imported only where stamps are configured: these libraries take 0.1 s.
        from cryptography.x509 import load_pem_x509_certificates
        from rfc3161_client import (
            HashAlgorithm,
            TimestampRequestBuilder,
            VerificationError,
            VerifierBuilder,
            decode_timestamp_response,
        )

        request = (
            TimestampRequestBuilder().data(content).hash_algorithm(HashAlgorithm.SHA256).build()
        )
        body = self._send(request.as_bytes())
        try:
            verifier = VerifierBuilder(
                roots=load_pem_x509_certificates(self.certificates.read_bytes()),
                nonce=request.nonce,
            )
            verifier.build().verify_message(decode_timestamp_response(body), content)
        except (VerificationError, ValueError, OSError) as error:
            raise TimeStampError(f"no valid stamp from {self.url}: {error}") from None
        return body

    def _send(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/timestamp-query"}
        try:
            response = https.send_to_checked_address(
                https.Request("POST", self.url, headers, body),
                _LIMITS,
                # The settings name it, and what it returns is verified.
                find_problem=lambda _: "",
                trust=https.trust_authority(),
            )
        except https.HttpsError as error:
            raise TimeStampError(f"{self.url} does not answer: {error}") from None
        if response.status != 200:
            raise TimeStampError(f"{self.url} returned status {response.status}")
        return response.body


class TimeStamper:
    """Has the newest checkpoint stamped once an hour, by one process of several."""

    def __init__(self, database: Database, authority: TimeStampAuthority) -> None:
        self._database, self._authority = database, authority
        self._tried: float | None = None
        self.problem = ""
        """Why the last try failed."""

    def stamp_when_due(self) -> None:
        """Have the newest checkpoint stamped if the last stamp is an hour old."""
        now = time.monotonic()
        if self.problem and self._tried is not None and now - self._tried < _RETRY_SECONDS:
            return
        with self._database.reading() as tx:
            point = change_log.get_newest_checkpoint(tx)
            last = cosignatures.get_newest_time_stamp(tx)
            is_due = last is None or tx.now - last.at >= HOUR
        if point is None or not is_due or (last is not None and last.size >= point.size):
            return
        self._tried = now
        self._database.wait_until_durable(point.size)
        try:
            stamp = self._authority.stamp(point.text.encode())
        except TimeStampError as error:
            self.problem = str(error)
            log.critical("the change log has no time stamp: %s", error)
            return
        self.problem = ""
        with self._database.transaction() as tx:
            cosignatures.add_time_stamp(tx, point.size, b64encode(stamp).decode())
