"""A backup of a large log while the service could write, and its restore."""

import shutil
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from bot.maintenance import backup
from bot.maintenance.restore import restore_backup
from tests.bench.filled_database import open_filled_database
from tests.bench.measurements import Figure, Part, set_maximum, table


def measure(name: str, entries: int, keep: Path | None) -> Part:
    """Measure the seconds a million entries. name: SQLite or PostgreSQL."""
    with (
        open_filled_database(name, entries, keep) as filled,
        tempfile.TemporaryDirectory(prefix="keyturn-bench-") as directory,
    ):
        stages = _Stages()
        file = Path(directory) / "today.backup"
        began = time.perf_counter()
        _, verdict = backup.make_backup(filled.database, file, stages.begin)
        saved = time.perf_counter() - began
        if verdict.broken is not None:
            raise RuntimeError(verdict.why)
        raw = _time(lambda: shutil.copyfile(file, file.with_suffix(".copy")))
        target = filled.database.open_copy(f"sqlite:///{directory}/keyturn.db")
        try:
            restored = _time(lambda: restore_backup(file, target, working=Path(directory)))
        finally:
            target.close()
    million = 1_000_000 / entries
    copied = stages.seconds["saving"] * million
    what = "backup of a million entries"
    figures = [
        set_maximum(8, f"{what}: the copy", copied, "s", raw * million)
        if name == "SQLite"
        else Figure(f"{what}: the copy", copied, "s", raw * million, "", None),
        Figure(f"{what}, with its verification", saved * million, "s", None, "", None),
        Figure("restore of a million entries", restored * million, "s", None, "", None),
    ]
    return Part(table(figures, beside="a copy of the file"), [figures[0].of(name)])


class _Stages:
    """Notes how long each stage takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def begin(self, name: str, _total: Callable[[], int]) -> Generator[Callable[[int], None]]:
        began = time.perf_counter()
        yield lambda _more: None
        self.seconds[name] = time.perf_counter() - began


def _time(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
