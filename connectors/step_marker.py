"""Markers: what a host stores of each step, so that Keyturn can query it after a crash. No I/O.

Before a host starts a step it creates a directory for it. If the directory exists, nothing runs:
a step runs at most once, however often it is sent. The directory is kept for a week:

    <dir>/<run>-<step>/begun   the hash of its secret word, the boot id, /proc/PID/stat
    <dir>/<run>-<step>/in      its standard input while it runs; empty afterwards
    <dir>/<run>-<step>/out     the first MiB of its output; err: of its error output
    <dir>/<run>-<step>/end     its exit status; an incomplete line counts as none
    <dir>/<run>-<step>/closed  instead of the others: it did not start, and never will
    <dir>/<run>@<fence>        a worker has used this fencing token for this run
    <dir>/<Keyturn>-swept-…    old markers were deleted within these eighteen hours

The step does not end with the connection. `timeout` puts it into a process group of its own, it
has no terminal, its input has arrived completely before it starts, and its output goes to `tee`,
which continues to read it when the connection is gone. A change that is cut off half way is worse
than one without a reader, and the host ends it at its deadline anyway.

Output is framed with a secret word. Anyone who knows the word can fake an end, so the host stores
only its hash until the step has ended.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from connectors.errors import SettingError
from connectors.script import join_lines, load_code, load_script

# Seconds between SIGTERM and SIGKILL for an overdue command. Less than Keyturn's grace period, so
# that the host's exit status arrives first.
KILL_AFTER = 3
# Days for which a marker is kept: a missing one is meaningful only within them.
KEEP_DAYS = 7
MARKER_SETTING = "keyturn.marker"
NO_MARKER = "none"


@dataclass(frozen=True)
class StepMarker:
    """Identifies one step of one run on a host, which may serve several Keyturns."""

    run: str
    """A unique name of the run. The part before the first dash is the name of the Keyturn."""
    step: int
    """The number of the step."""
    fence: int = 1
    """The fencing token: it grows when another worker takes over, and lower ones are refused."""
    directory: str = ""
    """The directory of all markers on the host; "" for ~/.keyturn."""

    def resolve(self, settings: Mapping[str, str]) -> "StepMarker | None":
        """Return the marker with the host's directory; None if the host keeps no markers."""
        place = settings.get(MARKER_SETTING, self.directory)
        if place == NO_MARKER:
            return None
        if place and not place.startswith("/"):
            raise SettingError(
                f"the inventory sets {MARKER_SETTING} to {place!r}: it must be a directory, "
                f"such as /var/lib/keyturn, or {NO_MARKER}"
            )
        return replace(self, directory=place.rstrip("/"))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of both scripts: directory, run, step, fence."""
        return self.directory, self.run, str(self.step), str(self.fence)


# Both wrapped scripts begin with it.
READ_WORD = join_lines(load_code("read-word"))
STEP_SCRIPT = join_lines(load_code("wrapped-step", kt_after=KILL_AFTER, kt_days=KEEP_DAYS))
STATUS_SCRIPT = load_script("marker", argument_count=4)


def hash_word(word: str) -> str:
    """Return the SHA-256 of a secret word, in hexadecimal."""
    return hashlib.sha256(word.encode()).hexdigest()
