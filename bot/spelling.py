"""Spelling: how several hosts are named by one word: `lb1,lb2`, `lb*`, `@haproxy`. Pure."""

import fnmatch
from collections.abc import Collection, Iterable, Mapping

_PATTERN = frozenset("*?@")
_BETWEEN = ","


def several(word: str) -> bool:
    """Say whether a word may mean more hosts than one."""
    return pattern(word) or _BETWEEN in word


def pattern(part: str) -> bool:
    """Say whether it means hosts by a pattern or a tag, and not by their name."""
    return bool(_PATTERN & set(part))


def parts(word: str) -> list[str]:
    """Return the names, patterns and tags in a word; "" where a comma has nothing on one side."""
    return [part.strip() for part in word.split(_BETWEEN)]


def together(said: Iterable[str]) -> str:
    """Return the word that has these parts."""
    return _BETWEEN.join(said)


def meant(part: str, hosts: Mapping[str, Collection[str]]) -> list[str]:
    """Return which of the hosts one part means, by name. hosts: the tags of each."""
    return [
        name
        for name, tags in sorted(hosts.items())
        if (part[1:] in tags if part.startswith("@") else fnmatch.fnmatchcase(name, part))
    ]


def words(wanted: Collection[str], known: Collection[str], *, longest: int) -> list[str]:
    """Return what to type for these of the known hosts and for no other, shortly.

    longest: characters of a word; what does not fit into one goes into the next.
    """
    found: list[str] = []
    for part in _shortly(wanted, known):
        longer = together([found[-1], part]) if found else ""
        if longer and len(longer) <= longest:
            found[-1] = longer
        else:
            found.append(part)
    return found


def _shortly(wanted: Collection[str], known: Collection[str]) -> Iterable[str]:
    """Yield names, and a pattern for those that begin as no other host does."""
    others, left = set(known) - set(wanted), sorted(wanted)
    while left:
        name = left[0]
        begins = [name[:length] for length in range(1, len(name) + 1)]
        own = [one for one in begins if not any(other.startswith(one) for other in others)]
        alike = [one for one in left if own and one.startswith(own[0])] or [name]
        shared = [one for one in begins if all(other.startswith(one) for other in alike)]
        yield f"{shared[-1]}*" if len(alike) > 1 else name
        left = [one for one in left if one not in alike]
