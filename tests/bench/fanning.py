"""Fan-out: the same line on the same hosts, by Keyturn's whole path and by its peers in turn."""

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from connectors import marker, uptime
from connectors.command import Shell
from connectors.fleet import Fleet
from connectors.sessions import Sessions
from connectors.wrapper import Wrapped
from tests.bench.farm import Farm
from tests.bench.measuring import Figure, Part, at_least, at_most, p95, table
from tests.bench.measuring import told as told_only
from tests.bench.peers import PeerFailed, Peers, Round, installed
from tests.bench.whole import READ, Whole, written

_PEERS = Path(__file__).parents[2] / "var" / "bench"
_GO = "Go x/crypto/ssh"
# Beside whose processor's time ours stands: it does nothing but SSH.
_OF_PYTHON = "asyncssh"
OURS = "Keyturn, the whole path"
_SPOKEN_OF = (100, 200)
# Rounds over more hosts than that: each takes minutes, and only the slope is looked at.
_OF_MANY = 3
# Who is to be so many times slower.
_SLOWER = (
    ("OpenSSH, ControlMaster, xargs -P 32", "warm", 1.8),
    ("Ansible raw, forks 50", "warm", 10),
    ("Ansible raw, forks 50", "cold", 5),
)


Told = dict[str, list[Round]]


def measured(counts: Sequence[int], rounds: int, *, quick: bool) -> dict[int, Told]:
    """Return what so many rounds over so many hosts took, by client."""
    peers = installed(_PEERS, quick=quick)
    return {
        count: _over(
            count, peers, min(rounds, _OF_MANY) if count > max(_SPOKEN_OF) else rounds, quick=quick
        )
        for count in counts
    }


def _over(count: int, peers: Peers, rounds: int, *, quick: bool) -> Told:
    with _farm(count) as (farm, place):
        work: dict[str, Callable[[], Round]] = {
            OURS: lambda: _whole_round(farm, place),
            "Keyturn, its SSH alone": lambda: _ssh_round(farm),
        }
        return _in_turn(work | peers.all(farm, _line(), quick=quick), rounds)


def part(measured: dict[int, Told], one: Sequence[Figure]) -> Part:
    """Return, for each count of hosts, a table, and what that makes of the targets.

    one: figures of one host. What targets speak of are a hundred and two hundred.
    """
    said: list[str] = []
    targets: list[Figure] = []
    for count, mine in measured.items():
        found = _verdicts(mine, count)
        beside = table(found, beside=f"{_OF_PYTHON} alone")
        said += [f"### {_hosts(count)}\n", _table(mine, count), "", beside, ""]
        targets += found if count in _SPOKEN_OF or count == max(measured) else []
    said += ["### One host, the whole path\n", table(one, beside="Go's bare command")]
    asked = [figure for figure in one if figure.met is not None]
    return Part("\n".join(said), [*targets, *asked])


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


def single(rounds: int, *, quick: bool = False) -> list[Figure]:
    """Return the figures of one warm host: a check over the API, and an approved change."""
    with _farm(1) as (farm, place), Whole(farm, place) as whole:
        bare = _bare(farm, quick=quick)
        whole.check(1)
        checks = [whole.one() * 1000 for _ in range(rounds)]
        changes = [whole.change(1) * 1000 for _ in range(rounds)]
    half, most = median(checks), sorted(checks)[int(0.99 * (rounds - 1))]
    return [
        at_most(15, "one check over the API, p50", half, "ms", bare),
        at_most(40, "one check over the API, p99", most, "ms", bare),
        at_most(50, "an approved change, to its proof, p50", median(changes), "ms", bare),
        told_only("the same, p95", p95(changes), "ms", bare),
    ]


def _bare(farm: Farm, *, quick: bool) -> float | None:
    """Return the milliseconds in which Go's client has a command done there, median."""
    go = installed(_PEERS, quick=quick).all(farm, _line(), quick=True).get(_GO)
    return median(second for _ in range(5) for second in go().one) * 1000 if go else None


def waves(count: int, rounds: int) -> Part:
    """Change so many hosts in waves, and check them, in turn."""
    checks: list[float] = []
    changes: list[float] = []
    bare: list[float] = []
    with (
        _farm(count) as (farm, place),
        Whole(farm, place) as whole,
        closing(Fleet(farm.inventory, Sessions(farm.policy))) as fleet,
    ):
        whole.check(count)
        _told_alone(farm, fleet, "0")
        for n in range(rounds):
            checks.append(whole.check(count))
            changes.append(whole.change(count))
            bare.append(_told_alone(farm, fleet, str(n + 1)))
    check, change, alone = median(checks), median(changes), median(bare)
    what = f"a change of {count} hosts in waves, by their check"
    targets = [at_most(3, what, change / check, "×")]
    each = [
        told_only("its commands alone, by the check", alone / check, "×"),
        told_only("the change", change, "s", alone),
        told_only("the check", check, "s"),
    ]
    return Part(table([*targets, *each], beside="its commands alone"), targets)


