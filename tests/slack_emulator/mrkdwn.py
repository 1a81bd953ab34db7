"""Slack's mrkdwn turned to HTML in which nothing but our own tags can appear.

Source: https://docs.slack.dev/messaging/formatting-message-text
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from markupsafe import Markup, escape

_TOKEN = re.compile(r"```(?P<fence>.*?)```|`(?P<code>[^`\n]+)`|<(?P<angle>[^<>\n]+)>", re.DOTALL)
_ENTITY = re.compile(r"&(amp|lt|gt);")
_SHORTCODE = re.compile(r":([a-z0-9_+-]+):")
_DATE = re.compile(r"!date\^(\d{1,11})\^([^^|]+)(?:\^([^|]+))?(?:\|(.*))?", re.DOTALL)
_LINK = re.compile(r"(?:https?://|mailto:)[^\s]+", re.IGNORECASE)

_EMPHASIS = {
    "*": Markup("<strong>{}</strong>"),
    "_": Markup("<em>{}</em>"),
    "~": Markup("<s>{}</s>"),
}

EMOJI: Mapping[str, str] = {
    "white_check_mark": "✅",
    "heavy_check_mark": "✔️",
    "x": "❌",
    "no_entry": "⛔",
    "no_entry_sign": "🚫",
    "warning": "⚠️",
    "rotating_light": "🚨",
    "hourglass": "⌛",
    "hourglass_flowing_sand": "⏳",
    "lock": "🔒",
    "unlock": "🔓",
    "key": "🔑",
    "eyes": "👀",
    "rocket": "🚀",
    "tada": "🎉",
    "wave": "👋",
    "thumbsup": "👍",
    "+1": "👍",
    "-1": "👎",
    "bell": "🔔",
    "snowflake": "❄️",
    "fire": "🔥",
    "gear": "⚙️",
    "information_source": "ℹ️",
    "question": "❓",
    "large_green_circle": "🟢",
    "large_yellow_circle": "🟡",
    "red_circle": "🔴",
    "white_circle": "⚪",
    "arrows_counterclockwise": "🔄",
    "leftwards_arrow_with_hook": "↩️",
    "clock3": "🕒",
    "page_facing_up": "📄",
    "mag": "🔍",
    "speech_balloon": "💬",
    "memo": "📝",
    "stopwatch": "⏱️",
    "octagonal_sign": "🛑",
}


@dataclass(frozen=True)
class Names:
    """What ids stand for, and what time it is for the reader."""

    users: Mapping[str, str] = field(default_factory=dict[str, str])
    channels: Mapping[str, str] = field(default_factory=dict[str, str])
    groups: Mapping[str, str] = field(default_factory=dict[str, str])
    reader: str = ""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


Piece = str | Markup


def to_html(source: str, names: Names) -> Markup:
    """Return the HTML of a mrkdwn text; quotes and line breaks included."""
    lines: list[list[Piece]] = [[]]
    for piece in _pieces(source, names):
        if isinstance(piece, Markup):
            lines[-1].append(piece)
            continue
        first, *rest = piece.split("\n")
        lines[-1].extend(first)
        lines.extend([list(line) for line in rest])
    return _joined(lines)


def _pieces(source: str, names: Names) -> list[Piece]:
    """Return text as str, decoded, and what is already HTML as Markup."""
    pieces: list[Piece] = []
    end = 0
    for token in _TOKEN.finditer(source):
        pieces.append(decoded(source[end : token.start()]))
        pieces.append(_token(token, names))
        end = token.end()
    pieces.append(decoded(source[end:]))
    return pieces


def _token(token: re.Match[str], names: Names) -> Markup:
    if token["fence"] is not None:
        code = decoded(_plain_angles(token["fence"])).removeprefix("\n").removesuffix("\n")
        return Markup("<pre><code>{}</code></pre>").format(code)
    if token["code"] is not None:
        return Markup("<code>{}</code>").format(decoded(_plain_angles(token["code"])))
    return _angle(token["angle"], names)


def _plain_angles(code: str) -> str:
    """Show links within code by their text, as Slack does; mentions stay as they are."""
    return re.sub(r"<(?:https?://|mailto:)[^<>|\n]+\|([^<>\n]+)>", r"\1", code)


def decoded(source: str) -> str:
    """Undo Slack's three escapes, each once: `&amp;lt;` becomes `&lt;` and no `<`."""
    return _ENTITY.sub(lambda match: {"amp": "&", "lt": "<", "gt": ">"}[match[1]], source)


