"""The charter as text for a terminal, as a document of HTML, and as data for programs. Pure."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bot.model.text import escape_control, escape_to_one_line
from bot.policy.summary import naming
from bot.policy.summary.model import AreaSummary, Chapter, Clause, FreezeSummary, PolicySummary

_WIDTH = 96
SECTIONS: Mapping[str, str] = {
    "at_once": "At once",
    "asks": "After approval",
    "refused": "Not",
    "approves": "Approves and denies what others ask for",
    "views": "Views",
    "emergency": "In an emergency, through freezes and without approvals",
    "orders": "About Keyturn itself",
}

# What is said of people whom no rule lets view the runs of others.
BLIND = "Views only runs that they requested or decided themselves."


def summary_to_data(charter: PolicySummary) -> dict[str, Any]:
    """Return the charter for JSON, each clause with its sentence."""
    data = asdict(charter)
    for told, chapter in zip(data["chapters"], charter.chapters, strict=True):
        for section in SECTIONS:
            clauses: Sequence[Clause] = getattr(chapter, section)
            for clause, known in zip(told[section], clauses, strict=True):
                clause |= {"sentence": known.sentence, "who": known.who}
    for told, frost in zip(data["freezes"], charter.freezes, strict=True):
        told |= {"begins": frost.begins.isoformat(), "ends": frost.ends.isoformat()}
    return data


def summary_to_html(charter: PolicySummary) -> str:
    """Return one document that stands alone."""
    return (
        template_environment()
        .get_template("charter_sheet.html")
        .render(charter=charter, counted=count_summary(charter), sections=SECTIONS, links=False)
    )


@cache
def template_environment() -> Environment:
    """Return what the document is drawn with; every value in it is made visible first."""
    return Environment(
        loader=PackageLoader("bot.policy.summary"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _shown(value: object) -> object:
    # What is markup already, such as a macro's answer, is no plain text.
    return escape_control(value) if type(value) is str else value


def summary_to_text(charter: PolicySummary) -> str:
    """Return it as lines that fit a terminal."""
    lines = [
        f"The policy in plain words, version {charter.version}",
        *_wrapped(count_summary(charter), ""),
    ]
    for chapter in charter.chapters:
        lines += ["", *_chapter(chapter)]
    lines += ["", "WHO OWNS WHAT"]
    lines += [line for domain in charter.domains for line in _domain(domain)]
    lines += ["", "FREEZES"]
    frosts = [line for frost in charter.freezes for line in _frost(frost)]
    lines += frosts or ["  None holds, and none is to come."]
    return "\n".join(escape_to_one_line(line) for line in lines)


def count_summary(charter: PolicySummary) -> str:
    """Say how much there is, and what holds for all of it."""
    said = (
        f"There are {charter.checks} checks, which only read, and {charter.changes} changes. "
        "Nobody approves what they asked for or edited, and one no of somebody who can approve it "
        f"ends it. One request is for at most {charter.ceiling} hosts, unless it says otherwise "
        "below. What no rule permits is refused."
    )
    if charter.lasting:
        lasting = naming.join_names(f"“{words}”" for words in charter.lasting)
        said += f" {lasting} cannot be undone; of other changes the plan says whether they can."
    if charter.dated:
        said += " Some rules look at the date: this is what they say this week."
    return said


def format_heading(chapter: Chapter) -> str:
    """Return the chapter's people and what they are: `Dora Developer (developer)`."""
    return f"{naming.join_names(chapter.people.values())} ({chapter.title})"


def _chapter(chapter: Chapter) -> Iterator[str]:
    yield from _wrapped(format_heading(chapter).upper(), "")
    for section, title in SECTIONS.items():
        clauses: Sequence[Clause] = getattr(chapter, section)
        if clauses:
            yield f"  {title}"
            for clause in clauses:
                yield from _clause(clause)
    if not chapter.approves:
        yield "  Approves nothing that others ask for."
    if not chapter.views:
        yield f"  {BLIND}"


def _clause(clause: Clause) -> Iterator[str]:
    yield from _wrapped(clause.sentence, "    ", "- ")
    if clause.who:
        yield from _wrapped(f"Who: {clause.who}.", "      ")
    for note in clause.notes:
        yield from _wrapped(f"{note[:1].upper()}{note[1:]}.", "      ")
    for name, says in clause.rules:
        yield from _wrapped(says if says == name else f"{says} [{name}]", "      ")
    if not clause.rules and not clause.allowed:
        yield "      No rule permits it."


def _domain(domain: AreaSummary) -> Iterator[str]:
    owners = naming.join_names(domain.owners)
    yield from _wrapped(f"{domain.title}: {owners}; {domain.words}", "  ", "")


def _frost(frost: FreezeSummary) -> Iterator[str]:
    yield from _wrapped(f"{frost.name}: {frost.sentence}", "  ")


def _wrapped(text: str, indent: str, mark: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent + mark,
        subsequent_indent=indent + " " * len(mark),
        break_long_words=False,
        break_on_hyphens=False,
    )
