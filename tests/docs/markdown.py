"""Markdown of the reference pages."""

import re
import textwrap
from collections.abc import Iterable, Sequence

_WIDTH = 120
_CODE = re.compile(r"(`[^`]+`)")


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Cells are Markdown on one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_escape_cell(cell) for cell in line)} |" for line in lines)


def _escape_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def format_code(text: str, language: str = "") -> str:
    """Return a block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def format_paragraph(text: str) -> str:
    """Return plain text, in which `code` may stand, as a wrapped paragraph."""
    return textwrap.fill(
        escape_text(" ".join(text.split())),
        _WIDTH,
        break_long_words=False,
        break_on_hyphens=False,
    )


def escape_text(text: str) -> str:
    """Escape what Markdown would take as emphasis or a tag; spans of code stay as they are."""
    return "".join(
        part if part.startswith("`") and len(part) > 1 else re.sub(r"([*<])", r"\\\1", part)
        for part in _CODE.split(text)
    )


def make_anchor(heading: str) -> str:
    """Return the anchor of a heading, as forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def join_blocks(blocks: Iterable[str]) -> str:
    """Return a page: its blocks with an empty line between them."""
    return "\n\n".join(block for block in blocks if block) + "\n"
