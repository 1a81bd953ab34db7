"""A scripted fleet with a host that has ZFS pools, and invalid pool names."""

from pathlib import Path

from connectors import zfs
from connectors.command import Answer
from connectors.zfs import ZfsStorage
from connectors.zpool_text import parse_pools
from tests.scripted_fleet import ScriptedFleet

_ANSWERS = Path(__file__).parent.parent / "connectors" / "answers" / "zpool"
_NO_SUCH_OPTION = Answer(2, "", "invalid option\nusage:\n\tstatus [-vx] [pool] ...\n")
NOW = "2026-11-21 08:30:00"

HOSTILE_POOLS = (
    "",
    "-s",
    "--",
    "tank other",
    "tank;reboot",
    "tank\n",
    "tank\0",
    "tank/home",
    "../tank",
    "$(reboot)",
    "`reboot`",
    "tank|cat",
    "tank&",
    "tank'",
    'tank"',
    "tank\\",
    "tank*",
    "tank@a",
    "1tank",
    "täнk",
    "tank\u200b",
    "x" * 101,
    "tank,other",
    7,
    None,
    ["tank"],
)


def recorded_status(name: str) -> str:
    return (_ANSWERS / f"{name}.txt").read_text()


def build_nas_fleet(name: str, *, load: str = "0.10 0.20 0.30 1/99 1234") -> ScriptedFleet:
    """Return a fleet whose nas1 answers with the recording *name*."""
    answer = recorded_status(name)
    modern = name.startswith("2.1")
    fleet = ScriptedFleet(hosts=["nas1"])
    fleet.script("nas1", zfs.query_json_status().command, _NO_SUCH_OPTION)
    fleet.script("nas1", zfs.query_status().command, answer if modern else _NO_SUCH_OPTION)
    fleet.script("nas1", zfs.query_plain_status().command, answer)
    fleet.script("nas1", zfs.query_clock().command, f"{NOW}\n")
    fleet.script("nas1", zfs.query_load().command, f"{load}\n")
    lines = [
        f"{pool.name}\t1.88G\t408M\t1.48G\t21%\t{pool.state}\n" for pool in parse_pools(answer)
    ]
    fleet.script("nas1", zfs.query_spaces().command, "".join(lines))
    return fleet


def storage_of(name: str) -> ZfsStorage:
    return zfs.read_storage(build_nas_fleet(name).run_query, "nas1")
