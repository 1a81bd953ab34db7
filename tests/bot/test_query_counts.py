"""Counted, not timed: the statements, commits and evaluations of a request.

Time depends on the machine; how often something is done does not. Each figure is what it takes
now, and whoever needs more says why where he changes it.
"""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from bot.model.run import RequestTerms, Run, State
from bot.policy import Policy, PolicyRequest, Ruling
from tests.bot.api.conftest import create_api_harness
from tests.bot.harness import WEB, Harness, open_harness
from tests.bot.web.conftest import create_site
from tests.policies import INVENTORY
from tests.toy import SetSwitch, ShowSwitches

SOME, MANY = 4, 24


@pytest.fixture
def crowd(tmp_path: Path) -> Generator[Harness]:
    """A harness with many balancers, all of which one request may be for."""
    with open_harness(tmp_path) as harness:
        names = [f"lb{n}" for n in range(1, MANY + 1)]
        more = "".join(f"  {name}: {{area: edge, tags: [haproxy]}}\n" for name in names[2:])
        (harness.policies.path / "inventory.yaml").write_text(INVENTORY + more)
        rules = harness.policies.path / "policy.cedar"
        text = rules.read_text()
        for name in ("checks need no approval", "developers request, owners approve"):
            text = text.replace(f'@id("{name}")', f'@id("{name}") @hosts("{MANY}")')
        rules.write_text(text)
        harness.fleet.hosts = {name: {"lamp": "off"} for name in names}
        yield harness


@contextmanager
def count_statements(harness: Harness) -> Generator[Counter[str]]:
    """Count statements by their first three words, as SQLite sees them, while the block runs."""
    counts: Counter[str] = Counter()

    def note(statement: str) -> None:
        counts[" ".join(statement.split()[:3])] += 1

    def watch(connection: Any, *_: object) -> None:
        connection.set_trace_callback(note)

    def leave(connection: Any, *_: object) -> None:
        connection.set_trace_callback(None)

    pool = harness.database.engine.pool
    event.listen(pool, "checkout", watch)
    event.listen(pool, "checkin", leave)
    try:
        yield counts
    finally:
        event.remove(pool, "checkout", watch)
        event.remove(pool, "checkin", leave)


def _request_checks(harness: Harness, count: int) -> Run:
    requests = [ShowSwitches(host=f"lb{n}") for n in range(1, count + 1)]
    run = harness.service.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern="lb*")
    harness.run_queued_work()
    return harness.get_run(run.id)


def _request_changes(harness: Harness, count: int, value: str) -> Run:
    """Ask for a change of so many hosts; return it as it waits for its approval."""
    names = [f"lb{n}" for n in range(1, count + 1)]
    requests = [SetSwitch(host=name, name="lamp", value=value) for name in names]
    run = harness.service.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern="lb*")
    harness.run_queued_work()
    return harness.get_run(run.id)


def _count_statements_of_change(harness: Harness, count: int, value: str) -> Counter[str]:
    """Change so many hosts; return what was asked of the database from the vote to the proof."""
    whole = _request_changes(harness, count, value)
    with count_statements(harness) as counts:
        assert harness.approve(whole).state is State.SUCCEEDED
    return counts


def test_check_of_many_hosts_enqueues_one_queue_hint(crowd: Harness):
    requests = [ShowSwitches(host=f"lb{n}") for n in range(1, MANY + 1)]
    crowd.service.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern="lb*")
    assert len(crowd.dispatcher.enqueued) == 1


def test_check_takes_at_most_four_writes_for_each_further_host(crowd: Harness):
    with count_statements(crowd) as few:
        assert _request_checks(crowd, SOME).state is State.SUCCEEDED
    with count_statements(crowd) as many:
        assert _request_checks(crowd, MANY).state is State.SUCCEEDED
    # Its words go by one statement, whose rows are counted here.
    writes = [
        name
        for name in many
        if name.startswith(("INSERT", "UPDATE", "DELETE")) and name != "INSERT INTO search_word"
    ]
    # Its row, its end, what it said and its entry. Commits come on top, for those that came
    # while others were being recorded.
    each = sum(many[name] - few[name] for name in writes) / (MANY - SOME)
    assert each <= 4


def test_reads_of_a_check_do_not_grow_with_the_number_of_hosts(crowd: Harness):
    with count_statements(crowd) as few:
        _request_checks(crowd, SOME)
    with count_statements(crowd) as many:
        _request_checks(crowd, MANY)
    reads = sum(many[name] - few[name] for name in many if name.startswith("SELECT"))
    # What is read is read of all of them at once.
    assert reads <= 2


def test_results_of_many_hosts_are_written_by_batched_statements(crowd: Harness):
    done: Counter[str] = Counter()

    def note(*given: Any) -> None:
        statement = given[2]
        # On SQLite, SQLAlchemy asks for each new number by itself.
        if not statement.startswith(("SELECT", "BEGIN", "INSERT INTO run ")):
            done["writes"] += 1

    event.listen(crowd.database.engine, "before_cursor_execute", note)
    assert _request_checks(crowd, SOME).state is State.SUCCEEDED
    few, done["writes"] = done["writes"], 0
    assert _request_checks(crowd, MANY).state is State.SUCCEEDED
    # Who comes last may be late, and is written by statements of their own.
    assert done["writes"] <= few + 6


def test_results_of_many_hosts_take_at_most_four_commits(crowd: Harness):
    with count_statements(crowd) as counts:
        _request_checks(crowd, MANY)
    # The request; what was said, twice at the most, as who comes last may be late; the end.
    assert counts["COMMIT"] <= 4


