"""Render the policy as a matrix for a terminal or as one HTML page. Pure."""

import textwrap
from collections.abc import Iterator, Sequence
from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from bot.model.text import align_rows, escape_control, escape_to_one_line, join_names
from bot.policy.matrix import PeopleGroup, PolicyMatrix
from bot.policy.signers import SigningPerson, list_table_rows

_WIDTH = 96


@cache
def create_template_environment() -> Environment:
    """Return the Jinja environment of pages in files. It escapes control characters."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("bot.cli"), PackageLoader("bot.policy")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_escape_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # A file has no reader whose time zone is known.
    environment.filters["local_times"] = str
    return environment


def _escape_value(value: object) -> object:
    # Markup, such as the result of a macro, is escaped already.
    return escape_control(value) if type(value) is str else value


def render_html(matrix: PolicyMatrix) -> str:
    """Return a complete HTML document."""
    return create_template_environment().get_template("policy.html").render(matrix=matrix)


def render_text(matrix: PolicyMatrix) -> str:
    """Return the matrix as text for a terminal."""
    lines = [f"Policy version {matrix.version}", *_wrap_text(matrix.description, "")]
    for group in matrix.groups:
        lines += ["", *_render_group(group)]
    lines += ["", "RULES THAT DEPEND ON MORE (keyturn policy explain answers one request)"]
    for rule in matrix.conditional_rules:
        text = f"{rule.name}: depends on {join_names(rule.depends_on)}. {rule.note}"
        lines += _wrap_text(text, "  ")
    lines += ["", "AREAS AND OWNERS"]
    for area in matrix.areas:
        owners = join_names(area.owners)
        lines += _wrap_text(f"{area.title}: {owners}; {area.description}", "  ")
    if matrix.signers:
        lines += ["", "SIGNING KEYS (keyturn policy signers)"]
        lines += [f"  {line}" for line in render_signers(matrix.signers)]
    lines += ["", "FREEZES"]
    freezes = [f"{one.name}: {one.sentence}" for one in matrix.freezes]
    for sentence in freezes or ["No active or upcoming freezes."]:
        lines += _wrap_text(sentence, "  ")
    return "\n".join(escape_to_one_line(line) for line in lines)


def render_signers(people: Sequence[SigningPerson]) -> list[str]:
    """Return who signs plans with which keys, as the lines of a table."""
    if not people:
        return ["No one has a signing key, or needs one."]
    return align_rows([*list_table_rows(people)])


def _render_group(group: PeopleGroup) -> Iterator[str]:
    roles = f" ({', '.join(group.roles)})" if group.roles else ""
    yield from _wrap_text(f"{join_names(group.people.values())}{roles}".upper(), "")
    for one in group.rights:
        text = f"{_capitalise(one.what)}, {one.where}: {one.sentence}. "
        notes = "".join(f"{_capitalise(note)}. " for note in one.terms)
        yield from _wrap_text(f"{text}{notes}Requests of others: {one.others}.", "  ", "- ")
    yield from _wrap_text(f"Administration: {join_names(group.orders) or 'none'}.", "  ", "- ")
    for name, note in dict.fromkeys(pair for one in group.rights for pair in one.rules):
        yield from _wrap_text(note if note == name else f"{note} [{name}]", "  ")


def _wrap_text(text: str, indent: str, bullet: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent + bullet,
        subsequent_indent=indent + " " * len(bullet),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]
