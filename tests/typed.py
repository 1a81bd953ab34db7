"""Types a command at `keyturn` as a person does, where its data and its policy are."""

import os
import subprocess
import sys
from pathlib import Path


def keyturn(place: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """Type it. place: holds the folders `var` and `policy`. more: of the environment."""
    return _typed(words, KEYTURN_DATA=place / "var", KEYTURN_POLICY=place / "policy", **more)


def keyturn_at(policy: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Type what needs a policy and nothing else."""
    return _typed(words, KEYTURN_POLICY=policy)


def _typed(words: tuple[str, ...], **places: Path | str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bot", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {name: str(place) for name, place in places.items()},
        stdin=subprocess.DEVNULL,
    )
