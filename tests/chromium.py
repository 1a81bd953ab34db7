"""Headless Chromium of Debian, which takes half the CPU time of the whole browser."""

import os
from pathlib import Path

EXECUTABLE = "/usr/bin/chromium-headless-shell"
# What is expected is seen as soon as it is there: how long that may take on a busy machine.
PATIENCE_MS = 30_000
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    # A process less than it would otherwise start, to draw what nobody sees.
    "--in-process-gpu",
    "--disable-background-networking",
    # No page stays long enough to regain the time that its scripts take to be optimised: compiled
    # plainly, a look at a page takes about a tenth less.
    "--js-flags=--max-opt=1",
)


def get_picture_file(name: str) -> Path | None:
    """Return where to keep a picture of what a browser shows; None if nobody wants any."""
    directory = os.environ.get("KEYTURN_PICTURES")
    if not directory:
        return None
    Path(directory).mkdir(parents=True, exist_ok=True)
    return Path(directory) / f"{name}.png"
