"""Lives under strace: of children of one process, which has imported all that they need."""

import shutil
import subprocess
from collections.abc import Sequence

from tests.chaos import victim
from tests.chaos.victim import Home
from tests.processes import get_fork_context

# Until a life is over, whatever befalls it.
_MOST_SECONDS = 300


def live(home: Home, seed: int, *, patience: float, strace: Sequence[str] = ()) -> int:
    """Have one run done, and all that was left before; return how the process ended.

    strace: its words, where it is to watch from the first thing that is done.
    """
    args = (home, seed, patience, bool(strace))
    process = get_fork_context().Process(target=victim.live_once, args=args)
    process.start()
    if strace:
        program = shutil.which("strace") or "strace"
        words = (program, "-f", "-qq", *strace, "-p", str(process.pid))
        # It ends when who it watches does, of whatever that was.
        watched = subprocess.run(words, capture_output=True, text=True, timeout=_MOST_SECONDS)
        assert not watched.stderr, watched.stderr
    process.join(_MOST_SECONDS)
    assert process.exitcode is not None
    return process.exitcode
