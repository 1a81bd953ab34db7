"""Whether lines of a shell only read: each of their commands, also of a pipe, is known to.

What is not known to only read is taken for a change.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from runbooks._declared_reads import refuse_change

# Such as `echo`, which changes nothing as long as it writes to no file.
SILENT = frozenset({"echo", "printf", "true", ":", "sleep", "pwd", "whoami", "cd", "exit", "set"})
_MARK = re.compile("\x01([a-z][a-z0-9_]*)\x02")
_TO_NOWHERE = re.compile(r"\s*(?:2>&1|(?:[12]|&)?>\s*/dev/null)(?=[\s;|&)]|$)")
# In a text between double quotation marks, the shell would fill in values and run commands.
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"$`\\]|\\.)*\"")
_SEPARATORS = frozenset({"|", "||", "&&", ";"})
_VALUE = re.compile(r"[A-Z][A-Z_]*=[A-Za-z0-9_.:/-]*")
# Programs that cannot change anything, whatever their arguments are, beside those of readings.
_HARMLESS = frozenset(
    """
    apparmor_status aa-status basename cut dirname getenforce lsattr lsb_release nl paste realpath
    rev sestatus tac test [ tr type uuid which
    """.split()  # noqa: SIM905 - so many names are easier to read this way
)
# Of the others: the arguments with which they only read, one a line.
_ARGUMENTS: Mapping[str, str] = {
    "apt-cache": r"(policy|show|madison|search|showpkg|depends)(\n[^-\n].*)*",
    "apt-key": r"list",
    "auditctl": r"-[ls]",
    "augenrules": r"--check",
    "ausyscall": r"--dump",
    "command": r"-v\n[A-Za-z0-9_.-]+",
    "dpkg": r"(-[lsL]|--list|--status|--listfiles|--print-architecture)(\n[^-\n].*)*",
    "modprobe": r"(-[nv]+|--showconfig|-c)(\n[A-Za-z0-9_-]+)?",
    "mount": r"(-l)?",
    "openssl": r"version(\n-[a-z])*",
    "passwd": r"(-S|--status)(\n[a-z0-9_-]+|\n-a)?",
    "pwck": r"-r",
    "sort": r"(-([a-np-zA-Z]+|[kt]\n?.*)(\n|$))*([^-\n].*(\n|$))*",
    "uniq": r"(-[cdiuz]+\n?)*",
    "useradd": r"-D",
}
_SHOWS_ITSELF = r"--version|--help|-V"
_FIND_CHANGES = frozenset({"-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprint0",
                           "-fprintf", "-fls", "-files0-from"})  # fmt: skip
_ADDRESS = r"([0-9]+|\$|/[^/\\;]*/)"
_PART = r"(?:(?!(?P=sign))[^\\\n]|\\.)*"
_SED = re.compile(
    rf"(?:(?:{_ADDRESS}(?:,{_ADDRESS})?!?)?"
    rf"(?:[pdq=]|s(?P<sign>[/|#,@:]){_PART}(?P=sign){_PART}(?P=sign)[gpIi0-9]*)(?:;|$))+"
)


def only_reads(code: str) -> bool:
    """Return whether each command of lines is known to only read."""
    code = re.sub(r"((?<!\\)(?:\\\\)*)\\\n", r"\1 ", code).replace("$(uname -r)", "x")
    code = _TO_NOWHERE.sub("", code)
    bare = re.sub(r"\\.", "", _QUOTED.sub("", code))
    if re.search(r"[&<>()`${}]", bare.replace("&&", "")):
        return False
    lines = code.split("\n") if "\n" in bare.strip() else [code]
    return all(map(_are_reading, (line.strip() for line in lines if line.strip())))


def _are_reading(line: str) -> bool:
    words = shlex.shlex(line, posix=True, punctuation_chars="|&;")
    words.whitespace_split, words.commenters = True, ""
    try:
        parts = groupby(words, _SEPARATORS.__contains__)
        commands = [[*part] for is_separator, part in parts if not is_separator]
    except ValueError:
        return False
    return all(map(_is_reading, commands))


def _is_reading(words: Sequence[str]) -> bool:
    words = [*words]
    while words and (words[0] == "sudo" or _VALUE.fullmatch(words[0])):
        words.pop(0)
    if not words or words[0].startswith("-") or {*words} & {"&", "|&"}:
        return False
    program, rest = words[0].rpartition("/")[2], words[1:]
    if program in SILENT or program in _HARMLESS or re.fullmatch(_SHOWS_ITSELF, "\n".join(rest)):
        return True
    if program in _OTHERS:
        return _OTHERS[program](rest)
    if program in _ARGUMENTS:
        return re.fullmatch(_ARGUMENTS[program], "\n".join(rest)) is not None
    return is_reading(words)


def is_reading(words: Sequence[str]) -> bool:
    """Return whether a declared runbook may read with a command."""
    try:
        refuse_change([_MARK.sub(r"{\1}", word) for word in words])
    except ValueError:
        return False
    return True


def _finds(rest: Sequence[str]) -> bool:
    return not _FIND_CHANGES.intersection(rest)


def _is_awk_reading(rest: Sequence[str]) -> bool:
    """Return whether a program of awk neither runs another one nor writes a file."""
    words = [*rest]
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if not re.fullmatch(r"-[Fv].*", option):
            return False
        if len(option) == 2 and words:
            words.pop(0)
    odd = re.compile(r"system|getline|close|@|print[^;}\n]*[>|]")
    return bool(words) and odd.search(words[0]) is None


def _is_sed_reading(rest: Sequence[str]) -> bool:
    words = [word for word in rest if word not in ("-n", "-E", "-r")]
    if words[:1] == ["-e"]:
        words = words[1:]
    is_plain = bool(words) and not any(word.startswith("-") for word in words)
    return is_plain and _SED.fullmatch(words[0]) is not None


_OTHERS: Mapping[str, Callable[[Sequence[str]], bool]] = {
    "find": _finds,
    "awk": _is_awk_reading,
    "sed": _is_sed_reading,
}
