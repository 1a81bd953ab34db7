"""The worker of a site: executes the runs of the hosts of one or more sites."""

import asyncio
import logging
import os
import signal
from collections.abc import Sequence

import click

from bot import app
from bot.app import Foundation, build_foundation, lock_database, lock_shared_directory
from bot.execution.procrastinate_dispatch import ProcrastinateDispatcher
from bot.execution.procrastinate_worker import ProcrastinateWorker
from bot.execution.scheduler import Scheduler
from bot.model.redaction import Redactor
from bot.observability import set_up_logging
from bot.policy import NoPolicyError, Policy, PolicyProblem
from bot.settings import Settings
from runbooks import list_own_digests

log = logging.getLogger(__name__)

# How long a running step may take at shutdown, and how long its interruption may take.
_FINISH_SECONDS, _GIVE_UP_SECONDS = 18.0, 4.0


def run_worker(settings: Settings, *, sites: Sequence[str], concurrency: int) -> None:
    """Execute runs until interrupted.

    Raises NoPolicyError, StoreUnavailable, AlreadyRunning and ValueError.
    """
    if settings.engine != "distributed":
        raise ValueError(
            "keyturn serve executes all runs itself. To use workers, set "
            "KEYTURN_ENGINE=distributed for them and for keyturn serve"
        )
    redactor = Redactor(settings.secrets)
    set_up_logging(redactor, settings.log)
    app.export_spans(settings)
    with (
        lock_shared_directory(settings.data) as file_suffix,
        lock_database(settings) as process_lock,
    ):
        served = frozenset(sites)
        foundation = build_foundation(
            settings,
            ProcrastinateDispatcher(),
            redactor,
            sites=served,
            file_suffix=file_suffix,
            process_lock=process_lock,
        )
        _check_sites(foundation.policies.get_policy(), served)
        foundation.housekeeping.open_log()
        foundation.housekeeping.log_own_runbooks(list_own_digests())
        check_threads = max(2, concurrency * 3 // 4)
        url = settings.database_url
        worker = ProcrastinateWorker(
            url, sites=sorted(served), threads=concurrency, check_threads=check_threads
        )
        click.echo(f"Working for {', '.join(sorted(served))} as {foundation.lease_keeper.name}")
        ended = asyncio.run(_run_until_signal(foundation, worker))
        foundation.housekeeping.publish_last_checkpoint()
        foundation.database.close()
    if not ended:
        # Threads that cannot be ended would keep the process alive. Their runs are unknown.
        log.critical("steps that did not end in time were abandoned: their outcome is unknown")
        os._exit(1)


def _check_sites(policy: Policy, sites: frozenset[str]) -> None:
    known = sorted({host.site for host in policy.inventory.hosts.values()})
    for site in sorted(sites - {*known}):
        hint = f"use one of {', '.join(known)}" if known else "the inventory has no hosts yet"
        raise NoPolicyError(PolicyProblem(f"no host of the inventory is at site {site!r}: {hint}"))


async def _run_until_signal(foundation: Foundation, worker: ProcrastinateWorker) -> bool:
    """Execute runs until a signal arrives; return False if a step did not end in time."""
    signalled = asyncio.Event()

    def end() -> None:
        # From now on, no step, run or check starts.
        foundation.service.close()
        worker.close()
        signalled.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    foundation.lease_keeper.start_heartbeat(foundation.database)
    worker.start(foundation.service.advancer.advance_run)
    scheduler = _create_scheduler(foundation)
    scheduler.start()
    await signalled.wait()
    scheduler.stop()
    ended = await asyncio.to_thread(worker.stop, _FINISH_SECONDS)
    # Closing the connections interrupts the remaining steps; their outcome is unknown.
    foundation.fleet.close()
    ended = ended or await asyncio.to_thread(worker.stop, _GIVE_UP_SECONDS)
    await asyncio.to_thread(foundation.lease_keeper.end_leases, foundation.database)
    return ended


def _create_scheduler(foundation: Foundation) -> Scheduler:
    """Return the scheduler of a worker's periodic duties."""
    return Scheduler(
        [
            foundation.service.advancer.recover_expired_leases,
            foundation.housekeeping.run_periodic_tasks,
            foundation.contacts.write_contacts,
        ],
        slow_duties=foundation.service.advancer.list_host_duties(),
    )
