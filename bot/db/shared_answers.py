"""Shared: what those who write together ask but once.

They write one after the other in one transaction of SQLite, while nobody else can write; see
bot.db.commits. So what none of them changes is so for all of them, and what is asked about all
hosts of a wave need not be asked before each. Whoever has a transaction of their own asks for
themselves.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Connection

from bot.db.database import Transaction

T = TypeVar("T")

# By the connection that they share, which is opened anew for each transaction.
_ANSWERS: WeakKeyDictionary[Connection, dict[Hashable, Any]] = WeakKeyDictionary()


def share_answer(tx: Transaction, question: Hashable, find: Callable[[], T]) -> T:
    """Return what was found for this question in this transaction, or find it.

    question: also names all that the answer depends on and that may differ among them. Ask so
    only for what is written by nobody who writes together with others, such as what was asked for
    and approved as a whole. What is raised is found anew by the next.
    """
    known = _ANSWERS.setdefault(tx.wire.connection, {})
    if question not in known:
        known[question] = find()
    return known[question]
