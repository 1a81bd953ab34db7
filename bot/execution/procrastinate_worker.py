"""The threads of a worker process, which take the jobs of the sites that it serves."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from bot.db import procrastinate_queue
from bot.execution.procrastinate_dispatch import (
    get_change_queue,
    get_check_queue,
    get_urgent_queue,
)

if TYPE_CHECKING:
    from procrastinate import App, JobContext
    from psycopg import AsyncConnection

log = logging.getLogger(__name__)

# PostgreSQL sends no notice when a lock is released, so jobs are polled.
_POLL_SECONDS = 1.0
# The worker survives outages of the database that are shorter than this.
_OUTAGE_SECONDS = 600.0
_RETRY_SECONDS = 1.0
# How long finished jobs may take to disappear by themselves.
_CLEANUP_SECONDS = 5.0
_DELETE_FINISHED_JOBS = (
    "DELETE FROM procrastinate_jobs WHERE id = ANY(%(ids)s) AND status = 'doing'"
)
# Threads for procrastinate itself.
_SPARE_THREADS = 4


class ProcrastinateWorker:
    """Takes jobs from a PostgreSQL database and advances their runs.

    Args:
        url: The database URL in SQLAlchemy's form.
        sites: The sites whose jobs it takes.
        threads: Threads for changes.
        check_threads: Threads for checks.
        urgent_threads: Threads for break-glass runs.
    """

    def __init__(
        self,
        url: str,
        *,
        sites: Sequence[str],
        threads: int = 8,
        check_threads: int = 6,
        urgent_threads: int = 2,
    ) -> None:
        self._conninfo = url.replace("postgresql+psycopg://", "postgresql://", 1)
        self._lanes = (
            ([get_change_queue(site) for site in sites], threads),
            ([get_check_queue(site) for site in sites], check_threads),
            ([get_urgent_queue(site) for site in sites], urgent_threads),
        )
        self._pool = ThreadPoolExecutor(
            threads + check_threads + urgent_threads + _SPARE_THREADS, thread_name_prefix="worker"
        )
        self._advance_run: Callable[[int], None] | None = None
        self._finished_jobs: deque[int] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, name="worker", daemon=True)

    def start(self, advance_run: Callable[[int], None]) -> None:
        """Start taking jobs; advance their runs with *advance_run*."""
        self._advance_run = advance_run
        self._thread.start()
        self._started.wait()

    def close(self) -> None:
        """Take no more jobs; those under way continue."""
        if self._loop is not None:
            # The loop may have ended by itself.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._closing.set)

    def stop(self, timeout: float | None = None) -> bool:
        """Take no more jobs and wait for those under way; return False if they did not end.

        timeout: Seconds to wait; None for no limit.
        """
        self.close()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run_loop(self) -> None:
        loop = asyncio.new_event_loop()
        # Jobs run in the default executor, which has few threads unless it is replaced.
        loop.set_default_executor(self._pool)
        self._loop = loop
        self._started.set()
        try:
            loop.run_until_complete(self._work_until_closed())
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
            loop.close()

    async def _work_until_closed(self) -> None:
        """Work until closed; reconnect after errors."""
        while not self._closing.is_set():
            try:
                await self._run_workers()
            except Exception:
                log.exception("the worker restarts after an error")
                await self._wait_before_retry()

    async def _wait_before_retry(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_RETRY_SECONDS):
                await self._closing.wait()

    async def _run_workers(self) -> None:
        from procrastinate import App, PsycopgConnector

        app = App(
            connector=PsycopgConnector(
                conninfo=self._conninfo,
                timeout=_OUTAGE_SECONDS,
                reconnect_timeout=_OUTAGE_SECONDS,
                max_size=2 * len(self._lanes) + 2,
                configure=_configure_connection,
            )
        )
        app.task(name=procrastinate_queue.TASK, pass_context=True)(self._run_job)
        async with app.open_async():
            lanes = [
                asyncio.create_task(self._run_lane(app, queues, at_once))
                for queues, at_once in self._lanes
            ]
            lanes.append(asyncio.create_task(self._delete_finished_jobs(app)))
            await self._closing.wait()
            # A cancelled worker fetches no more jobs and waits for those under way.
            for lane in lanes:
                lane.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)

    async def _run_lane(self, app: "App", queues: Sequence[str], concurrency: int) -> None:
        """Work until cancelled; log other errors and restart."""
        while not self._closing.is_set():
            try:
                await app.run_worker_async(
                    queues=queues,
                    concurrency=concurrency,
                    fetch_job_polling_interval=_POLL_SECONDS,
                    # Finished jobs need no row, because the state of runs is in our own tables.
                    delete_jobs="always",
                    install_signal_handlers=False,
                )
            except Exception:
                log.exception("the worker of %s restarts after an error", ", ".join(queues))
            await self._wait_before_retry()

    async def _delete_finished_jobs(self, app: "App") -> None:
        """Delete finished jobs that procrastinate could not delete, until cancelled.

        This happens when the database is unavailable at the end of a job. While such a job exists
        and its worker lives, its run counts as in progress.
        """
        from procrastinate.exceptions import ConnectorException

        due: list[int] = []
        while True:
            await asyncio.sleep(_CLEANUP_SECONDS)
            try:
                if due:
                    await app.connector.execute_query_async(_DELETE_FINISHED_JOBS, ids=due)
            except ConnectorException:
                log.warning(
                    "%d finished jobs could not be deleted and are deleted later", len(due)
                )
                continue
            due = [self._finished_jobs.popleft() for _ in range(len(self._finished_jobs))]

    def _run_job(self, context: "JobContext", run: int, **_: str) -> None:
        if self._advance_run is None:
            raise RuntimeError("started work before start()")
        # A job that arrives during shutdown is found again: its run is in the database.
        if self._closing.is_set():
            return
        try:
            self._advance_run(run)
        except Exception:
            log.exception("run %d could not be advanced", run)
        if context.job.id is not None:
            self._finished_jobs.append(context.job.id)


async def _configure_connection(connection: "AsyncConnection") -> None:
    """Do not wait for the disk when jobs are taken or deleted: a repeated job does nothing."""
    await connection.set_autocommit(True)
    await connection.execute("SET synchronous_commit = off")
