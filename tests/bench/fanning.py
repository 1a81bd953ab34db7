"""Fan-out: the same line on the same hosts, by Keyturn's whole path and by its peers in turn."""

import resource
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from connectors import uptime
from connectors.command import Shell
from connectors.wrapper import Wrapped
from tests.bench.farm import Farm
from tests.bench.measuring import Figure, p95
from tests.bench.peers import Peers, Round, installed
from tests.bench.whole import Whole

_PEERS = Path(__file__).parents[2] / "var" / "bench"
_GO = "Go x/crypto/ssh"
OURS = "Keyturn, the whole path"


Told = dict[str, list[Round]]


def measured(counts: Sequence[int], rounds: int, *, quick: bool) -> dict[int, Told]:
    """Return what so many rounds over so many hosts took, by client."""
    peers = installed(_PEERS)
    return {count: _over(count, peers, rounds, quick=quick) for count in counts}


def _over(count: int, peers: Peers, rounds: int, *, quick: bool) -> Told:
    with _farm(count) as (farm, place):
        work: dict[str, Callable[[], Round]] = {OURS: lambda: _whole_round(farm, place)}
        return _in_turn(work | peers.all(farm, _line(), quick=quick), rounds)


def told_in_words(told: dict[int, Told]) -> str:
    """Return Markdown: for each count of hosts a table, and what that makes of the targets."""
    said: list[str] = []
    for count, mine in told.items():
        said += [f"### {_hosts(count)}\n", _table(mine, count), ""]
        said += ["\n".join(_verdicts(mine)), ""]
    return "\n".join(said)


def slopes(told: dict[int, Told]) -> dict[str, list[tuple[float, float]]]:
    """Return hosts and the seconds that they took warm, by client: what the plot shows."""
    found: dict[str, list[tuple[float, float]]] = {}
    for count, mine in told.items():
        for name, rounds in mine.items():
            took = median(one.warm for one in rounds)
            found.setdefault(name, []).append((float(count), took))
    return found


@contextmanager
def _farm(count: int) -> Generator[tuple[Farm, Path]]:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "farm").mkdir()
        with Farm(Path(place) / "farm", count) as farm:
            yield farm, Path(place)


def single(rounds: int) -> list[Figure]:
    """Return the figures of one warm host: a check over the API, and an approved change."""
    with _farm(1) as (farm, place), Whole(farm, place) as whole:
        whole.check(1)
        checks = [whole.one() * 1000 for _ in range(rounds)]
        changes = [whole.change(1) * 1000 for _ in range(rounds)]
    half, most = median(checks), sorted(checks)[int(0.99 * (rounds - 1))]
    change = median(changes)
    return [
        Figure("one check over the API, p50", half, "ms", None, "≤ 15 ms", half <= 15),
        Figure("one check over the API, p99", most, "ms", None, "≤ 40 ms", most <= 40),
        Figure(
            "an approved change, to its proof, p50", change, "ms", None, "≤ 50 ms", change <= 50
        ),
        Figure("the same, p95", p95(changes), "ms", None, "is told", True),
    ]


def _line() -> str:
    """Return the line that Keyturn sends, wrapping and all: hosts do the same for everybody."""
    command = uptime.uptime().command
    assert isinstance(command, Shell)
    return Wrapped(command.resolved({}, sudo=False)).line


def _whole_round(farm: Farm, place: Path) -> Round:
    with tempfile.TemporaryDirectory(dir=place) as data, Whole(farm, Path(data)) as whole:
        count = len(farm.servers)
        cold = whole.check(count)
        before = _cpu()
        warm = whole.check(count)
        used = _cpu() - before
        one: list[float] = []
        for _ in range(10):
            began = time.perf_counter()
            whole.service.keyturn.fleet.ask(farm.names[0], uptime.uptime())
            one.append(time.perf_counter() - began)
        return Round(cold, warm, used / count, one)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _in_turn(work: dict[str, Callable[[], Round]], rounds: int) -> dict[str, list[Round]]:
    """Run so many rounds of each, A B A B."""
    told: dict[str, list[Round]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, run in work.items():
            told[name].append(run())
    return told


def _table(told: dict[str, list[Round]], count: int) -> str:
    head = f"| client | cold | warm | CPU a command, warm | one warm command, p50 |\n{'|---' * 5}|"
    rows = [
        f"| {name} | {_s(rounds, 'cold')} | {_s(rounds, 'warm')} "
        f"| {median(one.cpu for one in rounds) * 1000:.2f} ms | {_one(rounds)} |"
        for name, rounds in told.items()
    ]
    return "\n".join([head, *rows, "", f"Medians of {len(told[OURS])} rounds, {_hosts(count)}."])


def _verdicts(told: dict[str, list[Round]]) -> list[str]:
    """Say of each target by how much it is met or missed."""
    mine = told[OURS]
    targets = (
        (_GO, "warm", 1.3),
        (_GO, "cold", 1.25),
        ("OpenSSH, ControlMaster, xargs -P 32", "warm", 1 / 1.8),
        ("Ansible raw, forks 50", "warm", 1 / 10),
        ("Ansible raw, forks 50", "cold", 1 / 5),
    )
    found: list[str] = []
    for peer, what, limit in targets:
        if peer in told:
            ratio = median(getattr(one, what) for one in mine)
            ratio /= median(getattr(one, what) for one in told[peer])
            met = "met" if ratio <= limit else f"missed by a factor of {ratio / limit:.1f}"
            found.append(f"* {what}: {ratio:.2f} × {peer}; the target is {limit:.2f} ×: {met}")
    cpu = median(one.cpu for one in mine) * 1000
    met = "met" if cpu <= 0.5 else f"missed by a factor of {cpu / 0.5:.1f}"
    return [*found, f"* CPU a command, warm: {cpu:.2f} ms; the target is 0.5 ms: {met}"]


def _s(rounds: Sequence[Round], what: str) -> str:
    return f"{median(getattr(one, what) for one in rounds):.3f} s"


def _one(rounds: Sequence[Round]) -> str:
    each = [seconds for one in rounds for seconds in one.one]
    return f"{median(each) * 1000:.1f} ms" if each else "–"


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"
