"""What a service holds after thousands of runs, in a process of its own."""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.farm import Farm
from tests.bench.measurements import Part, resident, set_maximum, table
from tests.bench.served_keyturn import ServedKeyturn

# Checks at once; the caches are full after the first ones.
_HOSTS, _WARM = 10, 20
# MiB that later runs may add.
_GROWTH = 10.0


def measure(count: int) -> Part:
    """Check hosts until there are so many runs."""
    answer = subprocess.check_output([sys.executable, "-m", __name__, str(count)], text=True)
    before, after = map(float, answer.split())
    figures = [
        set_maximum(_GROWTH, f"memory that {count:,} more runs leave behind", after - before, "MB")
    ]
    return Part(table(figures), figures)


def main(count: str) -> None:
    """Print the MiB that the process holds once it is warm, and after so many runs more."""
    with tempfile.TemporaryDirectory() as place:
        farm_directory = Path(place) / "farm"
        farm_directory.mkdir()
        with Farm(farm_directory, _HOSTS) as farm, ServedKeyturn(farm, Path(place)) as keyturn:
            for _ in range(_WARM):
                keyturn.check(_HOSTS)
            before = resident()
            # A request for several hosts is a run, and so is the part of each host.
            for _ in range(int(count) // (_HOSTS + 1)):
                keyturn.check(_HOSTS)
            print(before, resident())


if __name__ == "__main__":
    main(*sys.argv[1:])