def _angle(inside: str, names: Names) -> Markup:
    target, bar, label = inside.partition("|")
    shown = decoded(label) if bar else ""
    if target.startswith("@"):
        return user_mention(target[1:], names, label=shown)
    if target.startswith("#"):
        name = names.channels.get(target[1:]) or shown or target[1:]
        return Markup('<span class="mention">#{}</span>').format(name)
    if target.startswith("!"):
        return _special(inside, names)
    return link(decoded(target), shown)


def user_mention(user_id: str, names: Names, *, label: str = "") -> Markup:
    name = names.users.get(user_id) or label.removeprefix("@") or user_id
    mine = " mention-me" if user_id == names.reader else ""
    return Markup('<span class="mention{}">@{}</span>').format(mine, name)


def group_mention(group_id: str, names: Names, *, label: str = "") -> Markup:
    name = names.groups.get(group_id) or label.removeprefix("@") or group_id
    return Markup('<span class="mention">@{}</span>').format(name)


def broadcast(word: str) -> Markup:
    return Markup('<span class="mention mention-loud">@{}</span>').format(word)


def link(url: str, label: str = "") -> Markup:
    """Return a link, if its scheme is one that may be followed; else its words as plain text."""
    if not _LINK.fullmatch(url):
        return escape(f"{label} ({url})" if label else f"<{url}>")
    opens = Markup('<a href="{}" target="_blank" rel="noopener noreferrer nofollow">{}</a>')
    return opens.format(url, label or url.removeprefix("mailto:"))


def _special(inside: str, names: Names) -> Markup:
    dated = _DATE.fullmatch(inside)
    if dated:
        moment = date(int(dated[1]), decoded(dated[2]), names, fallback=decoded(dated[4] or ""))
        return link_around(decoded(dated[3] or ""), moment)
    word, bar, label = inside[1:].partition("|")
    if word in ("here", "channel", "everyone"):
        return broadcast(word)
    if word.startswith("subteam^"):
        return group_mention(word.removeprefix("subteam^"), names, label=decoded(label))
    return escape(f"<{decoded(label) if bar else decoded(word)}>")


def link_around(url: str, inner: Markup) -> Markup:
    if not _LINK.fullmatch(url):
        return inner
    opens = Markup('<a href="{}" target="_blank" rel="noopener noreferrer nofollow">{}</a>')
    return opens.format(url, inner)


def date(timestamp: int, pattern: str, names: Names, *, fallback: str = "") -> Markup:
    """Return the time as the pattern's tokens say, such as `{date_short_pretty} at {time}`."""
    try:
        moment = datetime.fromtimestamp(timestamp, tz=names.now.tzinfo)
    except (ValueError, OverflowError, OSError):
        return escape(fallback or str(timestamp))
    words = re.sub(r"\{(\w+)\}", lambda match: _date_word(match[1], moment, names.now), pattern)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        moment.isoformat(), moment.strftime("%Y-%m-%d %H:%M:%S %Z"), words
    )


def _date_word(name: str, moment: datetime, now: datetime) -> str:
    if name == "ago":
        return _ago(now - moment)
    if name.endswith("_pretty"):
        near = _near_day(moment, now)
        if near:
            return near
        name = name.removesuffix("_pretty")
    known = {
        "date": f"{moment:%B} {moment.day}, {moment:%Y}",
        "date_num": f"{moment:%Y-%m-%d}",
        "date_slash": f"{moment:%d/%m/%Y}",
        "date_short": f"{moment:%b} {moment.day}, {moment:%Y}",
        "date_long": f"{moment:%A}, {moment:%B} {moment.day}, {moment:%Y}",
        "day_divider_pretty": f"{moment:%A}, {moment:%B} {moment.day}",
        "time": f"{moment:%H:%M}",
        "time_secs": f"{moment:%H:%M:%S}",
    }
    return known.get(name, "{" + name + "}")


