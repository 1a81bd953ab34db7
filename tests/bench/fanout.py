"""Fan-out: the same command on the same hosts, by Keyturn and by other clients."""

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median

from connectors import uptime
from connectors.command import Shell
from connectors.fleet import Fleet
from connectors.ssh_pool import SshPool
from connectors.wrapper import WrappedCommand
from tests.bench.farm import Farm
from tests.bench.measurements import Figure, Part, columns, set_maximum, set_minimum, table
from tests.bench.peers import PeerFailed, Peers, Round, installed
from tests.bench.served_keyturn import ServedKeyturn

_PEERS = Path(__file__).parents[2] / "var" / "bench"
_GO = "Go x/crypto/ssh"
# Beside whose processor's time ours stands: it does nothing but SSH.
_OF_PYTHON = "asyncssh"
OURS = "Keyturn, the whole path"
_CONTROL_MASTER = "OpenSSH, ControlMaster, xargs -P 32"
_ANSIBLE = "Ansible raw, forks 50"
# One round of each of these takes as long as all rounds of the others.
_MEASURED_ONCE = frozenset({_ANSIBLE, _CONTROL_MASTER})


Rounds = dict[str, list[Round]]


def measure(counts: Sequence[int], rounds: int, *, quick: bool) -> dict[int, Rounds]:
    """Return what so many rounds over so many hosts took, by client."""
    peers = installed(_PEERS, quick=quick)
    return {count: _measure_hosts(count, peers, rounds, quick=quick) for count in counts}


def _measure_hosts(count: int, peers: Peers, rounds: int, *, quick: bool) -> Rounds:
    with _farm(count) as (farm, place):
        work: dict[str, Callable[[], Round]] = {
            OURS: lambda: _whole_round(farm, place),
            "Keyturn, its SSH alone": lambda: _ssh_round(farm),
        }
        return _run_in_turn(work | peers.all(farm, _line(), quick=quick), rounds)


def part(measured: dict[int, Rounds], one: Sequence[Figure]) -> Part:
    """Return a table of seconds by client and count of hosts, and the figures of the targets.

    one: figures of one host.
    """
    targets = [
        figure for count, results in measured.items() for figure in _verdicts(results, count)
    ]
    return Part(_table(measured), [*targets, *one])


@contextmanager
def _farm(count: int) -> Generator[tuple[Farm, Path]]:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "farm").mkdir()
        with Farm(Path(place) / "farm", count) as farm:
            yield farm, Path(place)


def single(rounds: int, *, quick: bool = False) -> list[Figure]:
    """Return the figures of one warm host: a check over the API, and an approved change."""
    with _farm(1) as (farm, place), ServedKeyturn(farm, place) as keyturn:
        bare = _bare(farm, quick=quick)
        keyturn.check(1)
        checks = [keyturn.one() * 1000 for _ in range(rounds)]
        changes = [keyturn.change(1) * 1000 for _ in range(rounds)]
    check, change = median(checks), median(changes)
    figures = [
        set_maximum(20, "one check over the API, p50", check, "ms"),
        set_maximum(50, "an approved change, to its verification, p50", change, "ms"),
    ]
    if bare:
        figures += [
            Figure("one command by Go, p50", bare, "ms", None, "", None),
            set_maximum(2.4, "one check, beside a command by Go", check / bare, "×"),
            set_maximum(6, "an approved change, beside a command by Go", change / bare, "×"),
        ]
    return figures


def _bare(farm: Farm, *, quick: bool) -> float | None:
    """Return the milliseconds in which Go's client has a command done there, median."""
    go = installed(_PEERS, quick=quick).all(farm, _line(), quick=True).get(_GO)
    return median(second for _ in range(5) for second in go().one) * 1000 if go else None


def waves(count: int, rounds: int) -> Part:
    """Change so many hosts in waves, and check them, in turn."""
    checks: list[float] = []
    changes: list[float] = []
    with _farm(count) as (farm, place), ServedKeyturn(farm, place) as keyturn:
        keyturn.check(count)
        for _ in range(rounds):
            checks.append(keyturn.check(count))
            changes.append(keyturn.change(count))
    ratio = median(changes) / median(checks)
    targets = [
        set_maximum(5, f"a change of {count} hosts in waves, beside their check", ratio, "×")
    ]
    return Part(table(targets), targets)