def test_check_of_one_host_takes_two_commits(crowd: Harness):
    """One for the request, one for what the host said, and none besides."""
    with count_statements(crowd) as counts:
        crowd.request(ShowSwitches(host="lb1"))
    assert counts["COMMIT"] == 2


def test_check_of_one_host_loads_its_run_once_before_it_reads_the_host(crowd: Harness):
    """What it is, and whether it is stopped; when its end is written down, only its version."""
    run = crowd.service.request_run(ShowSwitches(host="lb1"), RequestTerms("dora", WEB))
    with count_statements(crowd) as counts:
        crowd.run_queued_work()
    assert crowd.get_run(run.id).state is State.SUCCEEDED
    assert (counts["BEGIN"], counts["SELECT run.id, run.version,"]) == (1, 1)
    assert counts["SELECT run.id, run.version"] == 1


def test_approved_change_of_one_step_takes_five_commits(crowd: Harness):
    run = crowd.request(SetSwitch(host="lb1", name="lamp", value="on"))
    with count_statements(crowd) as counts:
        assert crowd.approve(run).state is State.SUCCEEDED
    # The vote; claimed; the intent; the outcome; proven. Nothing may be left out of these.
    assert counts["COMMIT"] == 5


def test_approved_change_of_one_step_takes_at_most_100_statements(crowd: Harness):
    crowd.approve(crowd.request(SetSwitch(host="lb1", name="lamp", value="on")))
    run = crowd.request(SetSwitch(host="lb1", name="lamp", value="off"))
    with count_statements(crowd) as counts:
        assert crowd.approve(run).state is State.SUCCEEDED
    rows_of_words = counts["INSERT INTO search_word"]
    assert counts.total() - rows_of_words <= 100


def test_approval_evaluates_the_request_rules_twice(
    crowd: Harness, monkeypatch: pytest.MonkeyPatch
):
    asked, plain = list[str](), Policy.get_request_ruling

    def noted(self: Policy, request: PolicyRequest) -> Ruling:
        asked.append(request.runbook)
        return plain(self, request)

    run = crowd.request(SetSwitch(host="lb1", name="lamp", value="on"))
    monkeypatch.setattr(Policy, "get_request_ruling", noted)
    crowd.service.approve_run(run.id, person="olga", digest=run.digest)
    assert asked == ["toy set"] * 2


def test_reads_of_a_change_do_not_grow_with_the_square_of_hosts(crowd: Harness):
    """What is read of all of them is read for each wave, and not for each that has ended."""
    few, many = (
        _count_statements_of_change(crowd, SOME, "red"),
        _count_statements_of_change(crowd, MANY, "green"),
    )
    assert (many["COMMIT"] - few["COMMIT"]) / (MANY - SOME) <= 4
    assert (many["SELECT run.id, run.version,"] - few["SELECT run.id, run.version,"]) / (
        MANY - SOME
    ) <= 12


def test_change_of_many_hosts_takes_at_most_86_statements_for_each_host(crowd: Harness):
    """From the vote to the proof; each of them alone, so that none shares what it asks."""
    few, many = (
        _count_statements_of_change(crowd, SOME, "red"),
        _count_statements_of_change(crowd, MANY, "green"),
    )
    rows_of_words = many["INSERT INTO search_word"] - few["INSERT INTO search_word"]
    each = (many.total() - few.total() - rows_of_words) / (MANY - SOME)
    # Of these, four begin a transaction, four look at the clock, four store a checkpoint and four
    # end one.
    assert each <= 86, many - few


def test_parent_run_is_advanced_once_for_each_wave(crowd: Harness):
    whole = _request_changes(crowd, MANY, "on")
    crowd.service.approve_run(whole.id, person="olga", digest=whole.digest)
    looks = 0
    while crowd.dispatcher.enqueued:
        number = crowd.dispatcher.enqueued.pop(0)
        looks += number == whole.id
        crowd.service.advancer.advance_run(number)
    assert crowd.get_run(whole.id).state is State.SUCCEEDED
    # To begin, and after each of the three waves.
    assert looks == 4


# A page that is not full asks once more how far was looked.
@pytest.mark.parametrize(
    ("address", "most"),
    [
        ("/runs", 10),
        ("/runs?host=lb1", 10),
        # How many runs have a word is asked where that decides what is walked.
        ("/runs?search=lb1", 10),
        ("/runs?search=lb1&area=edge", 11),
        ("/changelog", 8),
        ("/changelog?host=lb1", 8),
        # Which checks on hosts of several areas are in this one is asked once.
        ("/changelog?area=edge", 11),
    ],
)
def test_page_takes_a_bounded_number_of_statements(crowd: Harness, address: str, most: int):
    """Who is there, whether all is stopped, what is looked for and what stands beside it."""
    _request_checks(crowd, MANY)
    site = create_site(crowd)
    browser = site.browser("olga")
    browser.get(address)
    with count_statements(crowd) as counts:
        assert browser.get(address).status_code == 200
    # With its beginning, the time, and its end; and all of it in one transaction.
    assert counts["BEGIN"] == 1
    assert counts.total() <= most, counts


def test_api_request_of_a_check_takes_one_transaction_that_writes(crowd: Harness):
    """The others read whose token it is, and what the request needs: a stop is no guess."""
    program = create_api_harness(crowd).program("dora", "request")
    body = {"request": "uptime check lb1"}
    program.post("/runs", json=body)
    with count_statements(crowd) as counts:
        assert program.post("/runs", json=body).status_code == 202
    assert (counts["BEGIN"], counts["BEGIN IMMEDIATE"], counts["COMMIT"]) == (2, 1, 1)
