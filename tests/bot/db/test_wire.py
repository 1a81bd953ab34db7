"""How often PostgreSQL is waited for, and what becomes of what it is told without waiting."""

import contextlib
import socket
from collections.abc import Callable, Generator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from bot.audit import change_log, verification
from bot.audit import query as audit_query
from bot.audit.change_log import Draft
from bot.audit.signing import SigningKey
from bot.db import search
from bot.db.database import Database, StoreRefused, StoreUnavailable, Transaction
from bot.db.search import RunFilter
from bot.db.statement import Statement
from tests.bot.empty import empty_on
from tests.playground.between import Between
from tests.playground.postgres import Postgres

pytestmark = pytest.mark.real

# As often as it takes until the driver has prepared what it says again and again.
OFTEN = 8


class Journeys(Between):
    """Counts how often somebody has waited for the server: it answers what was said since."""

    def __init__(self, address: str, port: int) -> None:
        super().__init__(address, port)
        self.count, self._said = 0, False

    def _works(self) -> list[Callable[[socket.socket, socket.socket], None]]:
        return [self._ask, self._answer]

    def _ask(self, guest: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):  # one side has hung up
            while data := guest.recv(1 << 20):
                self._said = True
                server.sendall(data)

    def _answer(self, guest: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                self.count += self._said
                self._said = False
                guest.sendall(data)


@pytest.fixture
def database(postgres: Postgres) -> Generator[Database]:
    database = empty_on(postgres)
    with database.transaction() as tx:
        verification.open_log(tx)
    yield database
    database.close()


@pytest.fixture
def journeys(database: Database) -> Generator[tuple[Database, Journeys]]:
    """The same database, and how often it is waited for."""
    url = database.engine.url
    assert url.port
    with Journeys("127.0.0.1", url.port) as between:
        through = url.set(host="127.0.0.1", port=between.port)
        beside = database.beside(through.render_as_string(hide_password=False))
        yield beside, between
        beside.close()


def _taken(between: Journeys, act: Callable[[], object]) -> int:
    """Return how many journeys it takes, once it was done so often that it is known."""
    for _ in range(OFTEN):
        act()
    before = between.count
    act()
    return between.count - before


def test_an_entry_takes_two_journeys(journeys: tuple[Database, Journeys]):
    """Begun along with the end of the log, and committed along with the entry."""
    database, between = journeys

    def append() -> None:
        with database.transaction() as tx:
            change_log.append_entry(tx, "noted")

    assert _taken(between, append) == 2


def test_many_entries_take_no_more_journeys_than_one(journeys: tuple[Database, Journeys]):
    database, between = journeys

    def append() -> None:
        with database.transaction() as tx:
            change_log.append_entries(tx, [Draft("noted") for _ in range(200)])

    assert _taken(between, append) == 2


def test_what_is_asked_first_takes_no_journey_to_begin(journeys: tuple[Database, Journeys]):
    database, between = journeys

    def look() -> None:
        with database.transaction() as tx:
            assert not change_log.list_entries_of_run(tx, 1)
            assert tx.now > 1_700_000_000_000_000

    assert _taken(between, look) == 2


def test_whoever_asks_nothing_takes_no_journey(journeys: tuple[Database, Journeys]):
    database, between = journeys

    def nothing() -> None:
        with database.transaction():
            pass

    assert _taken(between, nothing) == 0


def test_the_time_is_that_of_the_beginning_whenever_it_is_asked_for(database: Database):
    with database.transaction() as tx:
        change_log.append_entry(tx, "noted")
        change_log.append_entry(tx, "noted")
        first, second = change_log.list_newest_entries(tx, most=2)
        assert first.at == second.at == tx.now
    with database.transaction() as tx:
        assert tx.now > first.at


@pytest.mark.parametrize("often", [1, OFTEN])
def test_whoever_fails_in_what_is_asked_first_leaves_a_good_connection(
    database: Database, often: int
):
    def fail() -> None:
        with database.transaction() as tx:
            tx.wire.rows("SELECT 1 / %s", (0,))

    for _ in range(often):
        with pytest.raises(StoreRefused):
            fail()
    with database.transaction() as tx:
        assert change_log.append_entry(tx, "noted").seq == 2


def test_one_look_takes_two_journeys(journeys: tuple[Database, Journeys]):
    database, between = journeys

    def look() -> None:
        with database.reading() as tx:
            change_log.get_head(tx)

    assert _taken(between, look) == 2


def test_a_page_of_the_log_takes_two_journeys(journeys: tuple[Database, Journeys]):
    """It begins; and the entries, the newest of all and the kinds come along with the end."""
    database, between = journeys

    def look() -> None:
        with database.reading() as tx:
            assert audit_query.get_log_page(tx, audit_query.EntryFilter(), most=9).head[0] == 1

    assert _taken(between, look) == 2


def test_a_page_of_the_history_takes_no_journey_to_end(journeys: tuple[Database, Journeys]):
    """It begins, looks for runs, asks how far it looked, and draws up what was found."""
    database, between = journeys

    def look() -> None:
        with database.reading() as tx:
            assert not search.list_run_page(tx, RunFilter(), most=9, whose="olga").runs

    assert _taken(between, look) == 4


def test_nothing_is_asked_after_what_was_the_last(database: Database):
    def ask(then: Callable[[Transaction], object]) -> None:
        with database.reading() as tx:
            tx.wire.of_each([change_log.HEAD], last=True)
            then(tx)

    more: list[Callable[[Transaction], object]] = [
        change_log.get_head,
        lambda tx: tx.sql,
        lambda tx: tx.wire.all_rows("SELECT 1").__enter__(),
    ]
    for one in more:
        with pytest.raises(StoreUnavailable, match="asked after what was said to be the last"):
            ask(one)
    ask(lambda tx: tx.now)
    with database.transaction() as tx:
        assert change_log.append_entry(tx, "noted").seq == 2


def test_whoever_writes_and_asks_for_the_last_has_written_nothing_and_is_told(database: Database):
    def write() -> None:
        with database.transaction() as tx:
            change_log.append_entry(tx, "noted")
            tx.wire.of_each([change_log.HEAD], last=True)

    with pytest.raises(StoreUnavailable, match="asked after what was said to be the last"):
        write()
    with database.reading() as tx:
        assert change_log.get_head(tx)[0] == 1


def test_what_is_kept_back_is_there_for_whatever_is_asked_next(database: Database):
    with database.transaction() as tx:
        change_log.append_entry(tx, "noted", person="olga")
        query = text("SELECT count(*) FROM entry WHERE person = 'olga'")
        assert tx.sql.execute(query).scalar_one() == 1
        change_log.append_entry(tx, "noted", person="olga")
        assert change_log.get_head(tx) == tx.log_head


def test_what_is_kept_back_and_refused_is_told_by_the_commit(database: Database):
    def write() -> None:
        with database.transaction() as tx:
            tx.log_head = (0, change_log.GENESIS)
            change_log.append_entry(tx, "noted")

    with pytest.raises(StoreRefused):
        write()
    with database.reading() as tx:
        assert verification.verify_log(tx).entries == 1


def test_what_is_kept_back_and_refused_is_told_by_what_is_asked_next(database: Database):
    def write() -> None:
        with database.transaction() as tx:
            tx.log_head = (0, change_log.GENESIS)
            change_log.append_entry(tx, "noted")
            tx.sql.execute(text("INSERT INTO seen VALUES ('this', 1)"))

    with pytest.raises(StoreRefused):
        write()
    with database.reading() as tx:
        assert not tx.sql.execute(text("SELECT 1 FROM seen")).all()


def test_what_is_kept_back_by_somebody_who_fails_is_written_by_nobody(database: Database):
    def write() -> None:
        with database.transaction() as tx:
            change_log.append_entry(tx, "noted")
            _ = 1 // 0

    with pytest.raises(ZeroDivisionError):
        write()
    for _ in range(OFTEN):
        with database.transaction() as tx:
            assert change_log.get_head(tx)[0] == 1


def test_a_connection_that_is_lost_is_told_and_made_anew(database: Database):
    def write() -> None:
        with database.transaction() as tx:
            change_log.append_entry(tx, "noted")
            _end(database, tx.wire.driver.info.backend_pid)

    with pytest.raises(StoreUnavailable):
        write()
    with database.transaction() as tx:
        change_log.append_entry(tx, "noted")
    with database.reading() as tx:
        assert change_log.get_head(tx)[0] == 2


def _end(database: Database, backend: int) -> None:
    other = Database(database.url, SigningKey.new())
    with other.reading() as tx:
        tx.sql.execute(text(f"SELECT pg_terminate_backend({backend})"))
    other.close()


def test_what_failed_and_was_passed_over_is_not_told_as_durable(database: Database):
    """PostgreSQL takes such a commit, and takes everything back."""

    def write() -> None:
        with database.transaction() as tx:
            change_log.append_entry(tx, "noted")
            with contextlib.suppress(DBAPIError):
                tx.wire.rows("SELECT 1 / 0", None)

    with pytest.raises(StoreUnavailable, match="ended by ROLLBACK"):
        write()
    with database.reading() as tx:
        assert change_log.get_head(tx)[0] == 1


def test_much_that_is_told_at_once_is_answered_at_once(database: Database):
    """More than both sides have room for: whoever only told would wait for good."""
    long = "x" * 1_000_000
    asked = [Statement("SELECT %s::text", [f"{n}{long}"]) for n in range(30)]
    with database.reading() as tx:
        answers = tx.wire.of_each(asked)
    assert [answer.rows[0][0] for answer in answers] == [f"{n}{long}" for n in range(30)]


def test_what_is_said_often_is_prepared_and_no_more_than_the_server_has_room_for(
    database: Database,
):
    with database.reading() as tx:
        for n in range(150):
            tx.wire.of_each([Statement(f"SELECT {n}")] * OFTEN)
        count = "SELECT count(*) FROM pg_prepared_statements"
        assert tx.wire.rows(count, None) == [(100,)]


def test_what_fails_again_and_again_is_prepared_once(database: Database):
    asked = [Statement("SELECT 1 / %s::int", [0]), Statement("SELECT 'after it'")]
    for _ in range(3 * OFTEN):
        with pytest.raises(StoreRefused), database.reading() as tx:
            tx.wire.of_each(asked)
    with database.reading() as tx:
        assert tx.wire.of_each(asked[1:])[0].rows == [("after it",)]
        found = tx.wire.rows("SELECT statement FROM pg_prepared_statements", None)
    assert [words for (words,) in found if "1 /" in words] == ["SELECT 1 / $1::int"]


def test_what_goes_with_a_text_that_is_refused_is_not_taken_for_prepared(database: Database):
    beside = Statement("SELECT 'beside it'")
    for _ in range(OFTEN):
        with pytest.raises(StoreRefused), database.reading() as tx:
            tx.wire.of_each([beside, Statement("SELECT %s::text", ["a\0b"])])
    with database.reading() as tx:
        assert tx.wire.of_each([beside])[0].rows == [("beside it",)]


def test_what_is_planned_for_its_values_is_never_prepared(database: Database):
    with database.reading() as tx:
        for _ in range(OFTEN):
            tx.wire.rows("SELECT %(n)s::int, '%%'", {"n": 7}, by_heart=False)
        found = tx.wire.rows("SELECT statement FROM pg_prepared_statements", None)
    assert not any("%" in statement for (statement,) in found)


def test_values_are_given_by_their_places_or_by_their_names(database: Database):
    with database.reading() as tx:
        by_place = tx.wire.rows("SELECT %s::text, %s::int, '%%'", ["one", None])
        by_name = tx.wire.rows("SELECT %(a)s::int, %(b)s::text, %(a)s::int", {"b": "x", "a": 2})
    assert (by_place, by_name) == ([("one", None, "%")], [(2, "x", 2)])


def test_a_text_that_would_be_cut_short_is_refused(database: Database):
    with pytest.raises(StoreRefused), database.reading() as tx:
        tx.wire.rows("SELECT %s::text", ["a\0b"])
