"""A worker: which runs it has in hand, and until when it may send anything for them.

Whoever has a run in hand says so every few seconds. By the database's clock its time ends unless
it does; by its own clock, which also counts while the machine sleeps or the process is stopped, it
ends a little earlier. So whoever was away for too long sends nothing when it comes back.
"""

import logging
import os
import secrets
import socket
import threading
from dataclasses import dataclass, field

from bot.db import leases
from bot.db.database import Database, StoreUnavailable, Transaction, boot_time
from bot.model.run import Run
from connectors.errors import HostError

log = logging.getLogger(__name__)

# Whoever is not heard of for so long may be taken from; told so often before that.
_SECONDS = 15.0
_PULSE_SECONDS = 4.0
_AGAIN_SECONDS = 0.5
# So much earlier ends the time to send: clocks do not run alike, and a packet takes its way.
_MARGIN = 2.0


class TooLateToSend(HostError):
    """This worker was away for so long that others may have the run by now: nothing was sent."""


@dataclass
class HeldRun:
    """A run in our hands. ends: by our own clock, when we may no longer send."""

    run: int
    fence: int
    ends: float


def _name() -> str:
    return f"{socket.gethostname()[:60]} {os.getpid()} {secrets.token_hex(4)}"


@dataclass
class LeaseKeeper:
    """name: nobody else has it, not even this process after a restart."""

    name: str = field(default_factory=_name)
    seconds: float = _SECONDS

    def __post_init__(self) -> None:
        self._held: dict[int, HeldRun] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._pulse: threading.Thread | None = None

    def take(self, tx: Transaction, run: Run) -> HeldRun:
        """Take a run in hand that the transaction holds; it counts once that is committed."""
        taken = leases.take_lease(tx, run.id, self.name, seconds=self.seconds)
        hold = HeldRun(run.id, taken.fence, self._end(tx.began))
        tx.after_commit(lambda: self._keep(hold))
        return hold

    def has(self, tx: Transaction, hold: HeldRun) -> bool:
        """Say whether the run is still ours, and in time. The transaction holds the run."""
        now = leases.get_lease(tx, hold.run)
        return self._is_ours(now, hold) and now is not None and tx.now < now.until

    def regains(self, tx: Transaction, hold: HeldRun) -> bool:
        """Take up again what nobody has taken meanwhile, however late; False if somebody has."""
        if not leases.renew_lease(tx, self.name, hold.run, hold.fence, seconds=self.seconds):
            return False
        tx.after_commit(lambda: self._prolonged(hold, tx.began))
        return True

    def sees_another(self, tx: Transaction, run: int) -> bool:
        """Say whether another worker has the run in hand. The transaction holds the run."""
        now = leases.get_lease(tx, run)
        return now is not None and now.worker not in {"", self.name} and tx.now < now.until

    def check(self, hold: HeldRun) -> None:
        """Raise TooLateToSend if we have not been heard of in time. Asked before each packet."""
        late = boot_time() - hold.ends
        if late > 0:
            raise TooLateToSend(
                f"this worker was not heard of for {late + self.seconds - _MARGIN:.0f} s, so that "
                "others may have taken the run over. Nothing was sent"
            )

    def _keep(self, hold: HeldRun) -> None:
        with self._lock:
            self._held[hold.run] = hold

    def drop(self, hold: HeldRun) -> None:
        """Care for the run no more."""
        with self._lock:
            if self._held.get(hold.run) is hold:
                del self._held[hold.run]

    @property
    def holding(self) -> frozenset[int]:
        with self._lock:
            return frozenset(self._held)

    def start(self, database: Database) -> None:
        """Say from now on, every few seconds, that we are there."""
        self._pulse = threading.Thread(
            target=self._beat, args=(database,), name="pulse", daemon=True
        )
        self._pulse.start()

    def stop(self, database: Database) -> None:
        """Give up what we have, so that others may take it at once."""
        self._closed.set()
        if self._pulse is not None:
            self._pulse.join(_PULSE_SECONDS)
        mine = {(hold.run, hold.fence) for hold in self._holds()}
        if not mine:
            return
        try:
            with database.transaction() as tx:
                leases.end_leases(tx, self.name, mine)
        except StoreUnavailable as trouble:
            log.warning("what this worker had is found in %.0f s: %s", self.seconds, trouble)

    def pulse(self, database: Database) -> None:
        """Say once that we are there. Raises StoreUnavailable."""
        held = self._holds()
        if not held:
            return
        with database.transaction() as tx:
            mine = {(hold.run, hold.fence) for hold in held}
            still = leases.renew_leases(tx, self.name, mine, seconds=self.seconds)
        for hold in held:
            if (hold.run, hold.fence) in still:
                self._prolonged(hold, tx.began)
            else:
                log.warning("run %d was taken over: it was too long without news", hold.run)
                self.drop(hold)

    def _beat(self, database: Database) -> None:
        wait = _PULSE_SECONDS
        while not self._closed.wait(wait):
            wait = _PULSE_SECONDS
            try:
                self.pulse(database)
            except StoreUnavailable as trouble:
                log.critical("nobody hears that this worker is there: %s", trouble)
                wait = _AGAIN_SECONDS
            except Exception:
                # Without a pulse nothing could be sent any more, and nobody would say why.
                log.exception("nobody hears that this worker is there")
                wait = _AGAIN_SECONDS

    def _holds(self) -> list[HeldRun]:
        with self._lock:
            return list(self._held.values())

    def _prolonged(self, hold: HeldRun, began: float) -> None:
        hold.ends = max(hold.ends, self._end(began))

    def _end(self, began: float) -> float:
        return began + self.seconds - _MARGIN

    def _is_ours(self, now: leases.Lease | None, hold: HeldRun) -> bool:
        return now is not None and (now.worker, now.fence) == (self.name, hold.fence)
