"""Pages of declared runbooks that were broken at random."""

import random
import re

from tests.runbooks.pages import CHANGE, CHECK

_ODD = [
    "", "~", "null", "true", "[]", "{}", "-1", "99999999999999999999", "{a: {b: c}}", "[[1]]", "'",
    '"', "&a x", "*a", "!!python/object:os.system x", "\t", "- x", "? x", "|", ">-", "@", "`", "%",
    "{host", "host}", "{}", "{host.x}", "x" * 5000, "\\x00", "é", "日本", "\u202e", "1/0",
    "host + 1", "[1,2].map(a, [1].map(b, a))", "((((((((((((((((((((((((((((((((((((((1", "a.b.c",
    "$(id)", "; id", "{value}{value}", "../../etc", "-rf", "0x10", "1e9", "on", "22:30",
]  # fmt: skip


def break_page(chance: random.Random) -> str:
    """Return a page with one to four faults."""
    text = chance.choice([CHANGE, CHECK])
    for _ in range(chance.randint(1, 4)):
        text = chance.choice(
            [_drop_line, _double_line, _indent_line, _cut, _exchange_value, _flip, _rename_key]
        )(text, chance)
    return text


def _drop_line(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line for at, line in enumerate(lines) if at != chance.randrange(len(lines)))


def _double_line(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    lines.insert(chance.randrange(len(lines)), chance.choice(lines))
    return "".join(lines)


def _indent_line(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    if lines:
        at = chance.randrange(len(lines))
        lines[at] = " " * chance.randint(1, 5) + lines[at].lstrip(" ")
    return "".join(lines)


def _cut(text: str, chance: random.Random) -> str:
    begin = chance.randrange(len(text) + 1)
    return text[:begin] + text[begin + chance.randint(1, 40) :]


def _exchange_value(text: str, chance: random.Random) -> str:
    values = list(re.finditer(r"(?<=: )[^\n{\[]+|(?<=\[)[^\]\n]+", text))
    if not values:
        return text
    value = chance.choice(values)
    return text[: value.start()] + chance.choice(_ODD) + text[value.end() :]


def _flip(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice(" :{}[]'\"-#\n\t,|>&*!x0") + text[at + 1 :]


def _rename_key(text: str, chance: random.Random) -> str:
    keys = list(re.finditer(r"\w+(?=:)", text))
    if not keys:
        return text
    key, other = chance.choice(keys), chance.choice(keys)
    return text[: key.start()] + other.group() + text[key.end() :]
