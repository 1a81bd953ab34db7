"""Commands that are under way on many hosts, and the one thread that sees to them."""

import threading
from collections.abc import Callable

import pytest

from connectors.command import Answer
from connectors.gathering import gathered
from connectors.trouble import HostTrouble, Unreachable
from tests.connectors.test_sessions import eventually

Look = Answer | HostTrouble | float | None
DONE = Answer(0, "done\n")


class One:
    """A command that looks like this, one look after another; the last stays."""

    def __init__(self, bell: Callable[[], None], *looks: Look) -> None:
        self.bell, self._looks = bell, list(looks)
        self.looked = self.closed = 0

    def look(self) -> Answer | float | None:
        self.looked += 1
        found = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        if isinstance(found, HostTrouble):
            raise found
        return found

    def close(self) -> None:
        self.closed += 1


class Hosts:
    """What each host's command will look like. Those that are named here ring at once."""

    def __init__(self, *looks: tuple[Look, ...], ring: bool = True) -> None:
        self._looks, self._ring = looks, ring
        self.begun: list[One] = []
        self.most = 0

    def begin(self, number: int, bell: Callable[[], None]) -> One | None:
        if not self._looks[number]:
            return None
        one = One(bell, *self._looks[number])
        self.begun.append(one)
        self.most = max(self.most, sum(not one.closed for one in self.begun))
        if self._ring:
            bell()
        return one


def test_each_is_told_of_with_its_end_and_closed_once():
    trouble = Unreachable("web3 is away")
    hosts = Hosts((DONE,), (None,), (trouble,), ())
    found = dict(gathered(hosts.begin, 4, at_once=4))
    assert found == {0: DONE, 1: None, 2: trouble, 3: None}
    assert [one.closed for one in hosts.begun] == [1, 1, 1]


def test_none_is_nothing_to_wait_for():
    hosts = Hosts((), ())
    assert list(gathered(hosts.begin, 2, at_once=1)) == [(0, None), (1, None)]
    assert list(gathered(hosts.begin, 0, at_once=1)) == []


def test_no_more_than_so_many_are_under_way():
    hosts = Hosts(*[(DONE,)] * 5)
    assert dict(gathered(hosts.begin, 5, at_once=2)) == dict.fromkeys(range(5), DONE)
    assert hosts.most == 2


def test_one_that_rings_is_looked_at_and_the_others_are_not():
    hosts = Hosts((0.5, DONE), (DONE,), ring=False)
    found = gathered(hosts.begin, 2, at_once=2)
    came: list[int] = []
    reader = threading.Thread(target=lambda: came.append(next(found)[0]))
    reader.start()
    assert eventually(lambda: len(hosts.begun) == 2)
    hosts.begun[1].bell()
    reader.join(10)
    assert came == [1]
    assert hosts.begun[0].looked <= 1  # once a second, on a machine that is busy
    found.close()
    assert hosts.begun[0].closed == 1


def test_one_that_never_rings_is_looked_at_all_the_same():
    hosts = Hosts((DONE,), ring=False)
    assert list(gathered(hosts.begin, 1, at_once=1)) == [(0, DONE)]


def test_one_that_rings_after_its_end_was_seen_disturbs_nobody():
    hosts = Hosts((DONE,), (0.5, 0.5, DONE))
    found = gathered(hosts.begin, 2, at_once=2)
    assert next(found) == (0, DONE)
    hosts.begun[0].bell()
    hosts.begun[1].bell()
    assert list(found) == [(1, DONE)]


@pytest.mark.parametrize("seen", [0, 1])
def test_whoever_stops_listening_leaves_nothing_open(seen: int):
    hosts = Hosts((DONE,), (0.5,))
    found = gathered(hosts.begin, 2, at_once=2)
    assert next(found) == (0, DONE)
    if seen:
        hosts.begun[1].bell()
    found.close()
    assert [one.closed for one in hosts.begun] == [1, 1]


def test_a_fault_of_ours_closes_the_others_too():
    def fail() -> Answer:
        raise ValueError("unforeseen")

    hosts = Hosts((0.5,), (DONE,))
    found = gathered(hosts.begin, 2, at_once=2)
    assert next(found) == (1, DONE)
    hosts.begun[0].look = fail
    with pytest.raises(ValueError, match="unforeseen"):
        next(found)
    assert [one.closed for one in hosts.begun] == [1, 1]
