"""Indirect words that published text must not contain: pages, chat, terminal, logs, docs."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# What to write instead. Patterns are matched as words, in lower case.
INDIRECT = {
    r"whoever|whomever|whosoever": "name the role: the requester, the approver, the caller",
    r"somebody|anybody": "name the role, or 'someone'",
    r"nobody": "'no one', or name the role",
    r"everybody": "everyone",
    r"stead": "on behalf of",
    r"shuts? out": "ban",
    r"lets? in again": "unban",
    r"borne out|bears? out": "verified, matches",
    r"lest": "so that … not",
    r"anew": "again",
    r"askers?": "requester",
    r"mends?|mended|mending": "fix",
    r"told|tells": "shown, notified, returned, logged: name the act",
    r"hears?|heard": "receive, read",
    r"heralds?|heralded|vigils?|strangers?|kin|leaflets?|misfits?|testimony": "the field's word",
    r"troubles?": "error",
    r"(?<!break-)(?<!break_)glass(?!_)": "break-glass",
    r"tak(?:e|es|en|ing) back|took back": "undo (a run), withdraw (a request)",
    r"moments?": "time, due time",
    r"doors?": "source (where a request came in); interface",
}

PLACES = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "pyproject.toml"),
    *("bot", "connectors", "runbooks", "migrations"),
)
READ = {".py", ".md", ".html", ".txt", ".js", ".css", ".cedar", ".yaml", ".yml", ".toml", ".j2"}
_ANY_WORD = "|".join(f"(?P<w{n}>{words})" for n, words in enumerate(INDIRECT))
_WORDS = re.compile(rf"(?<![\w-])(?:{_ANY_WORD})(?!\w)", re.I)


def _list_files(place: str) -> list[Path]:
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", place],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in paths if path.suffix in READ and path.is_file()]


def find_indirect_words(name: str, text: str) -> Iterator[str]:
    """Yield a finding for each word of INDIRECT in *text*: place, word, line and what to write."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in _WORDS.finditer(line):
            advice = list(INDIRECT.values())[int((match.lastgroup or "w0")[1:])]
            yield f"{name}:{number}: {match[0]!r} ({advice}): {line.strip()[:100]}"


@pytest.mark.parametrize("place", PLACES)
def test_published_text_uses_plain_words(place: str):
    findings = [
        finding
        for path in _list_files(place)
        for finding in find_indirect_words(str(path.relative_to(ROOT)), path.read_text())
    ]
    assert findings == []


def test_indirect_words_are_found_in_any_position():
    text = "# Whoever asks\nIt was told so.\nbreak-glass\n"
    assert [finding.split(" (")[0] for finding in find_indirect_words("x.md", text)] == [
        "x.md:1: 'Whoever'",
        "x.md:2: 'told'",
    ]
