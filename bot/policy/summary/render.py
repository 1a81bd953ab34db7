"""The charter as text for a terminal, as a document of HTML, and as data for programs. Pure."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bot.model.text import escape_control, escape_to_one_line
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
    "at_once": "At once",
    "asks": "After approval",
    "refused": "Not",
    "approves": "Approves and denies what others ask for",
    "views": "Views",
    "emergency": "In an emergency, through freezes and without approvals",
    "orders": "About Keyturn itself",
}

# What is said of people whom no rule lets view the runs of others.
NO_VIEW_RIGHTS = "Views only runs that they requested or decided themselves."


def render_data(summary: PolicySummary) -> dict[str, Any]:
    """Return the charter for JSON, each clause with its sentence."""
    data = asdict(summary)
    for told, chapter in zip(data["chapters"], summary.chapters, strict=True):
        for section in SECTION_TITLES:
            clauses: Sequence[Clause] = getattr(chapter, section)
            for clause, known in zip(told[section], clauses, strict=True):
                clause |= {"sentence": known.sentence, "who": known.approver_names}
    for told, frost in zip(data["freezes"], summary.freezes, strict=True):
        told |= {"begins": frost.begins_at.isoformat(), "ends": frost.ends_at.isoformat()}
    return data


def render_html(summary: PolicySummary) -> str:
    """Return one document that stands alone."""
    return (
        create_template_environment()
        .get_template("charter_sheet.html")
        .render(
            charter=summary,
            counted=describe_summary(summary),
            sections=SECTION_TITLES,
            links=False,
        )
    )


@cache
def create_template_environment() -> Environment:
    """Return what the document is drawn with; every value in it is made visible first."""
    return Environment(
        loader=PackageLoader("bot.policy.summary"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_escape_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _escape_value(value: object) -> object:
    # What is markup already, such as a macro's answer, is no plain text.
    return escape_control(value) if type(value) is str else value


def render_text(summary: PolicySummary) -> str:
    """Return it as lines that fit a terminal."""
    lines = [
        f"The policy in plain words, version {summary.version}",
        *_wrap_text(describe_summary(summary), ""),
    ]
    for chapter in summary.chapters:
        lines += ["", *_render_chapter(chapter)]
    lines += ["", "WHO OWNS WHAT"]
    lines += [line for domain in summary.areas for line in _render_area(domain)]
    lines += ["", "FREEZES"]
    frosts = [line for frost in summary.freezes for line in _render_freeze(frost)]
    lines += frosts or ["  None holds, and none is to come."]
    return "\n".join(escape_to_one_line(line) for line in lines)


def describe_summary(summary: PolicySummary) -> str:
    """Say how much there is, and what holds for all of it."""
    said = (
        f"There are {summary.checks} checks, which only read, and {summary.changes} changes. "
        "Nobody approves what they asked for or edited, and one no of somebody who can approve it "
        f"ends it. One request is for at most {summary.max_hosts} hosts, unless it says otherwise "
        "below. What no rule permits is refused."
    )
    if summary.irreversible_changes:
        lasting = naming.join_names(f"“{words}”" for words in summary.irreversible_changes)
        said += f" {lasting} cannot be undone; of other changes the plan says whether they can."
    if summary.depends_on_date:
        said += " Some rules look at the date: this is what they say this week."
    return said


def format_heading(chapter: PeopleSummary) -> str:
    """Return the chapter's people and what they are: `Dora Developer (developer)`."""
    return f"{naming.join_names(chapter.people.values())} ({chapter.title})"


def _render_chapter(chapter: PeopleSummary) -> Iterator[str]:
    yield from _wrap_text(format_heading(chapter).upper(), "")
    for section, title in SECTION_TITLES.items():
        clauses: Sequence[Clause] = getattr(chapter, section)
        if clauses:
            yield f"  {title}"
            for clause in clauses:
                yield from _render_clause(clause)
    if not chapter.approves:
        yield "  Approves nothing that others ask for."
    if not chapter.views:
        yield f"  {NO_VIEW_RIGHTS}"


def _render_clause(clause: Clause) -> Iterator[str]:
    yield from _wrap_text(clause.sentence, "    ", "- ")
    if clause.approver_names:
        yield from _wrap_text(f"Who: {clause.approver_names}.", "      ")
    for note in clause.notes:
        yield from _wrap_text(f"{note[:1].upper()}{note[1:]}.", "      ")
    for name, says in clause.rules:
        yield from _wrap_text(says if says == name else f"{says} [{name}]", "      ")
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
