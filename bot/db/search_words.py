"""Words: what runs are found by, taken from their values, their end and what hosts answered."""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import cast

from sqlalchemy import delete, select

from bot.db import tables
from bot.db.database import Transaction

LONGEST = 64
# Of one text. What hosts answer may be long; its beginning says what it is about.
_MOST = 500
_BETWEEN = r"\s\"'`(){}\[\]<>,;|\0"
_EDGE = r".:/\-=_!?*#…–—“”‘’"
# From one letter that is no edge to the last that is none.
_WHOLE = re.compile(f"[^{_BETWEEN}{_EDGE}][^{_BETWEEN}]*[^{_BETWEEN}{_EDGE}]")
# The digits between the dots of a number or an address say nothing by themselves.
_PART = re.compile(r"(?=\d*[^\W\d])\w\w+")


def split_search_words(text: str) -> list[str]:
    """Return the words of a text, each once, in its order: `tank/home`, `tank`, `home`."""
    found: dict[str, None] = {}
    for whole in parse_search(text):
        found[whole] = None
        # Most of them are one part, and are that one.
        if not whole.isalnum():
            found.update([(part[:LONGEST], None) for part in _PART.findall(whole)])
        if len(found) >= _MOST:
            break
    return list(found)[:_MOST]


def parse_search(typed: str) -> list[str]:
    """Return what must be there if this is looked for; a word that holds others is one."""
    plain = typed if typed.isascii() else unicodedata.normalize("NFKC", typed)
    return list(dict.fromkeys([whole[:LONGEST] for whole in _WHOLE.findall(plain.lower())]))


def words_of_fields(fields: Mapping[str, str]) -> list[str]:
    """Return the words of a request's values, and each value with its name: `device=sdb`."""
    named = (one for name, value in fields.items() for one in parse_search(f"{name}={value}")[:1])
    return [
        *named,
        *(word for value in fields.values() for word in split_search_words(str(value))),
    ]


def words_of_json(text: str) -> list[str]:
    """Return the words of all texts within a JSON document, without the names of its members."""
    return split_search_words(" ".join(_texts(json.loads(text))))


def store_words(tx: Transaction, words: Mapping[int, Iterable[str]]) -> None:
    """Let each run be found by its own, beside those that it is found by already."""
    rows = [
        {"word": word, "run": run} for run, mine in words.items() for word in dict.fromkeys(mine)
    ]
    if rows:
        tx.sql.execute(tx.insert_into(tables.search_word).on_conflict_do_nothing(), rows)


def delete_words(tx: Transaction, run: int, words: Iterable[str]) -> None:
    """Let the run not be found by these any more, unless its request or its end has them too."""
    of_run = tables.run.c
    row = tx.sql.execute(
        select(of_run.field_values, of_run.reason, of_run.summary).where(of_run.id == run)
    ).one()
    kept = {
        *words_of_fields(json.loads(row.field_values)),
        *split_search_words(row.reason),
        *split_search_words(row.summary),
    }
    found = tables.search_word.c
    gone = set(words) - kept
    tx.sql.execute(delete(tables.search_word).where(found.run == run, found.word.in_(gone)))


def _texts(thing: object) -> Iterable[str]:
    if isinstance(thing, str):
        yield thing
    elif isinstance(thing, dict):
        for value in cast("dict[str, object]", thing).values():
            yield from _texts(value)
    elif isinstance(thing, list):
        for value in cast("list[object]", thing):
            yield from _texts(value)
