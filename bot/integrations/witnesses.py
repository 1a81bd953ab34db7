"""Witnesses of other machines, which cosign checkpoints: https://c2sp.org/tlog-witness.

A witness remembers the newest checkpoint that it has cosigned, and cosigns another one only if
that continues the log. So its cosignature shows that no history was rewritten or forked, also by a
thief of our key. A change whose rules require witnesses sends nothing without them.
"""

import logging
import re
import threading
import time
from base64 import b64encode
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Literal

from bot.audit import change_log
from bot.audit.checkpoints import Checkpoint
from bot.db import cosignatures
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.model.text import escape_to_one_line
from bot.model.verifier_keys import (
    Cosignature,
    WitnessAddress,
    list_cosignatures,
    parse_signed_note,
)
from connectors import https

log = logging.getLogger(__name__)

_LIMITS = https.Limits(seconds=5.0, max_bytes=16 * 1024)
# So long an answer shows that a witness can be reached.
_FRESH_SECONDS = 60.0
# A connection that the server closed fails at once.
_CLOSED_SECONDS = 1.0
_SIZE_PATTERN = re.compile(rb"(0|[1-9][0-9]{0,17})\n?")


class WitnessError(Exception):
    """A witness does not cosign the log.

    contradicts: It remembers another history than ours.
    """

    def __init__(self, message: str, *, contradicts: bool = False) -> None:
        super().__init__(message)
        self.contradicts = contradicts


@dataclass(frozen=True)
class WitnessState:
    """What is known of a witness."""

    name: str
    size: int | None
    """Of the newest checkpoint that it has, as far as this process knows."""
    level: Literal["ok", "unasked", "away", "contradicts"]
    problem: str = ""
    """Why it is not ok."""

    @property
    def is_refused(self) -> bool:
        """Whether its last answer was no cosignature. It may cosign before its first answer."""
        return self.level in {"away", "contradicts"}


def describe_witness(name: str, size: int | None, problem: str | None) -> WitnessState:
    """Return the state of a witness that has a checkpoint, or does not answer, or neither yet."""
    if problem is not None:
        return WitnessState(name, size, "away", problem)
    if size is None:
        return WitnessState(name, size, "unasked", "has not been asked yet")
    return WitnessState(name, size, "ok")


@dataclass(frozen=True)
class Witnessing:
    """Whether enough witnesses have cosigned a checkpoint."""

    is_enough: bool
    away: Sequence[str]
    """Those that do not cosign."""
    contradiction: str
    """Why one of them refuses: it knows another history."""


class _Witness:
    """One witness. One request at a time, since each one continues the one before."""

    def __init__(self, database: Database, address: WitnessAddress) -> None:
        self._database, self._address = database, address
        self._lock = threading.Lock()
        self._size: int | None = None
        self._problem: WitnessError | None = None
        self._answered = 0.0
        # A lock of its own, since the other one is held while a request waits for its answer.
        self._unsaved: dict[int, Cosignature] = {}
        self._saving = threading.Lock()

    @cached_property
    def _connection(self) -> https.KeptConnection:
        return https.KeptConnection(self._address.url, https.trust_authority())

    @property
    def state(self) -> WitnessState:
        name, problem = self._address.key.name, self._problem
        if problem is not None and problem.contradicts:
            return WitnessState(name, self._size, "contradicts", str(problem))
        return describe_witness(name, self._size, str(problem) if problem else None)

    def submit_checkpoint(self, size: int, *, seconds: float | None = None) -> bool:
        """Have the log cosigned up to an entry at least, and return whether it is.

        seconds: ask again if the last answer is as old.
        """
        with self._lock:
            is_old = seconds is not None and time.monotonic() - self._answered > seconds
            if self._problem is None and (self._size or 0) >= size and not is_old:
                return True
            try:
                self._size = self._submit_newest()
            except WitnessError as error:
                self._note_problem(error)
            except (https.HttpsError, StoreUnavailable) as error:
                reason = escape_to_one_line(str(error))
                self._note_problem(WitnessError(f"does not answer: {reason}"))
            else:
                self._problem, self._answered = None, time.monotonic()
            return self._problem is None

    def _note_problem(self, problem: WitnessError) -> None:
        if self._problem is None or str(self._problem) != str(problem):
            log.critical("witness %s %s", self._address.key.name, problem)
        self._problem = problem

    def _submit_newest(self) -> int:
        """Have the newest checkpoint cosigned, and return its size.

        Raises WitnessError, HttpsError and StoreUnavailable.
        """
        old = self._size or 0
        for _ in range(3):
            point, proof = self._read_newest(old)
            self._database.wait_until_durable(point.size)
            response = self._send(_format_request(old, proof, point))
            if response.status != HTTPStatus.CONFLICT:
                found = self._find_cosignature(point, response)
                with self._saving:
                    self._unsaved[point.size] = found
                return point.size
            # Another process of ours was quicker, or this one has just started.
            old = _parse_size(response.body)
        raise WitnessError("is asked about this log by too many processes at the same time")

    def _read_newest(self, old: int) -> tuple[Checkpoint, Sequence[bytes]]:
        with self._database.reading() as tx:
            point = change_log.get_newest_checkpoint(tx)
            if point is None:
                raise WitnessError("cannot be shown a log without entries")
            if point.size < old:
                raise WitnessError(
                    f"has seen {old} entries, and the log has {point.size}: entries were lost, or "
                    "the log is a copy. Run `keyturn changelog verify`",
                    contradicts=True,
                )
            return point, change_log.prove_consistency(tx, old, point.size)

    def _send(self, body: bytes) -> https.Response:
        request = https.Request("POST", "/add-checkpoint", {}, body)
        began = time.monotonic()
        try:
            return self._connection.send(request, _LIMITS)
        except https.HttpsError:
            # It closed the connection that was kept. A request may be repeated: the second one
            # changes nothing.
            if time.monotonic() - began > _CLOSED_SECONDS:
                raise
            return self._connection.send(request, _LIMITS)

    def save_cosignatures(self, tx: Transaction) -> None:
        """Store the cosignatures that were received."""
        with self._saving:
            received = dict(self._unsaved)
        for size, one in received.items():
            cosignatures.add_cosignature(tx, size, one.name, one.line)
        tx.after_commit(lambda: self._drop_saved(received))

    def _drop_saved(self, saved: Iterable[int]) -> None:
        with self._saving:
            for size in saved:
                self._unsaved.pop(size, None)

    def _find_cosignature(self, point: Checkpoint, response: https.Response) -> Cosignature:
        """Return the cosignature. Raises WitnessError."""
        if response.status == HTTPStatus.UNPROCESSABLE_ENTITY:
            raise WitnessError(
                f"refuses the log: what it saw of it does not lead to entry {point.size}. Run "
                "`keyturn changelog verify`, and ask who runs the witness what it remembers",
                contradicts=True,
            )
        if response.status in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
            raise WitnessError(
                f"does not know the log {point.origin} with this key: add there what "
                "`keyturn changelog key` prints"
            )
        if response.status != HTTPStatus.OK:
            raise WitnessError(f"returned status {response.status}")
        answer = parse_signed_note(f"{point.text}\n{response.body.decode(errors='replace')}")
        signed = list_cosignatures(
            point.text, answer.signatures if answer else (), [self._address.key]
        )
        if not signed:
            raise WitnessError("returned no cosignature of its key: check KEYTURN_WITNESSES")
        return signed[0]

    def close(self) -> None:
        if "_connection" in vars(self):
            self._connection.close()


