"""Blocks turned to HTML; what we cannot draw is shown as such and never left out."""

from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from tests.slack_emulator import markdown, rich_text
from tests.slack_emulator.blockkit import elements_of
from tests.slack_emulator.controls import Control, Surface, draw, label, text_object
from tests.slack_emulator.mrkdwn import link
from tests.slack_emulator.tags import tag
from tests.slack_emulator.wire import Json, items, record, records, text


def blocks_to_html(blocks: Sequence[Json], surface: Surface) -> Markup:
    """Return the HTML of all blocks in their order."""
    return Markup("").join(block_to_html(block, surface) for block in blocks)


def block_to_html(block: Json, surface: Surface) -> Markup:
    kind = text(block.get("type"))
    drawer = _DRAWERS.get(kind)
    if drawer is None:
        return tag("div", {"class": "unsupported"}, f"Unsupported block: {kind or 'no type'}")
    return drawer(block, surface)


def _section(block: Json, surface: Surface) -> Markup:
    parts: list[Markup] = []
    if block.get("text"):
        parts.append(tag("div", {"class": "text"}, text_object(block["text"], surface.names)))
    fields = [
        tag("div", {}, text_object(field, surface.names)) for field in records(block.get("fields"))
    ]
    if fields:
        parts.append(tag("div", {"class": "fields"}, *fields))
    drawn = [tag("div", {"class": "grow"}, *parts)]
    accessory = record(block.get("accessory"))
    if accessory.get("type") == "image":
        drawn.append(_picture(accessory))
    elif accessory:
        control = draw(Control(block, accessory, surface))
        drawn.append(tag("div", {"class": "accessory"}, control))
    return tag("div", {"class": "block section"}, *drawn)


def _picture(image: Json) -> Markup:
    """Say what the image shows: nothing is fetched from elsewhere."""
    words = text(image.get("alt_text")) or "image"
    return tag("span", {"class": "picture", "role": "img", "aria-label": words}, f"Image: {words}")


def _image(block: Json, surface: Surface) -> Markup:
    del surface
    title = label(block.get("title"))
    url = text(block.get("image_url"))
    where = tag("small", {}, link(url, "Open the image")) if url else Markup("")
    caption = tag("figcaption", {}, title) if title else Markup("")
    return tag("figure", {"class": "block image"}, caption, _picture(block), where)


def _header(block: Json, surface: Surface) -> Markup:
    del surface
    return tag("h3", {"class": "block header"}, label(block.get("text")))


def _context(block: Json, surface: Surface) -> Markup:
    parts = [
        _picture(inner)
        if inner.get("type") == "image"
        else tag("span", {}, text_object(inner, surface.names))
        for inner in records(block.get("elements"))
    ]
    return tag("div", {"class": "block context"}, *parts)


def _actions(block: Json, surface: Surface) -> Markup:
    drawn = [draw(Control(block, element, surface)) for element in elements_of(block)]
    return tag("div", {"class": "block actions"}, *drawn)


def _divider(block: Json, surface: Surface) -> Markup:
    del block, surface
    return tag("hr", {"class": "block"})


def _input(block: Json, surface: Surface) -> Markup:
    control = Control(block, record(block.get("element")), surface)
    optional = tag("small", {}, " (optional)") if block.get("optional") else Markup("")
    named: dict[str, str | bool] = {} if control.ticked else {"for": control.id}
    kind = "p" if control.ticked else "label"
    heading = tag(kind, {"class": "label", **named}, label(block.get("label")), optional)
    hint = tag("p", {"class": "hint", "id": f"{control.id}-hint"}, label(block.get("hint")))
    words = surface.errors.get(text(block.get("block_id")), "")
    wrong = {"class": "wrong", "id": f"{control.id}-error", "role": "alert"}
    error = tag("p", wrong, words) if words else Markup("")
    return tag("div", {"class": "block input"}, heading, draw(control), error, hint)


def _rich_text(block: Json, surface: Surface) -> Markup:
    return tag("div", {"class": "block rich"}, rich_text.to_html(block, surface.names))


def _markdown(block: Json, surface: Surface) -> Markup:
    del surface
    return tag("div", {"class": "block rich"}, markdown.to_html(text(block.get("text"))))


def _table(block: Json, surface: Surface) -> Markup:
    rows: list[Markup] = []
    for index, row in enumerate(items(block.get("rows"))):
        attributes = {"scope": "col"} if index == 0 else {}
        cells = [
            tag("th" if index == 0 else "td", attributes, _cell(cell, surface))
            for cell in records(row)
        ]
        rows.append(tag("tr", {}, *cells))
    table = tag("table", {}, *rows)
    framed = {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": "Table"}
    return tag("div", {"class": "block"}, tag("div", framed, table))


def _cell(cell: Json, surface: Surface) -> Markup:
    if cell.get("type") == "rich_text":
        return rich_text.to_html(cell, surface.names)
    return tag("span", {}, text(cell.get("text")))


def _alert(block: Json, surface: Surface) -> Markup:
    level = text(block.get("level"))
    known = level if level in ("info", "warning", "error", "success") else "default"
    words = text_object(block.get("text"), surface.names)
    spoken = tag("strong", {}, f"{known.capitalize()}: ") if known != "default" else Markup("")
    return tag("div", {"class": f"block alert alert-{known}", "role": "note"}, spoken, words)


_DRAWERS: Mapping[str, Callable[[Json, Surface], Markup]] = {
    "section": _section,
    "header": _header,
    "context": _context,
    "actions": _actions,
    "context_actions": _actions,
    "divider": _divider,
    "image": _image,
    "input": _input,
    "rich_text": _rich_text,
    "markdown": _markdown,
    "table": _table,
    "alert": _alert,
}
