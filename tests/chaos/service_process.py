"""What `keyturn serve` or `keyturn worker` does, with the runbook that writes to the ledger."""

import os
import sys
from pathlib import Path
from typing import Any, cast

import procrastinate  # noqa: F401 # pyright: ignore[reportUnusedImport] - imported before the fork
import psycopg  # noqa: F401 # pyright: ignore[reportUnusedImport] - likewise

from bot import app, worker
from bot.settings import Settings
from runbooks import load_catalogue
from tests.chaos.host_ledger import WriteToLedger

# Loaded before the fork: it takes half of the time in which a process starts.
load_catalogue()


def serve(settings: Settings, log: Path, *, sites: tuple[str, ...]) -> None:
    """Serve until killed, or work for *sites* if there are any; append the output to *log*."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    # In this process only: it is not a runbook of the product.
    cast("dict[str, Any]", load_catalogue())[WriteToLedger.words] = WriteToLedger
    if sites:
        worker.run_worker(settings, sites=sites, concurrency=4)
    else:
        app.serve(settings)
