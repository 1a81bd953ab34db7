"""Several hosts named by one word: `lb1,lb2`, `lb*`, `@haproxy`. Pure."""

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase


def is_pattern(host: str) -> bool:
    return "*" in host or "?" in host


def matches_pattern(host: str, pattern: str) -> bool:
    """Say whether a host fits: a bracket is a bracket."""
    return fnmatchcase(host, pattern.replace("[", "[[]"))


def compute_sort_range(pattern: str) -> tuple[str, str]:
    """Return what hosts that fit sort between, wherever the database sorts by: letters follow
    each other in every order, and so do digits."""
    begin = pattern.replace("?", "*").partition("*")[0]
    while begin and not ("a" <= begin[-1] < "z" or "0" <= begin[-1] < "9"):
        begin = begin[:-1]
    return (begin, begin[:-1] + chr(ord(begin[-1]) + 1)) if begin else ("", "")


def convert_to_sql_like(pattern: str) -> str:
    """Return it as SQL's LIKE takes it, with a backslash before what that would understand."""
    for special in "\\%_":
        pattern = pattern.replace(special, f"\\{special}")
    return pattern.replace("*", "%").replace("?", "_")


_PATTERN_CHARACTERS = frozenset("*?@")
_SEPARATOR = ","


def can_name_several_hosts(word: str) -> bool:
    """Say whether a word may mean more hosts than one."""
    return is_group_part(word) or _SEPARATOR in word


def is_group_part(part: str) -> bool:
    """Say whether it means hosts by a pattern or a tag, and not by their name."""
    return bool(_PATTERN_CHARACTERS & set(part))


def split_host_parts(word: str) -> list[str]:
    """Return the names, patterns and tags in a word; "" where a comma has nothing on one side."""
    return [part.strip() for part in word.split(_SEPARATOR)]


def join_host_parts(parts: Iterable[str]) -> str:
    """Return the word that has these parts."""
    return _SEPARATOR.join(parts)


def resolve_host_part(part: str, tags_by_host: Mapping[str, Collection[str]]) -> list[str]:
    """Return which of the hosts one part means, by name. hosts: the tags of each."""
    return [
        name for name, tags in sorted(tags_by_host.items()) if is_meant_by_part(name, tags, part)
    ]


def is_meant_by_part(name: str, tags: Collection[str], part: str) -> bool:
    """Say whether a name, a pattern or a tag means this host."""
    return part[1:] in tags if part.startswith("@") else fnmatchcase(name, part)


def shorten_host_names(
    wanted: Collection[str], known_hosts: Collection[str], *, max_length: int
) -> list[str]:
    """Return what to type for these of the known hosts and for no other, shortly.

    longest: characters of a word; what does not fit into one goes into the next.
    """
    found: list[str] = []
    for part in _iterate_short_parts(wanted, known_hosts):
        longer = join_host_parts([found[-1], part]) if found else ""
        if longer and len(longer) <= max_length:
            found[-1] = longer
        else:
            found.append(part)
    return found


def _iterate_short_parts(wanted: Collection[str], known_hosts: Collection[str]) -> Iterable[str]:
    """Yield names, and a pattern for those that begin as no other host does."""
    others, left = set(known_hosts) - set(wanted), sorted(wanted)
    while left:
        name = left[0]
        begins = [name[:length] for length in range(1, len(name) + 1)]
        own = [one for one in begins if not any(other.startswith(one) for other in others)]
        alike = [one for one in left if own and one.startswith(own[0])] or [name]
        shared = [one for one in begins if all(other.startswith(one) for other in alike)]
        yield f"{shared[-1]}*" if len(alike) > 1 else name
        left = [one for one in left if one not in alike]
