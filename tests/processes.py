"""Processes for tests, forked from one that has imported what they need."""

from multiprocessing import get_context
from multiprocessing.context import ForkServerContext

# To import these takes a second, which each process would otherwise spend.
_PRELOAD = (
    *("tests.chaos.service_process", "tests.chaos.killable_service", "tests.bot.harness"),
    "tests.playground.hostile",
    "sqlalchemy.dialects.postgresql.psycopg",
)


def get_fork_context() -> ForkServerContext:
    """Return what starts processes; all tests of a worker fork from the same one."""
    context = get_context("forkserver")
    context.set_forkserver_preload([*_PRELOAD])
    return context
