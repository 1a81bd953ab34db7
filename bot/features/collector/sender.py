"""Send the change log to a collector over HTTP, as JSON lines.

One process sends at a time, and the cursor moves only when the collector has accepted a batch. So
after a crash some entries may arrive twice, and none is left out: `seq` and `hash` tell.
"""

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.db.database import Database, StoreUnavailable
from bot.feature import ServerContext
from bot.features.collector import rows
from bot.integrations import safe_http
from bot.integrations.safe_http import DeliveryError
from bot.model.canonical import encode_canonical
from bot.queries import log_formats

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
# Longer than an attempt takes: after it another process may send.
_CLAIM_SECONDS = 60.0
_MAX_ENTRIES = 500
# Collectors limit the size of a request, many of them to 1 MB.
_MAX_BYTES = 900_000
_FIRST_SECONDS, _LONGEST_SECONDS = 2.0, 300.0
# The collector does not accept this body, and would not accept it later.
_REFUSALS = {400, 413, 422}


def build_collector_sender(context: ServerContext) -> "CollectorSender":
    """Return what sends to the collector of the settings."""
    settings = context.settings
    return CollectorSender(
        context.database,
        settings.collector,
        settings.collector_token.get_secret_value(),
        _format_as_ocsf if settings.collector_format == "ocsf" else _format_as_json,
    )


def _format_as_json(entry: Entry) -> str:
    return f"{log_formats.format_entry_as_json(entry)}\n"


def _format_as_ocsf(entry: Entry) -> str:
    return log_formats.format_archive_ocsf(vars(entry), socket.gethostname())


class CollectorSender:
    """Sends new entries until it is cancelled.

    token: for the Authorization header. format_entry: returns a line.
    """

    def __init__(
        self, database: Database, url: str, token: str, format_entry: Callable[[Entry], str]
    ) -> None:
        self._database, self._url, self._format_entry = database, url, format_entry
        scheme = "" if " " in token else "Bearer "
        self._headers = {"Authorization": f"{scheme}{token}"} if token else {}
        self._most, self._failures = _MAX_ENTRIES, 0

    async def run(self) -> None:
        while True:
            try:
                while await asyncio.to_thread(self.send_batch):
                    pass
            except StoreUnavailable as error:
                log.error("cannot send to the collector: %s", error)
            except Exception:
                log.exception("cannot send to the collector")
            await asyncio.sleep(_POLL_SECONDS)

    def send_batch(self) -> bool:
        """Send the next entries, and return whether to send more at once."""
        with self._database.reading() as tx:
            # A row that someone inserted is not sent.
            last = change_log.get_verified_tree(tx).size
            if rows.get_cursor(tx).seq >= last:
                return False
        self._database.wait_until_durable(last)
        with self._database.transaction() as tx:
            claimed = rows.claim_cursor(tx, seconds=_CLAIM_SECONDS)
        if claimed is None or claimed.seq >= last:
            return False
        with self._database.reading() as tx:
            most = min(self._most, last - claimed.seq)
            entries = change_log.list_entries_after(tx, claimed.seq, limit=most)
        lines = self._choose_lines(entries)
        try:
            self._send(lines)
        except DeliveryError as error:
            return self._handle_failure(claimed.seq, entries[: len(lines)], error)
        self._most, self._failures = min(2 * self._most, _MAX_ENTRIES), 0
        self._advance(claimed.seq, entries[len(lines) - 1].seq)
        return True

    def _choose_lines(self, entries: Sequence[Entry]) -> list[str]:
        """Return the lines of the first entries: at least one, and no more than fit."""
        lines, size = list[str](), 0
        for entry in entries:
            line = self._format_entry(entry)
            size += len(line.encode())
            if lines and size > _MAX_BYTES:
                break
            lines.append(line)
        return lines

    def _send(self, lines: Sequence[str]) -> None:
        body = "".join(lines).encode()
        safe_http.request("POST", self._url, body, {**self._headers}, private=True, max_bytes=0)

    def _handle_failure(self, before: int, sent: Sequence[Entry], error: DeliveryError) -> bool:
        """Find the entry that is refused, or wait; return whether to send at once."""
        if error.status in _REFUSALS and len(sent) > 1:
            self._most = len(sent) // 2
            self._wait("", 0)
            return True
        if error.status in _REFUSALS and self._send_without_facts(sent[0]):
            self._advance(before, sent[0].seq)
            return True
        wait = min(_FIRST_SECONDS * 2 ** min(self._failures, 16), _LONGEST_SECONDS)
        self._failures += 1
        log.warning("the collector did not receive entry %d: %s", sent[0].seq, error)
        self._wait(f"entry {sent[0].seq}: {error}", wait * random.uniform(0.5, 1))  # noqa: S311 - spreads attempts
        return False

    def _send_without_facts(self, entry: Entry) -> bool:
        """Send what is left of an entry that is refused, and return whether it is accepted."""
        body = entry.body.encode()
        facts = {"omitted_bytes": len(body), "omitted_sha256": sha256(body).hexdigest()}
        try:
            self._send([self._format_entry(replace(entry, body=encode_canonical(facts)))])
        except DeliveryError:
            return False
        log.error("the collector refuses entry %d, and received it without its facts", entry.seq)
        return True

    def _advance(self, before: int, seq: int) -> None:
        with self._database.transaction() as tx:
            rows.advance_cursor(tx, before=before, seq=seq)

    def _wait(self, error: str, seconds: float) -> None:
        with self._database.transaction() as tx:
            rows.release_cursor(tx, error=error, seconds=seconds)
