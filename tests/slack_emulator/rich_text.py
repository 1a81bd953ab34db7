"""Rich text blocks turned to HTML."""

from datetime import datetime

from markupsafe import Markup, escape

from tests.slack_emulator.mrkdwn import (
    EMOJI,
    Names,
    broadcast,
    date,
    group_mention,
    link,
    link_around,
    user_mention,
)
from tests.slack_emulator.wire import Json, record, records, text, whole

_STYLES = {
    "code": Markup("<code>{}</code>"),
    "bold": Markup("<strong>{}</strong>"),
    "italic": Markup("<em>{}</em>"),
    "strike": Markup("<s>{}</s>"),
    "underline": Markup("<u>{}</u>"),
}


def to_html(block: Json, names: Names) -> Markup:
    """Return the HTML of a `rich_text` block's or cell's elements."""
    return Markup("").join(_element(element, names) for element in records(block.get("elements")))


def _element(element: Json, names: Names) -> Markup:
    kind = element.get("type")
    if kind == "rich_text_list":
        return _list(element, names)
    if kind == "rich_text_preformatted":
        code = "".join(_plain(inline, names) for inline in records(element.get("elements")))
        return Markup("<pre><code>{}</code></pre>").format(code)
    if kind == "rich_text_quote":
        return Markup("<blockquote>{}</blockquote>").format(_inlines(element, names))
    return Markup("<p>{}</p>").format(_inlines(element, names))


def _list(element: Json, names: Names) -> Markup:
    rows = Markup("").join(
        Markup("<li>{}</li>").format(_inlines(item, names))
        for item in records(element.get("elements"))
    )
    indent = min(max(whole(element.get("indent")), 0), 8)
    if element.get("style") == "ordered":
        return Markup('<ol class="indent-{}">{}</ol>').format(indent, rows)
    return Markup('<ul class="indent-{}">{}</ul>').format(indent, rows)


def _inlines(element: Json, names: Names) -> Markup:
    return Markup("").join(_styled(inline, names) for inline in records(element.get("elements")))


def _styled(inline: Json, names: Names) -> Markup:
    html = _inline(inline, names)
    for name, on in record(inline.get("style")).items():
        if on is True and name in _STYLES:
            html = _STYLES[name].format(html)
    return html


def _inline(inline: Json, names: Names) -> Markup:
    kind = inline.get("type")
    if kind == "link":
        return link(text(inline.get("url")), text(inline.get("text")))
    if kind == "user":
        return user_mention(text(inline.get("user_id")), names)
    if kind == "usergroup":
        return group_mention(text(inline.get("usergroup_id")), names)
    if kind == "broadcast":
        return broadcast(text(inline.get("range")))
    if kind == "date":
        return _date(inline, names)
    return _lines(_plain(inline, names))


def _date(inline: Json, names: Names) -> Markup:
    moment = date(
        whole(inline.get("timestamp")),
        text(inline.get("format")),
        names,
        fallback=text(inline.get("fallback")),
    )
    return link_around(text(inline.get("url")), moment)


def _plain(inline: Json, names: Names) -> str:
    kind = inline.get("type")
    if kind == "emoji":
        name = text(inline.get("name"))
        return EMOJI.get(name, f":{name}:")
    if kind == "channel":
        channel_id = text(inline.get("channel_id"))
        return "#" + names.channels.get(channel_id, channel_id)
    if kind == "color":
        return text(inline.get("value"))
    if kind == "date":
        stamp = datetime.fromtimestamp(whole(inline.get("timestamp")), tz=names.now.tzinfo)
        return text(inline.get("fallback")) or stamp.isoformat()
    return text(inline.get("text")) or text(inline.get("url"))


def _lines(source: str) -> Markup:
    return Markup("<br>").join(escape(line) for line in source.split("\n"))
