"""Runs a service in a process of its own until one run is complete, under strace if wanted."""

import shutil
import subprocess
from collections.abc import Sequence

from tests.chaos import killable_service
from tests.chaos.killable_service import ServiceDirectory
from tests.processes import get_fork_context

# For the process to end, whatever happens to it.
_TIMEOUT_SECONDS = 300


def complete_one_run(
    directory: ServiceDirectory, seed: int, *, patience: float, strace: Sequence[str] = ()
) -> int:
    """Start a process that completes one run and all unfinished ones; return its exit status.

    Args:
        directory: The files of the service.
        seed: Chooses the nonce of the run.
        patience: After how many seconds the process gives up.
        strace: Options of strace, which then attaches before the service starts.
    """
    process = get_fork_context().Process(
        target=killable_service.complete_one_run, args=(directory, seed, patience, bool(strace))
    )
    process.start()
    if strace:
        program = shutil.which("strace") or "strace"
        command = (program, "-f", "-qq", *strace, "-p", str(process.pid))
        # strace ends when the process does.
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
        assert not ended.stderr, ended.stderr
    process.join(_TIMEOUT_SECONDS)
    assert process.exitcode is not None
    return process.exitcode
