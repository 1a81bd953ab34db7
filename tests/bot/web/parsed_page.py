"""A page as a browser parses it, and whether it contains foreign markup."""

from html.parser import HTMLParser

VOID = {"meta", "link", "img", "input", "br", "col"}
# What our templates are written with; anything else on a page has come from outside.
_OURS = """
html head title script body a div header nav form span button main section h1 h2 h3 p ul ol li
table caption thead tbody tr th td time strong code pre svg path footer label select option
optgroup datalist details summary dl dt dd fieldset legend textarea figure figcaption rect line g
text template circle colgroup kbd dialog
"""
_NAMES = """
lang charset name content rel href type src defer class id alt width height title role hidden
autofocus spellcheck
datetime action method value for placeholder maxlength minlength autocomplete list selected
tabindex scope label viewbox focusable d form formaction formmethod checked required rows x y x1 x2
y1 y2 rx min open popover popovertarget colspan preserveaspectratio text-anchor transform cx cy r
"""
TAGS = VOID.union(_OURS.split())
ATTRIBUTES = frozenset(_NAMES.split())


class Page(HTMLParser):
    """text: all that is read. links, forms: where they lead. strange: what is not ours."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.forms: list[str] = []
        self.values: dict[str, str] = {}
        self.strange: list[str] = []
        self.ids: list[str] = []
        self.unlabelled: list[str] = []
        self._words: list[str] = []
        self._open: list[str] = []
        self._labelled: set[str] = set()
        self._fields: list[dict[str, str]] = []
        self.feed(source)
        self.close()
        self.strange += [f"<{tag}> is never closed" for tag in self._open]
        self.unlabelled = [
            field.get("name", "?")
            for field in self._fields
            if field.get("id") not in self._labelled
            and field.get("type") not in {"hidden", "radio"}
        ]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag not in TAGS:
            self.strange.append(f"<{tag}>")
        self.strange += [
            f"{tag} {name}={value!r}"
            for name, value in attributes.items()
            if not _ours(name, value)
        ]
        self._note(tag, attributes)
        if tag not in VOID:
            self._open.append(tag)

    def _note(self, tag: str, attributes: dict[str, str]) -> None:
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag == "a":
            self.links.append(attributes.get("href", ""))
        elif tag == "form" and attributes.get("method") == "post":
            self.forms.append(attributes.get("action", ""))
        elif tag in {"input", "select", "textarea"}:
            self._fields.append(attributes)
            self.values[attributes.get("name", "")] = attributes.get("value", "")
        elif tag == "label":
            self._labelled.add(attributes.get("for", ""))
        if "formaction" in attributes:
            self.forms.append(attributes["formaction"])

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.strange.append(f"</{tag}> closes {self._open[-1:]}")
            return
        self._open.pop()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        self._words.append(data)

    def handle_comment(self, data: str) -> None:
        self.strange.append(f"<!--{data}-->")


def _ours(name: str, value: str) -> bool:
    if name in {"href", "src", "action", "formaction"}:
        return value.startswith(("/", "#")) and not value.startswith("//")
    return name in ATTRIBUTES or name.startswith(("aria-", "data-", "hx-"))