def _line() -> str:
    """Return the line that Keyturn sends, wrapping and all: hosts do the same for everybody.

    Clients that say nothing to a command have it say the word that Keyturn says.
    """
    command = uptime.query_uptime().command
    assert isinstance(command, Shell)
    wrapped = WrappedCommand(command.resolve({}, sudo=False))
    return f"echo {wrapped.word_line.decode().strip()} | {wrapped.line}"


def _whole_round(farm: Farm, place: Path) -> Round:
    with (
        tempfile.TemporaryDirectory(dir=place) as data,
        ServedKeyturn(farm, Path(data)) as keyturn,
    ):
        count = len(farm.servers)
        cold, first = keyturn.check(count), keyturn.check(count)
        warm, cpu = _median_of_three(lambda: keyturn.check(count))
        return Round(cold, warm, cpu / count, [keyturn.one() for _ in range(10)], first)


def _ssh_round(farm: Farm) -> Round:
    """Ask all hosts as other clients do: nobody allows it, and nothing is written down."""
    fleet = Fleet(farm.inventory, SshPool(farm.policy))

    def ask(name: str) -> float:
        began = time.perf_counter()
        fleet.run_query(name, uptime.query_uptime())
        return time.perf_counter() - began

    def ask_all() -> float:
        began = time.perf_counter()
        list(pool.map(ask, farm.names))
        return time.perf_counter() - began

    with closing(fleet), ThreadPoolExecutor(32) as pool:
        cold = ask_all()
        warm, cpu = _median_of_three(ask_all)
        return Round(cold, warm, cpu / len(farm.names), [ask(farm.names[0]) for _ in range(10)])


def _median_of_three(work: Callable[[], float]) -> tuple[float, float]:
    """Return the seconds of the work, and those of our processor for it, as the peers do."""
    before = _cpu()
    took = median(work() for _ in range(3))
    return took, (_cpu() - before) / 3


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _run_in_turn(work: dict[str, Callable[[], Round]], rounds: int) -> dict[str, list[Round]]:
    """Run so many rounds of each, A B A B, and one of the slow ones.

    A peer that fails is left out from there on.
    """
    results: dict[str, list[Round]] = {name: [] for name in work}
    for number in range(rounds):
        for name in list(results):
            if number and name in _MEASURED_ONCE:
                continue
            try:
                results[name].append(work[name]())
            except PeerFailed as trouble:
                print(f"{name} is left out: {trouble}", file=sys.stderr)
                del results[name]
    return results


def _table(measured: dict[int, Rounds]) -> str:
    rows = [["client", *(f"{count} hosts" for count in measured), "CPU a command"]]
    most = max(measured)
    for name in measured[most]:
        took = [_seconds(results, name) for results in measured.values()]
        cpu = median(one.cpu for one in measured[most][name]) * 1000
        rows.append([name, *took, f"{cpu:.2f} ms"])
    return columns(rows)


def _seconds(results: Rounds, name: str) -> str:
    return f"{median(one.warm for one in results[name]):.3f} s" if name in results else "–"


def _verdicts(results: Rounds, count: int) -> list[Figure]:
    """Return the figures of the targets over so many hosts; clients that failed have none."""
    warm = {name: median(one.warm for one in rounds) for name, rounds in results.items()}
    ours, cpu = warm[OURS], median(one.cpu for one in results[OURS]) * 1000
    hosts = _hosts(count)
    figures: list[Figure] = []
    if _GO in warm:
        figures.append(
            set_maximum(1.25, f"a check over {hosts}, beside Go's", ours / warm[_GO], "×")
        )
    if _OF_PYTHON in warm:
        ratio = ours / warm[_OF_PYTHON]
        figures.append(
            set_maximum(1.1, f"a check over {hosts}, beside {_OF_PYTHON}'s", ratio, "×")
        )
    if _CONTROL_MASTER in warm:
        ratio = warm[_CONTROL_MASTER] / ours
        figures.append(set_minimum(1.5, f"{hosts}: faster than OpenSSH", ratio, "×"))
    if _ANSIBLE in warm:
        ratio = warm[_ANSIBLE] / ours
        figures.append(set_minimum(8, f"{hosts}: faster than Ansible raw", ratio, "×"))
    first = median(one.first / one.warm for one in results[OURS])
    cold = median(one.cold for one in results[OURS])
    return [
        *figures,
        Figure(f"{hosts}: a check that connects first", cold, "s", None, "", None),
        set_maximum(2.5, f"{hosts}: CPU a command", cpu, "ms"),
        set_maximum(
            1.3, f"{hosts}: the first check after a start, beside a later one", first, "×"
        ),
    ]


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"
