"""Growth: rules, areas, schedules and declared runbooks from ten to thousands, and the features.

Everything is milliseconds of the processor, so that figures of a busy machine compare too.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from sqlalchemy import insert, select

from bot.db import tables
from bot.features.schedules import rows, runner
from bot.model.run import RequestTerms
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.policy import Policy, PolicyRequest
from bot.policy.loader import load_policy
from tests.bench import large_policy
from tests.bench.large_policy import measure_cpu
from tests.bench.measurements import Figure, Part, columns, set_maximum
from tests.bench.pages import Pages
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import WEB, open_harness
from tests.toy import ShowSwitches

_ROUNDS = 5
_PEOPLE = 100
_NOW, _HOUR = 1_800_000_000_000_000, 3_600_000_000
_PAGE = """\
words: site{n:04} check
sentence: Check how long a host of site {n} has been up.
examples: [web1]
read:
  up: {{query: uptime.query_uptime}}
report:
  summary: "{{host}} has been up for {{as_duration(up.seconds)}}"
"""
Curve = Sequence[float]
"""A value for each size."""


def measure(sizes: Sequence[int]) -> Part:
    """Measure each subject with so many of it."""
    curves: dict[str, Curve] = {}
    for fill in (_fill_rules, _fill_areas, _fill_schedules, _fill_runbooks):
        found = [fill(size) for size in sizes]
        for what in found[0]:
            curves[what] = [one[what] for one in found]
    named = {what: f"{sizes[-1]:,} {what}" for what in LIMITS}
    figures = [
        set_maximum(limit, named[what], curves[what][-1], "ms") for what, limit in LIMITS.items()
    ]
    features = _measure_features()
    rows_of_table = [["milliseconds of the processor", *(f"{size:,}" for size in sizes)]]
    rows_of_table += [
        [what, *(f"{value:,.3g}" if value < 100 else f"{value:,.0f}" for value in curve)]
        for what, curve in curves.items()
    ]
    return Part(columns(rows_of_table), [*figures, features])


# Milliseconds with the most of each. What has none is read by programs or at a reload beside.
LIMITS: Mapping[str, float] = {
    "rules: reload of the policy": 5_000,
    "rules: a request's ruling": 50,
    "rules: approvers, the forecast": 250,
    "areas: reload of the policy": 2_000,
    "areas: a request's ruling": 5,
    "areas: approvers, the forecast": 50,
    "schedules: page /schedules": 250,
    "schedules: Home": 50,
    "schedules: scan of what is due": 5,
    "runbooks: loading, a part of a start": 15_000,
    "runbooks: list of all, `keyturn runbooks`": 2_000,
    "runbooks: help in chat, the first time": 250,
    "runbooks: search of a runbook in a form": 250,
    "runbooks: suggestion for a plain sentence": 500,
}


def _fill_rules(count: int) -> Mapping[str, float]:
    return _measure_policy("rules", areas=100, hosts=1_000, rules=count)


def _fill_areas(count: int) -> Mapping[str, float]:
    return _measure_policy("areas", areas=count, hosts=max(count, 1_000), rules=10)


def _measure_policy(subject: str, *, areas: int, hosts: int, rules: int) -> Mapping[str, float]:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place, "policy")
        large_policy.write(directory, people=_PEOPLE, hosts=hosts, rules=rules, areas=areas)
        loads = measure_cpu(lambda: load_policy(directory), 1)
        policy = load_policy(directory)
    # What is kept of the first request counts for none of the others.
    _list_approvers(policy, 0)
    hours, others = iter(range(1, 1 + _ROUNDS)), iter(range(2, 2 + _ROUNDS))
    ruling = measure_cpu(
        lambda: policy.get_request_ruling(_build_request(1, next(hours))), _ROUNDS
    )
    approvers = measure_cpu(lambda: _list_approvers(policy, next(others)), _ROUNDS)
    return {
        f"{subject}: reload of the policy": loads * 1000,
        f"{subject}: a request's ruling": ruling * 1000,
        f"{subject}: approvers, the forecast": approvers * 1000,
    }


def _list_approvers(policy: Policy, host: int) -> None:
    request = _build_request(host, 0)
    if not policy.list_approvers(request, policy.get_request_ruling(request)):
        raise RuntimeError("no one can approve it")


def _build_request(host: int, hour: int) -> PolicyRequest:
    now = _NOW + hour * _HOUR
    return PolicyRequest("service restart", "change", f"web{host}", "web", "dora", now=now)


def _fill_schedules(count: int) -> Mapping[str, float]:
    """Measure pages and scan beside so many active schedules, of which none is due."""
    with tempfile.TemporaryDirectory() as place:
        database = create_sqlite_database(Path(place, "keyturn.db"))
        with open_harness(Path(place), database=database) as harness:
            timing = ScheduleTiming("nightly 0", parse_cron("0 3 * * *", "UTC"))
            harness.service.request_on_hosts(
                [ShowSwitches(host="lb1")],
                RequestTerms("dora", WEB, timing=timing),
                host_pattern="",
            )
            harness.run_queued_work()
            with database.transaction() as tx:
                run = dict(tx.sql.execute(select(tables.run)).mappings().one())
                numbers = range(run["id"] + 1, run["id"] + count)
                tx.sql.execute(insert(tables.run), [run | {"id": number} for number in numbers])
                for number in numbers:
                    cron = f"{number % 60} {number // 60 % 24} * * *"
                    rows.add_schedule(
                        tx,
                        run=number,
                        owner="dora",
                        timing=ScheduleTiming(f"nightly {number}", parse_cron(cron, "UTC")),
                        lapses=tx.now + 90 * 24 * _HOUR,
                    )
            scan = measure_cpu(lambda: runner.fire_due_schedules(harness.context), _ROUNDS)
            pages = Pages(database)
            try:
                listed, home = (
                    measure_cpu(lambda address=address: pages.timed(address, 1), _ROUNDS)
                    for address in ("/schedules", "/")
                )
            finally:
                pages.close()
    return {
        "schedules: page /schedules": listed * 1000,
        "schedules: Home": home * 1000,
        "schedules: scan of what is due": scan * 1000,
    }


def _fill_runbooks(count: int) -> Mapping[str, float]:
    """Measure so many declared runbooks of an installation, in a process of their own."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place, "own", "runbooks")
        directory.mkdir(parents=True)
        for number in range(count):
            page = _PAGE.format(n=number)
            (directory / f"site{number:04}_check.yaml").write_text(page, encoding="utf-8")
        large_policy.write(Path(place, "policy"), people=10, hosts=200, rules=0, areas=20)
        return json.loads(_run_here("runbooks", place, KEYTURN_RUNBOOKS=str(directory.parent)))


