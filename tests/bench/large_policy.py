"""A policy with thousands of people: how long an edit takes, and who could approve a request."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bot.policy import Policy, PolicyRequest
from bot.policy.loader import load_policy
from tests.bench.measurements import Part, set_maximum, table
from tests.policies import HOST_KEY, get_starter_rules

_AREAS = 100
_NOW, _HOUR = 1_800_000_000_000_000, 3_600_000_000


def measure(people: int, hosts: int, rules: int, rounds: int) -> Part:
    """Measure seconds of the processor: nothing waits for anything else here."""
    with tempfile.TemporaryDirectory() as directory:
        small, large = Path(directory, "small"), Path(directory, "large")
        write(small, people=10, hosts=10, rules=0)
        write(large, people=people, hosts=hosts, rules=rules)
        loads = measure_cpu(lambda: load_policy(large), rounds)
        policy, plain = load_policy(large), load_policy(small)
    size = f"{people:,} people, {hosts:,} hosts, {rules:,} rules"
    first = measure_cpu(lambda: _list_approvers(policy.without_people([]), 0), 1)
    banned = policy.without_people(["p7"])
    after_ban = measure_cpu(lambda: _list_approvers(banned, 1), 1)
    hosts_in_turn = iter(range(2, 2 + rounds))
    other = measure_cpu(lambda: _list_approvers(policy, next(hosts_in_turn)), rounds)
    ours, alone = (_rule(one, rounds) for one in (policy, plain))
    figures = [
        set_maximum(2.0, f"policy of {size}: until an edit counts", loads, "s"),
        set_maximum(50, "the same: its approvers, the first time", first * 1000, "ms"),
        set_maximum(50, "the same, of another host", other * 1000, "ms"),
        set_maximum(50, "the same, after a ban", after_ban * 1000, "ms"),
        set_maximum(
            5,
            "the same: a ruling, more than with 10 people, 10 hosts and the starter rules",
            max(0.0, ours - alone) * 1000,
            "ms",
        ),
    ]
    return Part(table(figures), figures)


def write(directory: Path, *, people: int, hosts: int, rules: int, areas: int = _AREAS) -> None:
    """Write a policy directory of this size. Person n owns area n."""
    directory.mkdir()
    written = {
        "people.yaml": "people:\n  dora: {name: Dora, roles: [developer]}\n"
        "  olga: {name: Olga, roles: [administrator]}\n"
        + "".join(
            f"  p{n}: {{name: Person {n}, roles: [developer], "
            f"slack: [{{team: T0KEYTURN, user: U0P{n}}}]}}\n"
            for n in range(people - 2)
        ),
        "areas.yaml": "areas:\n"
        + "".join(
            f"  a{n}: {{title: area {n}, owners: [olga, p{n % (people - 2)}]}}\n"
            for n in range(areas)
        ),
        "inventory.yaml": f"defaults: {{address: 127.0.0.1, host_key: {HOST_KEY}}}\nhosts:\n"
        + "".join(f"  web{n}: {{area: a{n % areas}, tags: [nginx]}}\n" for n in range(hosts)),
        "policy.cedar": get_starter_rules()
        + "".join(
            f'\n@id("rule {n}")\n@approvals("1")\n@from("owners")\npermit (principal in '
            f'Role::"developer", action == Action::"request", resource == Host::"web{n % hosts}")'
            f' when {{ context.runbook == "service restart" && context.hour == {n % 24} }};\n'
            for n in range(rules)
        ),
    }
    for name, text in written.items():
        (directory / name).write_text(text, encoding="utf-8")


def _list_approvers(policy: Policy, host: int) -> None:
    request = _build_request(host, hour=0)
    if not policy.list_approvers(request, policy.get_request_ruling(request)):
        raise RuntimeError("no one can approve it")


def _rule(policy: Policy, rounds: int) -> float:
    """Return the seconds of a ruling that is not cached: each is asked at another hour."""
    hours = iter(range(1, 1 + rounds))
    return measure_cpu(
        lambda: policy.get_request_ruling(_build_request(1, hour=next(hours))), rounds
    )


def _build_request(host: int, *, hour: int) -> PolicyRequest:
    now = _NOW + hour * _HOUR
    return PolicyRequest("service restart", "change", f"web{host}", "web", "dora", now=now)


def measure_cpu(work: Callable[[], object], rounds: int) -> float:
    """Return the median of the seconds of the processor."""
    took: list[float] = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return median(took)
