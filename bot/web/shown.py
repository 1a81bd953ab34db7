"""What stands in {{ }}, as a page shows it: made visible first, then escaped."""

import re
from functools import lru_cache

from jinja2 import Environment
from jinja2.compiler import CodeGenerator, Frame
from jinja2.nodes import Expr
from markupsafe import Markup, escape

from bot.model.text import escape_control

# What is no longer than this is shown again and again: names of hosts, people and runbooks.
_SHORT = 80


def to_shown_text(value: object) -> str:
    """Return it as HTML; control and bidi characters of all but our own markup are spelt out."""
    kind = type(value)
    if kind is Markup:
        return value  # pyright: ignore[reportReturnType] - it is one, which is quicker to ask so
    text = str(value)
    return _short(text) if len(text) <= _SHORT else _escaped(text)


def _escaped(text: str) -> str:
    return escape(escape_control(text.replace("\r\n", "\n")))


_short = lru_cache(16_384)(_escaped)
# Words to type, as our sentences quote them.
_QUOTED = re.compile(r"`([^`\s](?:[^`\n]*[^`\s])?)`")


def coded(text: str) -> Markup:
    """Return a sentence as HTML, what stands in backticks as code."""
    return Markup(_QUOTED.sub(r"<code>\1</code>", str(to_shown_text(text))))  # noqa: S704 - it is escaped


class _Writer(CodeGenerator):
    """Has a template call one function for each value: Jinja's own way calls several, which is a
    third of the time that a page of the history takes."""

    def _output_child_pre(self, node: Expr, frame: Frame, finalize: object) -> None:  # noqa: ARG002 - Jinja's interface
        self.write("environment.shown(")

    def _output_child_post(self, node: Expr, frame: Frame, finalize: object) -> None:  # noqa: ARG002 - Jinja's interface
        self.write(")")


class Templates(Environment):
    """An environment whose templates show everything so, what is known beforehand too."""

    code_generator_class = _Writer
    shown = staticmethod(to_shown_text)
