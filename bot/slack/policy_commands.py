"""`/keyturn who`: owners and roles. Pure."""

from collections.abc import Sequence

from bot.model.times import to_datetime
from bot.policy import Person, Policy
from bot.policy.oncall import Duty
from bot.slack.blocks import (
    Inline,
    Message,
    bold,
    bullet_list,
    code,
    date_element,
    format_notification,
    paragraph,
    rich_text,
    rich_text_section,
    user_mention,
)
from bot.slack.replies import COMMAND

_MAX_LISTED = 20


def render_area_owners(policy: Policy, person_id: str, *, workspace: str) -> Message:
    """Show the person's own roles, the owners of each area, and who is on duty."""
    person = policy.find_person(person_id)
    parts = [rich_text_section(*_render_person(policy, person))] if person else []
    owned = [
        [bold(area.title), " – ", *_render_people(policy, area.owners, workspace=workspace)]
        for area in policy.organisation.areas.values()
    ]
    parts += [rich_text_section(bold("Owners")), bullet_list(*owned)]
    if policy.calendars:
        on_duty = [_render_duty(policy, name, workspace=workspace) for name in policy.calendars]
        parts += [rich_text_section(bold("On duty")), bullet_list(*on_duty)]
    more = "HOST, AREA or @PERSON shows more; can-i WORDS HOST shows who would approve."
    parts.append(rich_text_section(code(f"{COMMAND} who"), f" {more}"))
    return Message("Owners", [rich_text(*parts)])


def answer_who_command(policy: Policy, typed_name: str, *, workspace: str) -> Message | None:
    """Describe a host, an area or a person; return None for an unknown name."""
    name = typed_name.strip().removeprefix("@").lower()
    if name in policy.inventory.hosts:
        area = policy.get_area(name)
        tags = ", ".join(sorted(policy.inventory[name].tags)) or "no tags"
        lead = [bold(name), f" ({tags}) is in {area.title}, owned by "]
        owners = _render_people(policy, area.owners, workspace=workspace)
        return _build_one_line_message(f"{name} is in {area.title}", [*lead, *owners])
    found = policy.organisation.areas.get(name)
    if found is not None:
        hosts = [host.name for host in policy.inventory if host.area == name]
        lead = [bold(found.title), " is owned by "]
        rest = [f". Its hosts: {', '.join(hosts[:_MAX_LISTED]) or 'none'}"]
        rest += [f" and {len(hosts) - _MAX_LISTED} more"] if len(hosts) > _MAX_LISTED else []
        owners = _render_people(policy, found.owners, workspace=workspace)
        return _build_one_line_message(f"Owners of {found.title}", [*lead, *owners, *rest])
    known = policy.find_person(name)
    return (
        _build_one_line_message(f"Roles of {known.name}", _render_person(policy, known))
        if known
        else None
    )


def _render_duty(policy: Policy, calendar: str, *, workspace: str) -> list[Inline]:
    """Show who is on duty by a calendar until when, and when it was read."""
    duty = policy.duties.get(calendar, Duty())
    parts = [bold(calendar), ": "]
    if not duty.is_known:
        parts.append("not known, so no one is on duty")
    elif duty.people:
        parts += _render_people(policy, duty.people, workspace=workspace)
        parts += [" until ", date_element(to_datetime(duty.ends_at))]
    else:
        parts.append("no one")
    if duty.unmatched:
        unknown = ", ".join(f"“{title}”" for title in duty.unmatched)
        parts.append(f"; not in people.yaml: {unknown}")
    if duty.unclear:
        unclear = ", ".join(f"“{title}”" for title in duty.unclear)
        parts.append(f"; not understood, so it puts no one on duty: {unclear}")
    if duty.read_at:
        parts += ["; read ", date_element(to_datetime(duty.read_at))]
    return parts


def _build_one_line_message(title: str, parts: Sequence[Inline]) -> Message:
    return Message(format_notification(title), [paragraph(*parts)])


def _render_person(policy: Policy, described_person: Person) -> list[Inline]:
    roles = ", ".join(described_person.roles) or "no role"
    owned = [
        a.title for a in policy.organisation.areas.values() if described_person.id in a.owners
    ]
    rest = f", owner of {', '.join(owned)}" if owned else ""
    return [bold(described_person.name), f" ({described_person.id}): {roles}{rest}"]


def _render_people(policy: Policy, owners: Sequence[str], *, workspace: str) -> list[Inline]:
    """Mention people, so that a click shows who they are; ephemeral answers notify no one."""
    parts: list[Inline] = []
    for n, owner in enumerate(owners):
        known = policy.find_person(owner)
        user = (
            next((one.user for one in known.slack if one.team == workspace), "") if known else ""
        )
        parts += [", "] if n else []
        parts.append(user_mention(user) if user else (known.name if known else owner))
    return parts
