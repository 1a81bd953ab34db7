"""Standard Markdown, as `markdown` blocks hold it, turned to HTML with our own tags only.

It reads what bots write: headings, lists, quotes, fences, tables, emphasis, code and links.
"""

import re
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

from tests.slack_emulator.mrkdwn import link, with_emoji

_INLINE = re.compile(
    r"`(?P<code>[^`\n]+)`"
    r"|\[(?P<label>[^\]\n]+)\]\((?P<url>[^()\s]+)\)"
    r"|\*\*(?P<bold>[^*\n]+)\*\*"
    r"|(?<!\w)[*_](?P<italic>[^*_\n]+)[*_](?!\w)"
    r"|~~(?P<strike>[^~\n]+)~~"
)
_HEADING = re.compile(r"(#{1,6})\s+(.*)")
_BULLET = re.compile(r"\s*[-*+]\s+(.*)")
_NUMBER = re.compile(r"\s*\d+[.)]\s+(.*)")
_QUOTE = re.compile(r">\s?(.*)")
_ROW = re.compile(r"\s*\|(.*)\|\s*")
_RULE = re.compile(r"\s*\|?[\s:|-]+\|?\s*")


def to_html(source: str) -> Markup:
    """Return the HTML of a Markdown text."""
    lines = source.split("\n")
    out = Markup("")
    while lines:
        out += _next(lines)
    return out


def _next(lines: list[str]) -> Markup:
    """Take one block off the front of the lines and return its HTML."""
    line = lines[0]
    if not line.strip():
        lines.pop(0)
        return Markup("")
    if line.startswith("```"):
        return _fence(lines)
    heading = _HEADING.fullmatch(line)
    if heading:
        lines.pop(0)
        return Markup('<p class="md-heading">{}</p>').format(_inline(heading[2]))
    for pattern, draw in _RUNS:
        if pattern.fullmatch(line):
            return draw(_taken(lines, pattern))
    return _paragraph(lines)


def _fence(lines: list[str]) -> Markup:
    lines.pop(0)
    code: list[str] = []
    while lines and not lines[0].startswith("```"):
        code.append(lines.pop(0))
    if lines:
        lines.pop(0)
    return Markup("<pre><code>{}</code></pre>").format("\n".join(code))


def _taken(lines: list[str], pattern: re.Pattern[str]) -> list[str]:
    taken: list[str] = []
    while lines:
        match = pattern.fullmatch(lines[0])
        if not match:
            break
        taken.append(match[1])
        lines.pop(0)
    return taken


def _paragraph(lines: list[str]) -> Markup:
    taken = [lines.pop(0)]
    while lines and lines[0].strip() and not _starts_block(lines[0]):
        taken.append(lines.pop(0))
    return Markup("<p>{}</p>").format(Markup("<br>").join(_inline(line) for line in taken))


def _starts_block(line: str) -> bool:
    return line.startswith("```") or any(
        pattern.fullmatch(line) for pattern in (_HEADING, *(run[0] for run in _RUNS))
    )


def _list(tag: Markup) -> Callable[[Sequence[str]], Markup]:
    def draw(taken: Sequence[str]) -> Markup:
        rows = Markup("").join(Markup("<li>{}</li>").format(_inline(item)) for item in taken)
        return tag.format(rows)

    return draw


def _quote(taken: Sequence[str]) -> Markup:
    inner = Markup("<br>").join(_inline(line) for line in taken)
    return Markup("<blockquote>{}</blockquote>").format(inner)


def _table(taken: Sequence[str]) -> Markup:
    rows = [row for row in taken if not _RULE.fullmatch(row)]
    drawn = Markup("").join(_row(row) for row in rows)
    return Markup('<div class="scroll"><table>{}</table></div>').format(drawn)


def _row(row: str) -> Markup:
    cells = (Markup("<td>{}</td>").format(_inline(cell.strip())) for cell in row.split("|"))
    return Markup("<tr>{}</tr>").format(Markup("").join(cells))


_RUNS: Sequence[tuple[re.Pattern[str], Callable[[Sequence[str]], Markup]]] = (
    (_BULLET, _list(Markup("<ul>{}</ul>"))),
    (_NUMBER, _list(Markup("<ol>{}</ol>"))),
    (_QUOTE, _quote),
    (_ROW, _table),
)

_STYLES = {
    "code": Markup("<code>{}</code>"),
    "bold": Markup("<strong>{}</strong>"),
    "italic": Markup("<em>{}</em>"),
    "strike": Markup("<s>{}</s>"),
}


def _inline(source: str) -> Markup:
    html = Markup("")
    end = 0
    for match in _INLINE.finditer(source):
        html += escape(with_emoji(source[end : match.start()])) + _styled(match)
        end = match.end()
    return html + escape(with_emoji(source[end:]))


def _styled(match: re.Match[str]) -> Markup:
    if match["url"] is not None:
        return link(match["url"], match["label"])
    for name, style in _STYLES.items():
        if match[name] is not None:
            return style.format(match[name])
    return escape(match[0])
