"""Keep the leases of the runs that this worker executes, by a heartbeat.

A lease expires by the database's clock unless the heartbeat renews it. By the worker's own clock,
which also counts while the machine sleeps or the process is paused, it expires a little earlier.
So a worker that was paused for too long sends nothing when it continues.
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

# A lease expires after so long without a heartbeat.
_LEASE_SECONDS = 15.0
_HEARTBEAT_SECONDS = 4.0
_RETRY_SECONDS = 0.5
# The worker stops sending so much earlier, because clocks differ and packets take time.
_MARGIN_SECONDS = 2.0


class LeaseExpiredError(HostError):
    """The lease of a run has expired, and another worker may have the run: nothing was sent."""


@dataclass
class HeldLease:
    """A run that this worker has leased."""

    run_id: int
    fence: int
    ends_at: float
    """When the worker has to stop sending, by its own clock (boot_time())."""


def _create_worker_name() -> str:
    return f"{socket.gethostname()[:60]} {os.getpid()} {secrets.token_hex(4)}"


@dataclass
class LeaseKeeper:
    """Takes, renews and releases leases. name: unique for each process and start."""

    name: str = field(default_factory=_create_worker_name)
    seconds: float = _LEASE_SECONDS

    def __post_init__(self) -> None:
        self._leases: dict[int, HeldLease] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._heartbeat_thread: threading.Thread | None = None

    def take_lease(self, tx: Transaction, run: Run) -> HeldLease:
        """Lease a run that the transaction has locked; valid once committed."""
        taken = leases.take_lease(tx, run.id, self.name, seconds=self.seconds)
        hold = HeldLease(run.id, taken.fence, self._compute_end(tx.began))
        tx.after_commit(lambda: self._add_lease(hold))
        return hold

    def has_lease(self, tx: Transaction, lease: HeldLease) -> bool:
        """Return whether the lease is still ours and has not expired. The run has to be locked."""
        now = leases.get_lease(tx, lease.run_id)
        return self._is_ours(now, lease) and now is not None and tx.now < now.expires_at

    def regain_lease(self, tx: Transaction, lease: HeldLease) -> bool:
        """Renew a lease, even if expired; return False if another worker has the run."""
        if not leases.renew_lease(tx, self.name, lease.run_id, lease.fence, seconds=self.seconds):
            return False
        tx.after_commit(lambda: self._prolong_lease(lease, tx.began))
        return True

    def is_leased_by_another(self, tx: Transaction, run_id: int) -> bool:
        """Return whether another worker has leased the run. The run has to be locked."""
        now = leases.get_lease(tx, run_id)
        return now is not None and now.worker not in {"", self.name} and tx.now < now.expires_at

    def check_lease(self, lease: HeldLease) -> None:
        """Raise LeaseExpiredError if the lease was not renewed in time; call before each send."""
        late = boot_time() - lease.ends_at
        if late > 0:
            raise LeaseExpiredError(
                f"this worker sent no heartbeat for {late + self.seconds - _MARGIN_SECONDS:.0f} "
                "s, so another may have taken over the run. Nothing was sent"
            )

    def _add_lease(self, lease: HeldLease) -> None:
        with self._lock:
            self._leases[lease.run_id] = lease

    def drop_lease(self, lease: HeldLease) -> None:
        """Forget the lease: the run has ended or belongs to another worker."""
        with self._lock:
            if self._leases.get(lease.run_id) is lease:
                del self._leases[lease.run_id]

    @property
    def leased_runs(self) -> frozenset[int]:
        with self._lock:
            return frozenset(self._leases)

    def start_heartbeat(self, database: Database) -> None:
        """Start the thread that renews the leases every few seconds."""
        self._heartbeat_thread = threading.Thread(
            target=self._run_heartbeat, args=(database,), name="heartbeat", daemon=True
        )
        self._heartbeat_thread.start()

    def end_leases(self, database: Database) -> None:
        """Release all leases, so that other workers can take the runs immediately."""
        self._closed.set()
        if self._heartbeat_thread is not None:
            self._heartbeat_thread.join(_HEARTBEAT_SECONDS)
        mine = {(hold.run_id, hold.fence) for hold in self._list_leases()}
        if not mine:
            return
        try:
            with database.transaction() as tx:
                leases.end_leases(tx, self.name, mine)
        except StoreUnavailable as error:
            log.warning(
                "leases could not be released and expire in %.0f s: %s", self.seconds, error
            )

    def renew_leases(self, database: Database) -> None:
        """Renew all leases once. Raises StoreUnavailable."""
        held = self._list_leases()
        if not held:
            return
        with database.transaction() as tx:
            mine = {(hold.run_id, hold.fence) for hold in held}
            still = leases.renew_leases(tx, self.name, mine, seconds=self.seconds)
        for hold in held:
            if (hold.run_id, hold.fence) in still:
                self._prolong_lease(hold, tx.began)
            elif hold.run_id in self.leased_runs:
                log.warning(
                    "run %d was taken over by another worker, because its lease had expired",
                    hold.run_id,
                )
                self.drop_lease(hold)

    def _run_heartbeat(self, database: Database) -> None:
        wait = _HEARTBEAT_SECONDS
        while not self._closed.wait(wait):
            wait = _HEARTBEAT_SECONDS
            try:
                self.renew_leases(database)
            except StoreUnavailable as error:
                log.critical("the heartbeat of this worker failed: %s", error)
                wait = _RETRY_SECONDS
            except Exception:
                # Without a heartbeat nothing could be sent any more, without a reason in the log.
                log.exception("the heartbeat of this worker failed")
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
