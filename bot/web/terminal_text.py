"""Output of hosts as HTML: colours become classes, other escape sequences go. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from bot.model.text import escape_control

# A longer output shows its newest lines; the download has all of it.
MAX_SHOWN_LINES = 2000
# The sequences of ECMA-48: CSI, OSC, strings such as DCS, and short escapes.
_ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~])"
    r"|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[PX^_][^\x1b\n]*\x1b\\|[ -/]*[0-~])"
)
_COLOURS = ("grey", "red", "green", "yellow", "blue", "magenta", "cyan", "")
_BOLD, _NOT_BOLD, _DEFAULT_COLOUR = 1, 22, 39
# These codes are followed by a palette index or by red, green and blue.
_EXTENDED_CODES = {38, 48, 58}


@dataclass(frozen=True)
class OutputLine:
    """A line of output, with its number in the whole output."""

    number: int
    html: Markup


@dataclass(frozen=True)
class _Style:
    colour: str = ""
    is_bold: bool = False

    def wrap(self, text: str) -> Markup:
        names = [f"kt-ansi-{self.colour}"] * bool(self.colour) + ["kt-ansi-bold"] * self.is_bold
        html = Markup.escape(escape_control(text))
        return Markup('<span class="%s">%s</span>') % (" ".join(names), html) if names else html


def render_output(text: str) -> Sequence[OutputLine]:
    """Return the newest lines of an output; its colours continue from line to line."""
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    style, rendered = _Style(), list[OutputLine]()
    for number, line in enumerate(lines, 1):
        html, style = _render_line(line, style)
        rendered.append(OutputLine(number, html))
    return rendered[-MAX_SHOWN_LINES:]


def remove_escape_sequences(text: str) -> str:
    """Return a text without colours and other escape sequences of terminals."""
    return _ESCAPE_SEQUENCE.sub("", text)


def _render_line(line: str, style: _Style) -> tuple[Markup, _Style]:
    parts, end = list[Markup](), 0
    for sequence in _ESCAPE_SEQUENCE.finditer(line):
        if sequence.start() > end:
            parts.append(style.wrap(line[end : sequence.start()]))
        end = sequence.end()
        if sequence["final"] == "m":
            style = _apply_codes(style, sequence["parameters"])
    if end < len(line):
        parts.append(style.wrap(line[end:]))
    return Markup("").join(parts), style


def _apply_codes(style: _Style, parameters: str) -> _Style:
    """Return the style after a sequence such as `1;31`. Backgrounds are left out."""
    codes = [int(code) if code.isdecimal() else 0 for code in parameters.split(";")]
    while codes:
        code = codes.pop(0)
        if code == 0:
            style = _Style()
        elif code in {_BOLD, _NOT_BOLD}:
            style = _Style(style.colour, code == _BOLD)
        elif 30 <= code < 38 or 90 <= code < 98 or code == _DEFAULT_COLOUR:
            colour = "" if code == _DEFAULT_COLOUR else _COLOURS[code % 10]
            style = _Style(colour, style.is_bold)
        elif code in _EXTENDED_CODES:
            del codes[: 2 if codes[:1] == [5] else 4]
    return style
