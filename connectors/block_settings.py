"""Allowed values for the queue of a block device, now and in a udev rule. No I/O."""

from collections.abc import Mapping
from typing import Literal, get_args

from connectors.sudo import make_range_pattern

Scheduler = Literal["none", "mq-deadline", "bfq", "kyber", "noop", "deadline", "cfq"]

# Minimum and maximum of each number.
BOUNDS: Mapping[str, tuple[int, int]] = {
    "nr_requests": (4, 10240),
    "read_ahead_kb": (0, 65536),
    "iosched/slice_idle": (0, 100),
}
# Patterns of all values, by file below `queue`.
VALUES: Mapping[str, str] = {"scheduler": "|".join(get_args(Scheduler))} | {
    name: make_range_pattern(*bounds) for name, bounds in BOUNDS.items()
}
