"""The handover: who comes on duty gets one message with what is open in the areas of the duty."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bot.db import grants, outbox, runs, view_conditions
from bot.db.database import Transaction
from bot.model.run import Run, State
from bot.model.run_states import describe_outcome, starts_later
from bot.model.text import format_count, join_names
from bot.model.times import HOUR, format_deadline
from bot.policy import Policy
from bot.queries.digest import BuildDigest, DigestSection
from bot.queries.open_probation import find_open_probation
from bot.queries.pending import read_inbox
from bot.slack.blocks import (
    Block,
    Element,
    Inline,
    Message,
    actions,
    bold,
    bullet_list,
    code,
    format_notification,
    header,
    link,
    paragraph,
    rich_text,
    shorten_text,
)
from bot.slack.buttons import build_read_button
from bot.slack.features import (
    DirectNotice,
    ListDirectNotices,
    ListStartedDuties,
    StartedDuty,
)

_MAX_LISTED, _MAX_CARDS = 8, 5
_SOON = 12 * HOUR


@dataclass(frozen=True)
class HandoverFacts:
    """What is open in some areas, as one person may view it."""

    areas: Sequence[str]
    """Their titles."""
    waiting: Sequence[Run]
    """The runs that this person has to decide or to resolve."""
    probations: Sequence[tuple[Run, str]]
    """Runs with a change on probation, and when its host restores what was."""
    later: Sequence[Run]
    """Approved runs that start at a time which their approvers named."""
    grants: Sequence[str]
    """Standing grants that end soon."""
    sections: Sequence[DigestSection]
    """Of features."""
    ends_at: int | None = None
    """When the duty ends, in microseconds."""


def read_handover(
    tx: Transaction,
    policy: Policy,
    person: str,
    *,
    areas: Sequence[str],
    build_sections: Sequence[BuildDigest] = (),
    ends_at: int | None = None,
) -> HandoverFacts:
    """Read what is open in these areas; in all areas without any."""
    wanted = {*(areas or policy.organisation.areas)}
    unfinished = [run for run in runs.list_unfinished_briefly(tx) if wanted & {*run.areas}]
    active = [
        run for run in unfinished if run.state in {State.RUNNING, State.UNKNOWN} and not run.hosts
    ]
    opened = [(run, find_open_probation(tx, runs.get_run(tx, run.id))) for run in active]
    return HandoverFacts(
        [policy.join_area_titles([name]) for name in areas] or ["every area"],
        [run for run in read_inbox(tx, policy, person).runs if wanted & {*run.areas}],
        [(run, found.sentence) for run, found in opened if found is not None],
        [run for run in unfinished if starts_later(run)],
        [
            f"{policy.get_person_name(one.person)}: {one.what}, until "
            f"{format_deadline(one.ends_at)}"
            for one in grants.list_newest_active_grants(tx)
            if one.ends_at - tx.now < _SOON
        ],
        [
            section
            for build in build_sections
            for section in build(tx, policy, wanted)
            if section.lines
        ],
        ends_at,
    )


def render_handover(facts: HandoverFacts, base_url: str) -> Message:
    """Render what is open, with buttons that show it."""
    until = f" until {format_deadline(facts.ends_at)}" if facts.ends_at else ""
    title = f"{'On duty for' if until else 'Open in'} {join_names(facts.areas)}"
    blocks: list[Block] = [
        header(title),
        *([paragraph(f"You are on duty{until}.")] if until else []),
        *_render_section("Waits for you", [_render_run(run, base_url) for run in facts.waiting]),
        *_render_section(
            "On probation",
            [[*_render_run(run, base_url), f" – {text}"] for run, text in facts.probations],
        ),
        *_render_section(
            "Starts later",
            [[*_render_run(run, base_url), f" – {describe_outcome(run)}"] for run in facts.later],
        ),
        *_render_section("Standing grants that end soon", [[one] for one in facts.grants]),
    ]
    for section in facts.sections:
        blocks += _render_section(section.title, [[line] for line in section.lines])
    count = len(facts.waiting)
    waits = f"{format_count(count, 'run')} to decide" if count else "nothing waits for you"
    if len(blocks) == 1 + bool(until):
        blocks.append(paragraph("Nothing is open."))
    buttons = _build_buttons(facts)
    blocks += [actions("handover", *buttons)] if buttons else []
    return Message(format_notification(f"{title}{until}: {waits}"), blocks)


def _render_section(title: str, items: Sequence[Sequence[Inline]]) -> list[Block]:
    if not items:
        return []
    shown = [*items[:_MAX_LISTED]]
    more = len(items) - len(shown)
    shown += [[f"and {more} more"]] if more else []
    return [paragraph(bold(f"{title} · {len(items)}")), rich_text(bullet_list(*shown))]


def _render_run(run: Run, base_url: str) -> list[Inline]:
    number = f"Run {run.id}"
    named = link(f"{base_url}/runs/{run.id}", number) if base_url else code(number)
    return [named, f" · {shorten_text(run.title, 200)}"]


def _build_buttons(facts: HandoverFacts) -> Sequence[Element]:
    has_runs = bool(facts.waiting or facts.probations or facts.later)
    commands = [
        *(["runs"] if has_runs else []),
        *(one.command for one in facts.sections if one.command),
    ]
    return [
        build_read_button(f"Show {command}", command, n=n) for n, command in enumerate(commands)
    ]


def build_handover_list(
    list_started: Sequence[ListStartedDuties], build_sections: Sequence[BuildDigest]
) -> ListDirectNotices:
    """Return what lists the handovers that are due: one for each duty that has just begun."""

    def list_handovers(tx: Transaction, policy: Policy) -> Sequence[DirectNotice]:
        return [
            DirectNotice(
                duty.person,
                f"handover {duty.calendar} {duty.starts_at}",
                partial(_read_message, policy, duty, build_sections),
            )
            for list_duties in list_started
            for duty in list_duties(tx, policy)
        ]

    return list_handovers


def _read_message(
    policy: Policy, duty: StartedDuty, build_sections: Sequence[BuildDigest], tx: Transaction
) -> Callable[[str], Message]:
    """Read what is open for a duty, and return what renders it."""
    with view_conditions.viewing_as(tx, policy.get_view_rights(duty.person)):
        facts = read_handover(
            tx,
            policy,
            duty.person,
            areas=duty.areas,
            build_sections=build_sections,
            ends_at=duty.ends_at,
        )
    # Their cards now call this person, who gets copies with buttons.
    for run in facts.waiting[:_MAX_CARDS]:
        outbox.announce_run(tx, run.id)
    return partial(render_handover, facts)
