"""A member of a crowd: what `keyturn serve` or `keyturn worker` does, and a ledger to write."""

import os
import sys
from pathlib import Path
from typing import Any, cast

import procrastinate  # noqa: F401 # pyright: ignore[reportUnusedImport] - once for all members
import psycopg  # noqa: F401 # pyright: ignore[reportUnusedImport] - likewise

from bot import app, worker
from bot.settings import Settings
from runbooks import load_catalogue
from tests.chaos.ledger import WriteDown

# Found and loaded here, each member need not: half of its start would be that.
load_catalogue()


def live(settings: Settings, log: Path, *, sites: tuple[str, ...]) -> None:
    """Work until ended. sites: a worker's; none, and it serves. log: what it says goes there."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(out, stream)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    # Only in this process: it is no runbook of ours.
    cast("dict[str, Any]", load_catalogue())[WriteDown.words] = WriteDown
    if sites:
        worker.run_worker(settings, sites=sites, concurrency=4)
    else:
        app.serve(settings)
