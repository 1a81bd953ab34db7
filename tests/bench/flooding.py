"""A flood: a host that says a gibibyte, and the memory that it takes to hear it out."""

import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from connectors.command import Shell
from connectors.ssh import connect
from connectors.transport import Limits
from tests.bench.farm import Farm
from tests.bench.measuring import Part, at_most, resident, table, told

_MIB = 1024 * 1024


def measured(mebibytes: int) -> Part:
    """Hear so much from one host, with the limit lifted that would cut it off at 64 MiB."""
    # In a process of its own: what others have let go of would be taken up again unseen.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        grown, seconds = apart.submit(_heard, mebibytes).result()
    size = f"{mebibytes / 1024:g} GiB" if mebibytes >= 1024 else f"{mebibytes} MiB"
    targets = [at_most(64, f"memory that {size} from one host add, at most", grown, "MiB")]
    rate = told("what is heard in a second", mebibytes / seconds, "MiB/s")
    return Part(table([*targets, rate]), targets)


def _heard(mebibytes: int) -> tuple[float, float]:
    """Return by how many MiB this process grew at its highest, and the seconds that it took."""
    size = mebibytes * _MIB
    with tempfile.TemporaryDirectory() as place, Farm(Path(place), 1) as farm:
        session = connect(farm.hosts[0], farm.policy, Limits(output=2 * size))
        session.run(Shell(("true",)))
        # From here on the highest is counted anew.
        Path("/proc/self/clear_refs").write_text("5")
        before, began = resident(), time.perf_counter()
        answer = session.run(Shell(("head", "-c", str(size), "/dev/zero"), deadline=600))
        took = time.perf_counter() - began
        session.close()
    if not answer.left_out:
        sys.exit(f"only {len(answer.out)} characters were heard")
    return resident("VmHWM") - before, took
