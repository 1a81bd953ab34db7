"""Engines: how a database of each kind is opened, and how long it is waited for."""

from typing import Any

from sqlalchemy import Engine, create_engine, event

from bot.store import premises

# So many connections are kept, and so many more are made where all are in use.
_KEPT, _MORE = 16, 16
# Whoever holds a lock for too long is told of by the server, before it is hung up on itself.
_LOCKED_MILLISECONDS = 1_750


def sqlite(url: str, *, patience: int, busy: int) -> Engine:
    """patience: seconds that it may take to answer. busy: that one may wait for a connection."""
    engine = create_engine(
        url,
        isolation_level="AUTOCOMMIT",
        pool_size=_KEPT,
        max_overflow=_MORE,
        pool_timeout=busy,
    )

    @event.listens_for(engine, "do_connect")
    def _make(_dialect: object, _record: object, given: list[Any], _named: object) -> None:
        premises.make_file(given[0])

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            # What is erased is overwritten.
            "secure_delete=ON",
            f"busy_timeout={patience * 1000}",
        ):
            connection.execute(f"PRAGMA {pragma}")

    return engine


def postgresql(url: str, *, patience: int, busy: int) -> Engine:
    """patience, busy: as above."""
    return create_engine(
        url,
        # A transaction is begun by the message that asks for the time.
        isolation_level="AUTOCOMMIT",
        pool_size=_KEPT,
        max_overflow=_MORE,
        pool_timeout=busy,
        # Whether a connection is still good is asked by the watch, and not by `pool_pre_ping`: a
        # log that does not answer is a log that cannot be written, and nobody waits for it.
        connect_args={
            # Told to forget what it has prepared, a server would forget what the pipe has, too.
            "prepare_threshold": None,
            "connect_timeout": patience,
            "tcp_user_timeout": 2 * busy * 1000,
            # To compile what takes milliseconds would take longer than it.
            "options": f"-c lock_timeout={_LOCKED_MILLISECONDS} -c jit=off",
        },
    )
