"""The fair queue before the threads of one process."""

from bot.db.priority import BULK, DIRECT, URGENT, Turn
from bot.execution.local_dispatch import FairQueue


def _take_all_runs(line: FairQueue) -> list[int]:
    taken: list[int] = []
    while (run := line.take_next_run()) is not None:
        taken.append(run)
    return taken


def test_fair_queue_takes_the_most_urgent_run_then_the_oldest():
    line = FairQueue()
    for run, rank in ((1, BULK), (2, DIRECT), (3, URGENT), (4, DIRECT)):
        line.add_run(run, Turn(rank, "dora"))
    assert _take_all_runs(line) == [3, 2, 4, 1]


def test_fair_queue_holds_a_run_once_and_accepts_it_again_later():
    line = FairQueue()
    assert line.add_run(1, Turn())
    assert not line.add_run(1, Turn())
    assert set(line.queued_runs) == {1}
    assert line.take_next_run() == 1
    assert line.add_run(1, Turn())
    assert _take_all_runs(line) == [1]
    assert line.take_next_run() is None


def test_fair_queue_lets_a_person_wait_for_one_run_of_each_other_person():
    """Ten people, of whom one has asked for a thousand things before the others came."""
    line = FairQueue()
    for run in range(1000):
        line.add_run(run, Turn(DIRECT, "dora"))
    for _ in range(500):
        line.take_next_run()
    others = {1000 + n: f"person {n}" for n in range(9)}
    for run, person in others.items():
        line.add_run(run, Turn(DIRECT, person))
    assert others.keys() <= {line.take_next_run() for _ in range(11)}
    assert sorted(_take_all_runs(line)) == [*range(502, 1000)]


def test_fair_queue_takes_child_runs_rarely_but_never_starves_them():
    """Three people who always have something in the line, and a wave."""
    line = FairQueue()
    wave = [*range(4)]
    for run in wave:
        line.add_run(run, Turn(BULK, "dora"))
    for run in range(300):
        line.add_run(100 + run, Turn(DIRECT, f"person {run % 3}"))
    taken = _take_all_runs(line)
    # Each of the three has had its eight by then.
    assert [taken.index(run) // 25 for run in wave] == wave


def test_fair_queue_lets_people_take_turns_with_ten_thousand_runs():
    line = FairQueue()
    for run in range(10_000):
        line.add_run(run, Turn(DIRECT, f"person {run % 7 if run % 2 else 0}"))
    taken = _take_all_runs(line)
    assert sorted(taken) == [*range(10_000)]
    firsts = {run % 7 if run % 2 else 0 for run in taken[:7]}
    assert firsts == {*range(7)}