def _measure_features() -> Figure:
    """Measure what all features together add to a start: they are folders, and not filled in."""
    return set_maximum(
        750,
        "all features: their part of a start",
        median(float(_run_here("features", "")) for _ in range(_ROUNDS)),
        "ms",
    )


def _run_here(what: str, place: str, **more: str) -> str:
    words = [sys.executable, "-m", __name__, what, place]
    return subprocess.check_output(words, env={**os.environ, **more}, text=True)


def _print_runbooks(place: str) -> None:
    """Print the milliseconds of what people do with the runbooks of KEYTURN_RUNBOOKS."""
    from bot.model.plain_request import search_runbooks
    from bot.model.runbook_info import list_runbook_info
    from bot.queries.suggestions import RequestableRunbooks, suggest_requests
    from bot.slack.help_screen import HelpScreen, render_help_screen
    from runbooks import enable_all, load_catalogue, set_enabled_source

    policy = load_policy(Path(place, "policy"))
    policy.get_request_ruling(_build_request(0, 0))
    set_enabled_source(enable_all)
    requestable = RequestableRunbooks("slack")

    def get_hosts() -> Mapping[str, Sequence[str]]:
        return requestable.get_hosts(policy, "dora", now=_NOW)

    def suggest() -> None:
        suggest_requests(policy, "how long is web7 up", person="dora", get_hosts=get_hosts)

    work: Mapping[str, Callable[[], object]] = {
        "loading, a part of a start": load_catalogue,
        "list of all, `keyturn runbooks`": list_runbook_info,
        "help in chat, the first time": lambda: render_help_screen(HelpScreen(get_hosts())),
        "search of a runbook in a form": lambda: search_runbooks("site 7"),
        "suggestion for a plain sentence": suggest,
    }
    took = {f"runbooks: {what}": measure_cpu(one, 1) * 1000 for what, one in work.items()}
    print(json.dumps(took))


def _print_features(_place: str) -> None:
    """Print the milliseconds that a process takes to load all features after the core."""
    from bot import features

    began = time.process_time()
    for load in (
        features.load_hooks,
        features.load_pages,
        features.load_routes,
        features.load_chat,
    ):
        load()
    print((time.process_time() - began) * 1000)


if __name__ == "__main__":
    {"runbooks": _print_runbooks, "features": _print_features}[sys.argv[1]](sys.argv[2])
