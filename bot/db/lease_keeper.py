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
_LEASE_SECONDS = 15.0
_HEARTBEAT_SECONDS = 4.0
_RETRY_SECONDS = 0.5
# So much earlier ends the time to send: clocks do not run alike, and a packet takes its way.
_MARGIN_SECONDS = 2.0


class LeaseExpiredError(HostError):
    """This worker was away for so long that others may have the run by now: nothing was sent."""


@dataclass
class HeldLease:
    """A run in our hands. ends: by our own clock, when we may no longer send."""

    run_id: int
    fence: int
    ends_at: float


def _create_worker_name() -> str:
    return f"{socket.gethostname()[:60]} {os.getpid()} {secrets.token_hex(4)}"


@dataclass
class LeaseKeeper:
    """name: nobody else has it, not even this process after a restart."""

    name: str = field(default_factory=_create_worker_name)
    seconds: float = _LEASE_SECONDS

    def __post_init__(self) -> None:
        self._leases: dict[int, HeldLease] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._heartbeat_thread: threading.Thread | None = None

    def take_lease(self, tx: Transaction, run: Run) -> HeldLease:
        """Take a run in hand that the transaction holds; it counts once that is committed."""
        taken = leases.take_lease(tx, run.id, self.name, seconds=self.seconds)
        hold = HeldLease(run.id, taken.fence, self._compute_end(tx.began))
        tx.after_commit(lambda: self._add_lease(hold))
        return hold

    def has_lease(self, tx: Transaction, lease: HeldLease) -> bool:
        """Say whether the run is still ours, and in time. The transaction holds the run."""
        now = leases.get_lease(tx, lease.run_id)
        return self._is_ours(now, lease) and now is not None and tx.now < now.expires_at

    def regain_lease(self, tx: Transaction, lease: HeldLease) -> bool:
        """Take up again what nobody has taken meanwhile, however late; False if somebody has."""
        if not leases.renew_lease(tx, self.name, lease.run_id, lease.fence, seconds=self.seconds):
            return False
        tx.after_commit(lambda: self._prolong_lease(lease, tx.began))
        return True

    def is_leased_by_another(self, tx: Transaction, run_id: int) -> bool:
        """Say whether another worker has the run in hand. The transaction holds the run."""
        now = leases.get_lease(tx, run_id)
        return now is not None and now.worker not in {"", self.name} and tx.now < now.expires_at

    def check_lease(self, lease: HeldLease) -> None:
        """Raise TooLateToSend if we have not been heard of in time. Asked before each packet."""
        late = boot_time() - lease.ends_at
        if late > 0:
            raise LeaseExpiredError(
                f"this worker was not heard of for {late + self.seconds - _MARGIN_SECONDS:.0f} "
                "s, so that "
                "others may have taken the run over. Nothing was sent"
            )

    def _add_lease(self, lease: HeldLease) -> None:
        with self._lock:
            self._leases[lease.run_id] = lease

    def drop_lease(self, lease: HeldLease) -> None:
        """Care for the run no more."""
        with self._lock:
            if self._leases.get(lease.run_id) is lease:
                del self._leases[lease.run_id]

    @property
    def leased_runs(self) -> frozenset[int]:
        with self._lock:
            return frozenset(self._leases)

    def start_heartbeat(self, database: Database) -> None:
        """Say from now on, every few seconds, that we are there."""
        self._heartbeat_thread = threading.Thread(
            target=self._run_heartbeat, args=(database,), name="pulse", daemon=True
        )
        self._heartbeat_thread.start()

    def end_leases(self, database: Database) -> None:
        """Give up what we have, so that others may take it at once."""
        self._closed.set()
        if self._heartbeat_thread is not None:
            self._heartbeat_thread.join(_HEARTBEAT_SECONDS)
        mine = {(hold.run_id, hold.fence) for hold in self._list_leases()}
        if not mine:
            return
        try:
            with database.transaction() as tx:
                leases.end_leases(tx, self.name, mine)
        except StoreUnavailable as trouble:
            log.warning("what this worker had is found in %.0f s: %s", self.seconds, trouble)

    def renew_leases(self, database: Database) -> None:
        """Say once that we are there. Raises StoreUnavailable."""
        held = self._list_leases()
        if not held:
            return
        with database.transaction() as tx:
            mine = {(hold.run_id, hold.fence) for hold in held}
            still = leases.renew_leases(tx, self.name, mine, seconds=self.seconds)
        for hold in held:
            if (hold.run_id, hold.fence) in still:
                self._prolong_lease(hold, tx.began)
            else:
                log.warning("run %d was taken over: it was too long without news", hold.run_id)
                self.drop_lease(hold)

    def _run_heartbeat(self, database: Database) -> None:
        wait = _HEARTBEAT_SECONDS
        while not self._closed.wait(wait):
            wait = _HEARTBEAT_SECONDS
            try:
                self.renew_leases(database)
            except StoreUnavailable as trouble:
                log.critical("nobody hears that this worker is there: %s", trouble)
                wait = _RETRY_SECONDS
            except Exception:
                # Without a pulse nothing could be sent any more, and nobody would say why.
                log.exception("nobody hears that this worker is there")
                wait = _RETRY_SECONDS

    def _list_leases(self) -> list[HeldLease]:
        with self._lock:
            return list(self._leases.values())

    def _prolong_lease(self, lease: HeldLease, renewed_at: float) -> None:
        lease.ends_at = max(lease.ends_at, self._compute_end(renewed_at))

    def _compute_end(self, renewed_at: float) -> float:
        return renewed_at + self.seconds - _MARGIN_SECONDS

    def _is_ours(self, stored: leases.Lease | None, lease: HeldLease) -> bool:
        return stored is not None and (stored.worker, stored.fence) == (self.name, lease.fence)
