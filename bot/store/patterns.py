"""Patterns of hosts such as `web*`: only * and ? mean something. Pure."""

from fnmatch import fnmatchcase


def is_pattern(host: str) -> bool:
    return "*" in host or "?" in host


def fits(host: str, pattern: str) -> bool:
    """Say whether a host fits: a bracket is a bracket."""
    return fnmatchcase(host, pattern.replace("[", "[[]"))


def range_of(pattern: str) -> tuple[str, str]:
    """Return what hosts that fit sort between, wherever the database sorts by: letters follow
    each other in every order, and so do digits."""
    begin = pattern.replace("?", "*").partition("*")[0]
    while begin and not ("a" <= begin[-1] < "z" or "0" <= begin[-1] < "9"):
        begin = begin[:-1]
    return (begin, begin[:-1] + chr(ord(begin[-1]) + 1)) if begin else ("", "")


def like(pattern: str) -> str:
    """Return it as SQL's LIKE takes it, with a backslash before what that would understand."""
    for special in "\\%_":
        pattern = pattern.replace(special, f"\\{special}")
    return pattern.replace("*", "%").replace("?", "_")
