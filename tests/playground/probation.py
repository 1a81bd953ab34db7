"""Probations of playground hosts, which store their state in a directory of their own."""

import time
from collections.abc import Callable
from pathlib import Path


class Probations:
    """What stands in for the root directory of a host, as far as probations use it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hooks = root / "etc" / "cron.d"
        self.hooks.mkdir(parents=True, exist_ok=True)
        self._state = root / "var" / "lib" / "keyturn-probation"

    @property
    def settings(self) -> dict[str, str]:
        return {"probation.root": str(self.root)}

    def is_armed(self, name: str) -> bool:
        return (self._state / f"{name}.armed").exists()

    def has_restored(self, name: str) -> bool:
        return (self._state / f"{name}.restored").exists()

    def get_timer(self, name: str) -> int:
        """Return the process that waits for the end of the probation."""
        return int((self._state / name / "timer").read_text())

    def let_time_run_out(self, name: str) -> None:
        """Move the end of the probation to now, and see what was armed end."""
        self.set_end(name, 0)
        # Its hook for a restart goes last.
        wait_until(lambda: not self.is_armed(name) and not [*self.hooks.glob(f"*-{name}")])

    def set_end(self, name: str, seconds: int, *, boot: str = "") -> None:
        """Set when the probation ends, since the host booted, and in which boot it began."""
        armed = self._state / f"{name}.armed"
        change, _, booted = armed.read_text().split()
        armed.write_text(f"{change} {seconds} {boot or booted}\n")


def wait_until(is_so: Callable[[], bool], *, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)
