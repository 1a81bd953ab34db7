import pytest

from bot.run import IllegalMove, Origin, State, Vote
from bot.store import kin, locks, news, runs, search, seen, signins
from bot.store.database import Database, Transaction


def _new(tx: Transaction, host: str = "lb1", person: str = "dora") -> int:
    fields = {"host": host, "name": "lamp"}
    new = runs.NewRun("toy set", "change", fields, host, "edge", person, Origin("web"))
    return runs.add(tx, new).id


def test_a_run_is_found_as_it_was_saved(database: Database):
    with database.transaction() as tx:
        number = _new(tx)
    with database.reading() as tx:
        run = runs.get(tx, number)
    assert (run.state, run.host, run.fields["name"]) == (State.ASKED, "lb1", "lamp")
    assert run.title == "toy set"


def test_a_run_that_is_not_there_is_named(database: Database):
    with pytest.raises(runs.NoSuchRun, match="no run 77"), database.reading() as tx:
        runs.get(tx, 77)


def test_an_illegal_move_is_refused(database: Database):
    with database.transaction() as tx:
        run = runs.get(tx, _new(tx))
        with pytest.raises(IllegalMove):
            runs.move(tx, run, State.RUNNING)


def test_what_no_run_has_is_not_changed(database: Database):
    with database.transaction() as tx:
        run = runs.get(tx, _new(tx))
        with pytest.raises(TypeError, match="not what a run is made of: colour"):
            runs.move(tx, run, State.WAITING, colour="red")


def test_the_second_to_move_a_run_is_told(database: Database):
    with database.transaction() as tx:
        run = runs.get(tx, _new(tx))
        runs.move(tx, run, State.WAITING)
        with pytest.raises(runs.Overtaken):
            runs.move(tx, run, State.WITHDRAWN)


def test_runs_that_are_held_are_as_they_are_now(database: Database):
    with database.transaction() as tx:
        known = [runs.get(tx, _new(tx, host)) for host in ("lb1", "lb2", "lb3")]
        runs.move(tx, known[1], State.WAITING, needed=2)
    with database.transaction() as tx:
        held = {run.id: run for run in kin.hold(tx, known)}
        assert held == {run.id: runs.get(tx, run.id) for run in known}
    assert held[known[1].id].needed == 2
    assert held[known[0].id] is known[0]


def test_pages_show_every_run_once_newest_first(database: Database):
    with database.transaction() as tx:
        numbers = [_new(tx, host=f"lb{n % 3}") for n in range(30)]
    found: list[int] = []
    before = None
    while True:
        with database.reading() as tx:
            page = search.newest(tx, search.Filter(before=before), most=7)
        if not page:
            break
        found += [run.id for run in page]
        before = page[-1].id
    assert found == sorted(numbers, reverse=True)


def test_filters_narrow_what_is_found(database: Database):
    with database.transaction() as tx:
        _new(tx, "lb1", "dora")
        wanted = _new(tx, "lb2", "dora")
        _new(tx, "lb2", "olga")
        now = tx.now
        both = search.Filter(host="lb2", person="dora", words="toy set")
        assert [run.id for run in search.newest(tx, both)] == [wanted]
        assert len(search.newest(tx, search.Filter(states=frozenset({State.ASKED})))) == 3
        assert search.newest(tx, search.Filter(states=frozenset({State.FAILED}))) == []
        assert search.newest(tx, search.Filter(since=now + 1)) == []
        assert len(search.newest(tx, search.Filter(until=now))) == 3


def test_a_person_votes_once(database: Database):
    with database.transaction() as tx:
        number = _new(tx)
        vote = Vote(number, "olga", yes=True, digest="d", at=tx.now)
        assert runs.cast(tx, vote)
        assert not runs.cast(tx, vote)
        assert runs.votes(tx, number) == [vote]


def test_a_target_is_locked_by_one_run(database: Database):
    with database.transaction() as tx:
        first, second = _new(tx), _new(tx)
        assert locks.take(tx, "lb1", first) is None
        assert locks.take(tx, "lb1", first) is None
        holder = locks.take(tx, "lb1", second)
        assert holder is not None
        assert holder.run == first
        locks.release(tx, first)
        assert locks.take(tx, "lb1", second) is None


def test_news_become_one_and_come_again(database: Database):
    with database.transaction() as tx:
        number = _new(tx)
        news.announce(tx, number)
        news.announce(tx, number)
        (item,) = news.pending(tx)
        assert item.revision == 2
        news.announce(tx, number)  # while it is being told
        news.told(tx, item)
        (again,) = news.pending(tx)
        news.told(tx, again)
        assert news.pending(tx) == []


def test_postponed_news_wait_and_keep(database: Database):
    with database.transaction() as tx:
        number = _new(tx)
        news.announce(tx, number)
        (item,) = news.pending(tx)
        news.postpone(tx, item, seconds=60, why="Slack is away")
        assert news.pending(tx) == []
        news.postpone(tx, item, seconds=-1, why="back")
        assert [item.run for item in news.pending(tx)] == [number]


def test_a_notice_is_remembered_and_renewed(database: Database):
    with database.transaction() as tx:
        number = _new(tx)
        news.remember(tx, news.Notice(number, "card", "C1", "1.0", "a"))
        news.remember(tx, news.Notice(number, "card", "C1", "2.0", "b"))
        assert news.notices(tx, number)["card"].ts == "2.0"


def test_what_was_seen_has_no_second_first_time(database: Database):
    with database.transaction() as tx:
        assert seen.first_time(tx, "signature")
        assert not seen.first_time(tx, "signature")
        seen.forget_old(tx)
        assert not seen.first_time(tx, "signature")


def test_a_sign_in_link_works_once(database: Database):
    with database.transaction() as tx:
        token = signins.new_link(tx, "dora")
        assert signins.use_link(tx, "guess") is None
        assert signins.use_link(tx, token) == "dora"
        assert signins.use_link(tx, token) is None


def test_a_sign_in_link_grows_old(database: Database):
    with database.transaction() as tx:
        assert signins.use_link(tx, signins.new_link(tx, "dora", seconds=0)) is None


def test_a_session_ends_when_it_is_ended(database: Database):
    with database.transaction() as tx:
        token = signins.begin(tx, "dora")
        assert signins.person_of(tx, token) == "dora"
        signins.end(tx, token)
        assert signins.person_of(tx, token) is None
