"""Types a command as a person does, against the playground's company."""

import os
import subprocess
import sys
from pathlib import Path


def keyturn(policy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bot", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KEYTURN_POLICY": str(policy)},
        stdin=subprocess.DEVNULL,
    )