def _near_day(moment: datetime, now: datetime) -> str:
    days = (moment.date() - now.date()).days
    return {0: "today", -1: "yesterday", 1: "tomorrow"}.get(days, "")


def _ago(past: timedelta) -> str:
    seconds = int(abs(past.total_seconds()))
    for size, word in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds // size
            spell = f"{count} {word}{'s' if count > 1 else ''}"
            return f"{spell} ago" if past > timedelta(0) else f"in {spell}"
    return "just now" if past >= timedelta(0) else "in a moment"


def _joined(lines: Sequence[Sequence[Piece]]) -> Markup:
    out: list[Markup] = []
    quoted: list[Markup] = []
    for line in lines:
        if line and line[0] == ">" and not isinstance(line[0], Markup):
            skip = 2 if len(line) > 1 and line[1] == " " else 1
            quoted.append(_emphasised(line[skip:], "*_~"))
            continue
        _end_quote(out, quoted)
        out.append(_emphasised(line, "*_~"))
    _end_quote(out, quoted)
    return _broken(out)


def _end_quote(out: list[Markup], quoted: list[Markup]) -> None:
    if quoted:
        out.append(Markup("<blockquote>{}</blockquote>").format(Markup("<br>").join(quoted)))
        quoted.clear()


def _broken(lines: Sequence[Markup]) -> Markup:
    """Join lines with breaks; a block of its own, such as a quote, needs none around it."""
    html = Markup("")
    for index, line in enumerate(lines):
        own = line.startswith(("<pre>", "<blockquote>"))
        before = lines[index - 1] if index else Markup("")
        if index and not own and not before.endswith(("</pre>", "</blockquote>")):
            html += Markup("<br>")
        html += line
    return html


def _emphasised(line: Sequence[Piece], marks: str) -> Markup:
    """Return one line with *bold*, _italic_ and ~strike~; each kind holds the other kinds."""
    closers = {mark: _closers(line, mark) for mark in marks}
    out: list[Piece] = []
    index = 0
    while index < len(line):
        end = _partner(line, index, closers)
        if end is None:
            out.append(line[index])
            index += 1
            continue
        mark = str(line[index])
        inner = _emphasised(line[index + 1 : end], marks.replace(mark, ""))
        out.append(_EMPHASIS[mark].format(inner))
        index = end + 1
    return _escaped(out)


def _closers(line: Sequence[Piece], mark: str) -> list[int]:
    return [
        index
        for index, piece in enumerate(line)
        if piece == mark
        and index
        and not _blank(line[index - 1])
        and (index + 1 == len(line) or not _wordy(line[index + 1]))
    ]


def _partner(line: Sequence[Piece], index: int, closers: Mapping[str, list[int]]) -> int | None:
    ends = closers.get(str(line[index]))
    if not ends or isinstance(line[index], Markup) or index + 1 == len(line):
        return None
    if _blank(line[index + 1]) or line[index + 1] == line[index]:
        return None
    if index and _wordy(line[index - 1]):
        return None
    place = bisect_right(ends, index + 1)
    return ends[place] if place < len(ends) else None


def _blank(piece: Piece) -> bool:
    return not isinstance(piece, Markup) and piece.isspace()


def _wordy(piece: Piece) -> bool:
    return not isinstance(piece, Markup) and piece.isalnum()


def _escaped(pieces: Sequence[Piece]) -> Markup:
    html = Markup("")
    run: list[str] = []
    for piece in pieces:
        if isinstance(piece, Markup):
            html += escape(with_emoji("".join(run))) + piece
            run.clear()
        else:
            run.append(piece)
    return html + escape(with_emoji("".join(run)))


def with_emoji(source: str) -> str:
    """Return the text with the known `:shortcodes:` as emoji; the others stay as typed."""
    return _SHORTCODE.sub(lambda match: EMOJI.get(match[1], match[0]), source)
