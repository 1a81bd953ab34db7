"""HTML tags written with everything in them escaped."""

from collections.abc import Mapping

from markupsafe import Markup, escape

Attributes = Mapping[str, str | bool]

_VOID = frozenset({"input", "br", "hr"})


def tag(name: str, attributes: Attributes, *children: str) -> Markup:
    """Return one element. A True attribute stands bare and a False one is left out.

    name and the names of attributes are our own words, never text from elsewhere.
    """
    written = Markup("").join(
        Markup(" {}").format(key) if value is True else Markup(' {}="{}"').format(key, value)
        for key, value in attributes.items()
        if value is not False
    )
    if name in _VOID:
        return Markup("<{}{}>").format(name, written)
    inner = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, inner)
