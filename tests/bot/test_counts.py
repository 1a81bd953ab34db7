"""What is counted and not timed: statements, commits and answers that a request takes.

Time depends on the machine; how often something is done does not. Each figure is what it takes
now, and whoever needs more says why where he changes it.
"""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import event

from bot.run import Run, State
from tests.bot.office import WEB, Office, an_office
from tests.policies import INVENTORY
from tests.toy import SetSwitch, ShowSwitches

SOME, MANY = 4, 24


@pytest.fixture
def crowd(tmp_path: Path) -> Generator[Office]:
    """An office with many balancers, all of which one request may be for."""
    with an_office(tmp_path) as office:
        names = [f"lb{n}" for n in range(1, MANY + 1)]
        more = "".join(f"  {name}: {{area: edge, tags: [haproxy]}}\n" for name in names[2:])
        (office.policies.path / "inventory.yaml").write_text(INVENTORY + more)
        rules = office.policies.path / "policy.cedar"
        text = rules.read_text()
        for name in ("checks are free", "developers ask, owners approve"):
            text = text.replace(f'@id("{name}")', f'@id("{name}") @hosts("{MANY}")')
        rules.write_text(text)
        office.fleet.hosts = {name: {"lamp": "off"} for name in names}
        yield office


@contextmanager
def counted(office: Office) -> Generator[Counter[str]]:
    """Count statements by their first two words while the block runs."""
    found: Counter[str] = Counter()

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        found[" ".join(statement.split()[:2])] += 1

    def commit(_connection: object) -> None:
        found["commit"] += 1

    engine = office.database.engine
    event.listen(engine, "before_cursor_execute", note)
    event.listen(engine, "commit", commit)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)
        event.remove(engine, "commit", commit)


def _checked(office: Office, count: int) -> Run:
    requests = [ShowSwitches(host=f"lb{n}") for n in range(1, count + 1)]
    run = office.workflow.ask_all(requests, spelled="lb*", person="dora", origin=WEB)
    office.work()
    return office.run(run.id)


def test_a_check_of_many_hosts_is_asked_for_by_one_hint(crowd: Office):
    requests = [ShowSwitches(host=f"lb{n}") for n in range(1, MANY + 1)]
    crowd.workflow.ask_all(requests, spelled="lb*", person="dora", origin=WEB)
    assert len(crowd.queue.waiting) == 1


def test_a_check_writes_so_many_statements_for_each_further_host(crowd: Office):
    with counted(crowd) as few:
        assert _checked(crowd, SOME).state is State.SUCCEEDED
    with counted(crowd) as many:
        assert _checked(crowd, MANY).state is State.SUCCEEDED
    writes = [name for name in many if name.startswith(("INSERT", "UPDATE", "DELETE"))]
    # Its row, what it said, its words and its entry. Commits come on top, for those that came
    # while others were being recorded.
    each = sum(many[name] - few[name] for name in writes) / (MANY - SOME)
    assert each <= 6


def test_how_a_check_of_many_hosts_is_gathered_does_not_grow_with_their_square(crowd: Office):
    with counted(crowd) as few:
        _checked(crowd, SOME)
    with counted(crowd) as many:
        _checked(crowd, MANY)
    reads = sum(many[name] - few[name] for name in many if name.startswith("SELECT"))
    assert reads <= 4 * (MANY - SOME)


def test_what_is_read_of_one_host_takes_two_commits(crowd: Office):
    """One for the request, one for what the host said, and none besides."""
    with counted(crowd) as found:
        crowd.ask(ShowSwitches(host="lb1"))
    assert found["commit"] == 2


def test_an_approved_change_of_one_step_takes_so_few_commits(crowd: Office):
    run = crowd.ask(SetSwitch(host="lb1", name="lamp", value="on"))
    with counted(crowd) as found:
        assert crowd.approve(run).state is State.SUCCEEDED
    # The vote; claimed; the intent; the outcome; proven. Nothing may be left out of these.
    assert found["commit"] == 5