def _told_alone(farm: Farm, fleet: Fleet, run: str) -> float:
    """Have all hosts do what a change has them do: nobody allows it, and nothing is written down.

    Each is read, told a step, and read again; return the seconds.
    """
    step = replace(written(run), mark=marker.Mark(f"bench-{run}", 1), note=f"run {run} step 1")

    def change(name: str) -> None:
        fleet.ask(name, READ)
        fleet.tell(name, step)
        fleet.ask(name, READ)

    with ThreadPoolExecutor(32) as pool:
        began = time.perf_counter()
        list(pool.map(change, farm.names))
        return time.perf_counter() - began


def _line() -> str:
    """Return the line that Keyturn sends, wrapping and all: hosts do the same for everybody.

    Clients that say nothing to a command have it say the word that Keyturn says.
    """
    command = uptime.uptime().command
    assert isinstance(command, Shell)
    wrapped = Wrapped(command.resolved({}, sudo=False))
    return f"echo {wrapped.word_line.decode().strip()} | {wrapped.line}"


def _whole_round(farm: Farm, place: Path) -> Round:
    with tempfile.TemporaryDirectory(dir=place) as data, Whole(farm, Path(data)) as whole:
        count = len(farm.servers)
        cold = whole.check(count)
        before = _cpu()
        warm = whole.check(count)
        used = _cpu() - before
        return Round(cold, warm, used / count, [whole.one() for _ in range(10)])


def _ssh_round(farm: Farm) -> Round:
    """Ask all hosts as other clients do: nobody allows it, and nothing is written down."""
    fleet = Fleet(farm.inventory, Sessions(farm.policy))

    def ask(name: str) -> float:
        began = time.perf_counter()
        fleet.ask(name, uptime.uptime())
        return time.perf_counter() - began

    def ask_all() -> float:
        began = time.perf_counter()
        list(pool.map(ask, farm.names))
        return time.perf_counter() - began

    with closing(fleet), ThreadPoolExecutor(32) as pool:
        cold, before = ask_all(), _cpu()
        warm, used = ask_all(), _cpu() - before
        return Round(cold, warm, used / len(farm.names), [ask(farm.names[0]) for _ in range(10)])


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _in_turn(work: dict[str, Callable[[], Round]], rounds: int) -> dict[str, list[Round]]:
    """Run so many rounds of each, A B A B; a peer that fails is left out from there on."""
    told: dict[str, list[Round]] = {name: [] for name in work}
    for _ in range(rounds):
        for name in list(told):
            try:
                told[name].append(work[name]())
            except PeerFailed as trouble:
                print(f"{name} is left out: {trouble}", file=sys.stderr)
                del told[name]
    return told


def _table(told: dict[str, list[Round]], count: int) -> str:
    head = f"| client | cold | warm | CPU a command, warm | one warm command, p50 |\n{'|---' * 5}|"
    rows = [
        f"| {name} | {_s(rounds, 'cold')} | {_s(rounds, 'warm')} "
        f"| {median(one.cpu for one in rounds) * 1000:.2f} ms | {_one(rounds)} |"
        for name, rounds in told.items()
    ]
    return "\n".join([head, *rows, "", f"Medians of {len(told[OURS])} rounds, {_hosts(count)}."])


def _verdicts(told: dict[str, list[Round]], count: int) -> list[Figure]:
    """Say of each target by how much it is met or missed."""
    hosts = _hosts(count)

    def seconds(name: str, what: str) -> float:
        return median(getattr(one, what) for one in told[name])

    found: list[Figure] = []
    for what, limit in (("warm", 1.3), ("cold", 1.25)) if _GO in told else ():
        ratio = seconds(OURS, what) / seconds(_GO, what)
        found.append(
            at_most(limit, f"a check over {hosts}, {what}, by Go's bare loop", ratio, "×")
        )
    for peer, what, limit in _SLOWER:
        if peer in told:
            ratio = seconds(peer, what) / seconds(OURS, what)
            name = peer.split(",")[0]
            found.append(at_least(limit, f"{hosts}, {what}: quicker than {name}", ratio, "×"))
    cpu, theirs = (median(one.cpu for one in told[name]) * 1000 for name in (OURS, _OF_PYTHON))
    return [*found, at_most(2, f"{hosts}, warm: CPU a command", cpu, "ms", theirs)]


def _s(rounds: Sequence[Round], what: str) -> str:
    return f"{median(getattr(one, what) for one in rounds):.3f} s"


def _one(rounds: Sequence[Round]) -> str:
    each = [seconds for one in rounds for seconds in one.one]
    return f"{median(each) * 1000:.1f} ms" if each else "–"


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"
