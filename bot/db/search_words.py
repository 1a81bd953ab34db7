"""The search index: words of the values, reasons, summaries and outputs of runs."""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import cast

from sqlalchemy import delete, select, text

from bot.db import tables
from bot.db.database import Transaction
from bot.model.references import hide_references

LONGEST = 64
# How many words of one text are indexed. Output may be long; its beginning is enough.
_MAX_WORDS = 500
_BETWEEN = r"\s\"'`(){}\[\]<>,;|\0"
_EDGE = r".:/\-=_!?*#…–—“”‘’"
# From the first to the last character that is not punctuation.
_WHOLE = re.compile(f"[^{_BETWEEN}{_EDGE}][^{_BETWEEN}]*[^{_BETWEEN}{_EDGE}]")
# Rows of words are most of what a check writes: all of them are one statement, and one value.
_INSERT = text(
    "INSERT INTO search_word (word, run) "
    "SELECT mine.value, CAST(of_run.key AS INTEGER) "
    "FROM json_each(:words) AS of_run, json_each(of_run.value) AS mine "
    "WHERE true ON CONFLICT DO NOTHING"
)
_INSERT_ON_SERVER = text(
    "INSERT INTO search_word (word, run) "
    "SELECT word, CAST(of_run.key AS INTEGER) "
    "FROM json_each(CAST(:words AS json)) AS of_run, "
    "json_array_elements_text(of_run.value) AS word "
    "ON CONFLICT DO NOTHING"
)
# Single digits, such as those of an IP address, are useless as words of their own.
_PART = re.compile(r"(?=\d*[^\W\d])\w\w+")


def split_search_words(text: str) -> list[str]:
    """Return the distinct words of a text in their order: `tank/home`, `tank`, `home`."""
    found: dict[str, None] = {}
    for whole in parse_search(text):
        found[whole] = None
        # Most words have only one part.
        if not whole.isalnum():
            found.update([(part[:LONGEST], None) for part in _PART.findall(whole)])
        if len(found) >= _MAX_WORDS:
            break
    return list(found)[:_MAX_WORDS]


def parse_search(typed: str) -> list[str]:
    """Return the words to search for; a compound word such as `tank/home` counts as one."""
    plain = typed if typed.isascii() else unicodedata.normalize("NFKC", typed)
    return list(dict.fromkeys([whole[:LONGEST] for whole in _WHOLE.findall(plain.lower())]))


def split_fields_into_words(fields: Mapping[str, str]) -> list[str]:
    """Return the words of the values of a request, and each value with its name: `device=sdb`."""
    named = (one for name, value in fields.items() for one in parse_search(f"{name}={value}")[:1])
    return [
        *named,
        *(word for value in fields.values() for word in split_search_words(str(value))),
    ]


def split_json_into_words(text: str) -> list[str]:
    """Return the words of all texts in a JSON document, without the names of its members."""
    return split_search_words(" ".join(_iterate_texts(json.loads(text))))


def store_words(tx: Transaction, words: Mapping[int, Iterable[str]]) -> None:
    """Add words of runs to the index."""
    rows = {run: found for run, mine in words.items() if (found := [*dict.fromkeys(mine)])}
    if rows:
        statement = _INSERT if tx.embedded else _INSERT_ON_SERVER
        tx.sql.execute(statement, {"words": json.dumps(rows, ensure_ascii=False)})


def delete_words(tx: Transaction, run: int, words: Iterable[str]) -> None:
    """Remove words of a run from the index, unless its values, reason or summary have them."""
    of_run = tables.run.c
    row = tx.sql.execute(
        select(of_run.field_values, of_run.reason, of_run.summary).where(of_run.id == run)
    ).one()
    kept = {
        *split_fields_into_words(json.loads(row.field_values)),
        *split_search_words(row.reason),
        *split_search_words(hide_references(row.summary)),
    }
    column = tables.search_word.c
    removed = set(words) - kept
    tx.sql.execute(delete(tables.search_word).where(column.run == run, column.word.in_(removed)))


def _iterate_texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in cast("dict[str, object]", value).values():
            yield from _iterate_texts(member)
    elif isinstance(value, list):
        for element in cast("list[object]", value):
            yield from _iterate_texts(element)
