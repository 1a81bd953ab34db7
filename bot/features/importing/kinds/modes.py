"""Modes of files: which bits one sets and clears, as chmod and as Ansible take it."""

import re
from dataclasses import dataclass

from bot.features.importing.drafts import Unclear

_ALL, _SET_IDS, _SPECIAL_BITS = 0o7777, 0o6000, 0o7000
_DIGITS = re.compile("(?:0o)?([0-7]{3,5})")
_CLAUSE = re.compile("([ugoa]+)((?:[-+=][rwxst]*)+)")
_PLACES = {"u": 6, "g": 3, "o": 0}
# Those that s and t mean for a user, a group and others.
_SPECIAL = {"us": 0o4000, "gs": 0o2000, "ot": 0o1000}


@dataclass(frozen=True)
class Mode:
    """What a mode does. Bits that it neither sets nor clears stay as they are."""

    shown: str
    word: str
    """The argument of chmod that does it."""
    pattern: str
    """What the mode of a file, in four digits, matches where there is nothing to do."""
    pattern_of_directory: str
    on: int
    off: int
    off_of_directory: int


def read_mode(text: str, *, by_chmod: bool = False) -> Mode:
    """Return what a mode does. Raises Unclear.

    by_chmod: whether GNU chmod was called with it, which keeps the set-user-ID and set-group-ID
    bits of a directory unless they are named. Ansible keeps none of what it does not name.
    https://www.gnu.org/software/coreutils/manual/html_node/Directory-Setuid-and-Setgid.html
    """
    digits = _DIGITS.fullmatch(text)
    if digits:
        on, named = int(digits[1], 8), int(digits[1], 8)
        off = _ALL & ~on
        named |= _ALL if len(digits[1]) > 4 else 0
    else:
        on, off, named = _read_clauses(text)
    of_directory = off & ~(_SET_IDS & ~named) if by_chmod else off
    word = text if by_chmod else _write(on, off)
    shown = digits[1].lstrip("0") or "0" if digits else text
    patterns = (_match(on, off), _match(on, of_directory))
    return Mode(
        f"{on:o}" if not digits and on | off == _ALL else shown,
        word,
        *patterns,
        on,
        off,
        of_directory,
    )


def read_mode_of_all(text: str, *, by_chmod: bool = False) -> tuple[str, list[str]]:
    """Return the argument of `chmod -R` that sets a mode, and the tests by which find looks for
    what has another one. Links, which have no mode, are none of it. Raises Unclear.

    X is x for directories, and for files that someone may execute already.
    """
    if "X" in text:
        _refuse_odd_clauses(text)
    mode = read_mode(text.replace("X", "x"), by_chmod=by_chmod)
    other = read_mode(text.replace("X", ""), by_chmod=by_chmod) if "X" in text else mode
    of_file, of_directory = (mode.on, mode.off), (mode.on, mode.off_of_directory)
    groups = [(["-type", "d"], of_directory), (["!", "-type", "d"], of_file)]
    if "X" in text:
        word = (
            text
            if by_chmod
            else ",".join(filter(None, (text, _write(0, mode.off & _SPECIAL_BITS))))
        )
        executable = ["-perm", "/0111"]
        groups[1:] = [
            ([*groups[1][0], *executable], of_file),
            ([*groups[1][0], "!", *executable], (other.on, other.off)),
        ]
    else:
        word = mode.word
        groups = [(list[str](), of_file)] if of_file == of_directory else groups
    tests = [[*which, "(", *_find_other(*bits), ")"] for which, bits in groups if any(bits)]
    if not tests:
        raise Unclear(f"the mode {text[:40]!r} changes nothing")
    joined = [word for one in tests for word in ("-o", *one)][1:]
    return word, ["!", "-type", "l", *(joined if len(tests) == 1 else ["(", *joined, ")"])]


def _refuse_odd_clauses(text: str) -> None:
    """Refuse X in a mode that sets or clears x as well before it, of which it depends."""
    removes = False
    for sign, letters in re.findall("([-+=])([rwxXst]*)", text):
        if ("x" in letters and sign != "-") or ("X" in letters and (removes or sign == "-")):
            raise Unclear(f"the mode {text[:40]!r} is not read for all that is in a directory")
        removes = removes or (sign == "=" and "X" not in letters) or "x" in letters


def _find_other(on: int, off: int) -> list[str]:
    missing = ["!", "-perm", f"-{on:04o}"] if on else []
    return [*missing, *(["-o"] if on and off else []), *(["-perm", f"/{off:04o}"] if off else [])]


def _read_clauses(text: str) -> tuple[int, int, int]:
    """Return the bits that a mode such as u=rwx,go-w sets, clears and names. Raises Unclear."""
    on = off = named = 0
    for part in text.split(","):
        clause = _CLAUSE.fullmatch(part)
        if clause is None:
            raise Unclear(f"the mode {text[:40]!r} is not read")
        for sign, letters in re.findall("([-+=])([rwxst]*)", clause[2]):
            for who in clause[1].replace("a", "ugo"):
                bits = _count_bits(who, letters)
                named |= bits
                scope = _count_bits(who, "rwxst") if sign == "=" else bits
                on, off = on & ~scope, off & ~scope
                on |= 0 if sign == "-" else bits
                off |= bits if sign == "-" else scope & ~bits
    return on, off, named


def _count_bits(who: str, letters: str) -> int:
    plain = sum(4 >> "rwx".index(one) for one in {*letters} & {*"rwx"})
    return plain << _PLACES[who] | sum(_SPECIAL.get(who + one, 0) for one in {*letters} & {*"st"})


def _write(on: int, off: int) -> str:
    if on | off == _ALL:
        # With five digits, chmod clears the bits of a directory too.
        return f"{on:05o}"
    parts = [
        f"{who}{sign}{letters}"
        for who in "ugo"
        for sign, bits in (("-", off), ("+", on))
        if (letters := "".join(one for one in "rwxst" if bits & _count_bits(who, one)))
    ]
    return ",".join(parts)


def _match(on: int, off: int) -> str:
    """Return a pattern of four digits that have these bits set and cleared."""
    places = [
        [
            digit
            for digit in range(8)
            if not (on >> at & 7) & ~digit and not (off >> at & 7) & digit
        ]
        for at in (9, 6, 3, 0)
    ]
    shown = ("".join(map(str, one)) for one in places)
    return "".join(one if len(one) == 1 else f"[{one}]" for one in shown)
