"""The crew: the threads of a worker process, which takes hints for the sites that it serves."""

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

# A lock that is freed sends no notice: whoever waits for one is found by looking.
_POLL_SECONDS = 1.0
# An outage of the database that is shorter leaves the worker alive and its jobs acknowledged.
_OUTAGE_SECONDS = 600.0
_RETRY_SECONDS = 1.0
# What was followed is away by then, unless the engine failed to say so.
_CLEANUP_SECONDS = 5.0
_DELETE_FINISHED_JOBS = (
    "DELETE FROM procrastinate_jobs WHERE id = ANY(%(ids)s) AND status = 'doing'"
)
# The engine's own work needs threads besides those of the jobs.
_SPARE_THREADS = 4


class ProcrastinateWorker:
    """Takes hints from a PostgreSQL database. url: as SQLAlchemy writes it.

    sites: whose hints it takes. threads: runs at once; look_threads: besides them, those that only
    read; urgent_threads: besides both, those with broken glass.
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
            threads + check_threads + urgent_threads + _SPARE_THREADS, thread_name_prefix="crew"
        )
        self._advance_run: Callable[[int], None] | None = None
        self._finished_jobs: deque[int] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, name="crew", daemon=True)

    def start(self, advance_run: Callable[[int], None]) -> None:
        """Begin to take hints: *advance* brings one run as far as it can go."""
        self._advance_run = advance_run
        self._thread.start()
        self._started.wait()

    def close(self) -> None:
        """Take nothing more, from this moment on; what is under way goes on."""
        if self._loop is not None:
            # The loop may have ended by itself.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._closing.set)

    def stop(self, timeout: float | None = None) -> bool:
        """Take nothing new and let what is under way come to its end; False if it did not.

        patience: seconds to wait for that; None for as long as it takes.
        """
        self.close()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run_loop(self) -> None:
        loop = asyncio.new_event_loop()
        # Jobs that are not coroutines run in the default executor, of few threads by itself.
        loop.set_default_executor(self._pool)
        self._loop = loop
        self._started.set()
        try:
            loop.run_until_complete(self._work_until_closed())
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
            loop.close()

    async def _work_until_closed(self) -> None:
        """Work until closed, whatever befalls the connections: who is gone takes nothing."""
        while not self._closing.is_set():
            try:
                await self._run_workers()
            except Exception:
                log.exception("the worker begins anew")
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
            # A worker that is cancelled fetches nothing more and waits for its jobs.
            for lane in lanes:
                lane.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)

    async def _run_lane(self, app: "App", queues: Sequence[str], concurrency: int) -> None:
        """Work until cancelled; what ends a worker besides that is told, and it begins anew."""
        while not self._closing.is_set():
            try:
                await app.run_worker_async(
                    queues=queues,
                    concurrency=concurrency,
                    fetch_job_polling_interval=_POLL_SECONDS,
                    # What is done needs no row: the runs are in our own tables.
                    delete_jobs="always",
                    install_signal_handlers=False,
                )
            except Exception:
                log.exception("the worker of %s begins anew", ", ".join(queues))
            await self._wait_before_retry()

    async def _delete_finished_jobs(self, app: "App") -> None:
        """Take away, until cancelled, hints that were followed and are still there.

        The engine could not say that it was done, since the database was away at that moment. As
        long as they are there and we live, their runs count as taken care of.
        """
        from procrastinate.exceptions import ConnectorException

        due: list[int] = []
        while True:
            await asyncio.sleep(_CLEANUP_SECONDS)
            try:
                if due:
                    await app.connector.execute_query_async(_DELETE_FINISHED_JOBS, ids=due)
            except ConnectorException:
                log.warning("%d hints that were followed are taken away later", len(due))
                continue
            due = [self._finished_jobs.popleft() for _ in range(len(self._finished_jobs))]

    def _run_job(self, context: "JobContext", run: int, **_: str) -> None:
        if self._advance_run is None:
            raise RuntimeError("started work before start()")
        # What has come here while we close is found again: its run is in the database.
        if self._closing.is_set():
            return
        try:
            self._advance_run(run)
        except Exception:
            log.exception("run %d could not be advanced", run)
        if context.job.id is not None:
            self._finished_jobs.append(context.job.id)


async def _configure_connection(connection: "AsyncConnection") -> None:
    """Let taking a hint and giving it back wait for no disk: one that comes back does nothing."""
    await connection.set_autocommit(True)
    await connection.execute("SET synchronous_commit = off")
