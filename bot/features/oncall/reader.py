"""Read the calendars of people on duty, from one process at a time."""

import logging
from functools import partial
from pathlib import Path

from bot.db.database import Database
from bot.features.oncall import rows
from bot.features.oncall.calendar_shifts import CalendarError, expand_calendar
from bot.integrations.safe_http import DeliveryError, Resolve, request, resolve_name
from bot.model.text import escape_to_one_line
from bot.policy import NoPolicyError, PolicySource
from bot.policy.oncall import DutyCalendar
from connectors.permissions import find_writer_above, list_trusted_owners

log = logging.getLogger(__name__)

_FETCH_SECONDS = 300
_MAX_BYTES = 4 << 20
_MAX_ADDRESS_LENGTH = 500


class CalendarReader:
    """Reads the calendars of the policy that are due. directory: of the policy."""

    def __init__(
        self,
        policies: PolicySource,
        database: Database,
        directory: Path,
        *,
        resolve: Resolve = resolve_name,
    ) -> None:
        self._policies, self._database, self._directory = policies, database, directory
        self._request = partial(request, "GET", max_bytes=_MAX_BYTES, resolve=resolve)

    def read_due_calendars(self) -> None:
        """Read each calendar that is due and that no other process has claimed."""
        try:
            calendars = self._policies.get_policy().calendars
        except NoPolicyError:
            return
        if not calendars:
            return
        with self._database.reading() as tx:
            readings, now = rows.list_readings(tx), tx.now
        if readings.keys() - calendars.keys():
            with self._database.transaction() as tx:
                rows.delete_other_readings(tx, [*calendars])
        for name, calendar in calendars.items():
            last = readings.get(name)
            if last is None or last.source != calendar.source or now >= last.next_fetch_at:
                self._read_if_claimed(calendar)

    def _read_if_claimed(self, calendar: DutyCalendar) -> None:
        with self._database.transaction() as tx:
            if not rows.claim_fetch(tx, calendar, seconds=_FETCH_SECONDS):
                return
            now = tx.now
        try:
            shifts = expand_calendar(self._read(calendar), zone=calendar.zone, now=now)
        except (CalendarError, DeliveryError, OSError, ValueError) as error:
            reason = escape_to_one_line(str(error))[:300]
            log.error("calendar %s: %s", calendar.name, reason)
            with self._database.transaction() as tx:
                rows.store_error(tx, calendar, reason)
        else:
            for title, problem in {(one.title, one.problem) for one in shifts if one.problem}:
                log.warning("calendar %s: event “%s”: %s", calendar.name, title, problem)
            with self._database.transaction() as tx:
                rows.store_shifts(tx, calendar, shifts)

    def _read(self, calendar: DutyCalendar) -> bytes:
        """Return a calendar. Raises DeliveryError, OSError and ValueError."""
        if calendar.file is not None:
            return _read_file(self._directory / calendar.file, _MAX_BYTES)
        address = calendar.address
        if calendar.address_file is not None:
            file = self._directory / calendar.address_file
            address = _read_file(file, _MAX_ADDRESS_LENGTH).decode("ascii").strip()
        scheme, _, rest = (address or "").partition("://")
        if scheme not in {"https", "webcal"} or not rest.isprintable() or " " in rest:
            raise ValueError("its address must begin with https:// or webcal://")
        return self._request(f"https://{rest}", b"", {}, private=calendar.private)


def _read_file(file: Path, max_bytes: int) -> bytes:
    """Return the content of a file that decides who is on duty, so no one else may write it."""
    writer = find_writer_above(file, list_trusted_owners())
    if writer:
        raise ValueError(f"{writer}, because it decides who is on duty")
    with file.open("rb") as opened:
        content = opened.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"{file} is longer than {max_bytes} bytes")
    return content