class Witnesses:
    """The witnesses of this installation."""

    def __init__(self, database: Database, addresses: Sequence[WitnessAddress]) -> None:
        self._witnesses = [_Witness(database, one) for one in addresses]
        self._asked: dict[_Witness, Future[bool]] = {}
        # One that does not answer delays no other one.
        self._threads = ThreadPoolExecutor(
            4 * len(addresses) or 1, thread_name_prefix="keyturn-witness"
        )

    def list_states(self) -> list[WitnessState]:
        return [one.state for one in self._witnesses]

    def list_away(self, required: int) -> Sequence[str] | None:
        """Return the witnesses that do not cosign if too few do, or one contradicts; else None.

        It asks none: it is what is known of their last answers.
        """
        states = self.list_states()
        others = [one for one in states if one.is_refused]
        is_contradicted = any(one.level == "contradicts" for one in others)
        is_enough = len(states) - len(others) >= required and not is_contradicted
        return None if is_enough else [one.name for one in others]

    def collect_cosignatures(self, size: int, required: int) -> Witnessing:
        """Have the log cosigned up to an entry at least, by as many witnesses as are required.

        Those that did not answer last time are asked only if the others are too few.
        """
        able = [one for one in self._witnesses if not one.state.is_refused]
        asked = able if len(able) >= required else self._witnesses
        tasks = [self._threads.submit(one.submit_checkpoint, size) for one in asked]
        done = 0
        for task in as_completed(tasks):
            done += task.result()
            if done >= required:
                break
        states = self.list_states()
        refusal = next((one for one in states if one.level == "contradicts"), None)
        return Witnessing(
            is_enough=done >= required,
            away=[one.name for one in states if one.is_refused],
            contradiction=f"witness {refusal.name} {refusal.problem}" if refusal else "",
        )

    def publish_newest(self, size: int) -> None:
        """Have the log of this size cosigned, or ask again after a minute who answers.

        It waits for none of them. One that has not answered the last time is not asked twice.
        """
        for one in self._witnesses:
            if one not in self._asked or self._asked[one].done():
                self._asked[one] = self._threads.submit(
                    one.submit_checkpoint, size, seconds=_FRESH_SECONDS
                )

    def wait_for_answers(self) -> None:
        """Return when every witness has answered, or did not in time."""
        wait(self._asked.values())

    def save_cosignatures(self, tx: Transaction) -> None:
        """Store the cosignatures that were received, with the checkpoints of the log."""
        for one in self._witnesses:
            one.save_cosignatures(tx)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for one in self._witnesses:
            one.close()


def _format_request(old: int, proof: Sequence[bytes], point: Checkpoint) -> bytes:
    lines = "".join(f"{b64encode(one).decode()}\n" for one in proof)
    return f"old {old}\n{lines}\n{point.note}".encode()


def _parse_size(body: bytes) -> int:
    match = _SIZE_PATTERN.fullmatch(body)
    if match is None:
        raise WitnessError("does not return the size that it remembers")
    return int(match[1])
