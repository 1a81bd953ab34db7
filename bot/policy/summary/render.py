"""Render a policy summary as text, HTML or data. Pure."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bot.model.text import escape_control, escape_to_one_line, format_sentence
from bot.policy.oncall import NO_DUTIES
from bot.policy.summary import naming
from bot.policy.summary.model import (
    AreaSummary,
    Clause,
    FreezeSummary,
    PeopleSummary,
    PolicySummary,
)

_WIDTH = 96
SECTION_TITLES: Mapping[str, str] = {
    "without_approval": "Without approval",
    "with_approval": "With approval",
    "refused": "Not allowed",
    "can_approve": "Can approve and deny",
    "can_view": "Can view",
    "break_glass": "With break-glass, without approvals and during freezes",
    "administration": "Administration",
}

# Shown for people whom no rule permits to view the runs of others.
NO_APPROVAL_RIGHTS = "Cannot approve requests of others."
NO_VIEW_RIGHTS = "Can view only runs that they requested or decided."


def render_data(summary: PolicySummary) -> dict[str, Any]:
    """Return the summary for JSON, each clause with its sentence."""
    data = asdict(summary)
    for chapter_data, chapter in zip(data["chapters"], summary.chapters, strict=True):
        for section in SECTION_TITLES:
            clauses: Sequence[Clause] = getattr(chapter, section)
            for clause_data, clause in zip(chapter_data[section], clauses, strict=True):
                clause_data |= {
                    "sentence": clause.sentence,
                    "approver_names": clause.approver_names,
                }
    for freeze_data, freeze in zip(data["freezes"], summary.freezes, strict=True):
        freeze_data |= {
            "begins_at": freeze.begins_at.isoformat(),
            "ends_at": freeze.ends_at.isoformat(),
        }
    return data


def render_html(summary: PolicySummary) -> str:
    """Return a complete HTML document."""
    return (
        create_template_environment()
        .get_template("summary_page.html")
        .render(
            summary=summary,
            description=describe_summary(summary),
            sections=SECTION_TITLES,
            links=False,
        )
    )


@cache
def create_template_environment(package: str = "bot.policy.summary") -> Environment:
    """Return the Jinja environment, which escapes control characters in every value."""
    environment = Environment(
        loader=PackageLoader(package),
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


def render_text(summary: PolicySummary) -> str:
    """Return the summary as text for a terminal."""
    lines = [
        f"Effective permissions, policy version {summary.version}",
        *_wrap_text(describe_summary(summary), ""),
    ]
    for chapter in summary.chapters:
        lines += ["", *_render_chapter(chapter)]
    lines += ["", "AREAS AND OWNERS"]
    lines += [line for area in summary.areas for line in _render_area(area)]
    lines += ["", "FREEZES"]
    freezes = [line for freeze in summary.freezes for line in _render_freeze(freeze)]
    lines += freezes or ["  No active or upcoming freezes."]
    return "\n".join(escape_to_one_line(line) for line in lines)


def describe_summary(summary: PolicySummary) -> str:
    """Return the number of runbooks and the rules that apply to every request."""
    text = (
        f"{summary.checks} read-only checks, {summary.changes} changes. "
        "No one can approve a request that they made, edited or scheduled. One denial by an "
        f"approver ends a request. A request covers at most {summary.max_hosts} hosts, unless "
        "stated otherwise below. Anything that no rule permits is refused."
    )
    if summary.irreversible_changes:
        names = naming.join_names(f"“{words}”" for words in summary.irreversible_changes)
        text += f" Always irreversible: {names}. The plan of any other change shows whether it is."
    if summary.depends_on_date:
        text += " Some rules depend on the date: this summary is for the current week."
    if summary.lacks_duties:
        text += f" {format_sentence(NO_DUTIES)} The service may permit people on duty more."
    return text


def format_heading(chapter: PeopleSummary) -> str:
    """Return the people and their roles: `Dora Developer (developer)`."""
    return f"{naming.join_names(chapter.people.values())} ({chapter.title})"


def _render_chapter(chapter: PeopleSummary) -> Iterator[str]:
    yield from _wrap_text(format_heading(chapter).upper(), "")
    for section, title in SECTION_TITLES.items():
        clauses: Sequence[Clause] = getattr(chapter, section)
        if clauses:
            yield f"  {title}"
            for clause in clauses:
                yield from _render_clause(clause)
    if not chapter.can_approve:
        yield f"  {NO_APPROVAL_RIGHTS}"
    if not chapter.can_view:
        yield f"  {NO_VIEW_RIGHTS}"


def _render_clause(clause: Clause) -> Iterator[str]:
    yield from _wrap_text(clause.sentence, "    ", "- ")
    if clause.approver_names:
        yield from _wrap_text(f"Approvers: {clause.approver_names}.", "      ")
    for note in clause.notes:
        yield from _wrap_text(f"{note[:1].upper()}{note[1:]}.", "      ")
    for name, note in clause.rules:
        yield from _wrap_text(note if note == name else f"{note} [{name}]", "      ")
    if not clause.rules and not clause.allowed:
        yield "      No rule permits it."


def _render_area(area: AreaSummary) -> Iterator[str]:
    owners = naming.join_names(area.owners)
    yield from _wrap_text(f"{area.title}: {owners}; {area.description}", "  ", "")


def _render_freeze(freeze: FreezeSummary) -> Iterator[str]:
    yield from _wrap_text(f"{freeze.name}: {freeze.sentence}", "  ")


def _wrap_text(text: str, indent: str, bullet: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent + bullet,
        subsequent_indent=indent + " " * len(bullet),
        break_long_words=False,
        break_on_hyphens=False,
    )
