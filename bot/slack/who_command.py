"""The household in chat: which freezes hold or come, and who owns, asks and approves. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from bot.model.text import counted
from bot.policy import Person, Policy
from bot.policy.freezes import Freeze
from bot.slack.blocks import (
    Element,
    Message,
    bold,
    bullets,
    code,
    line,
    notification,
    person,
    rich,
    words,
)
from bot.slack.replies import COMMAND

_AHEAD = timedelta(days=30)
_MOST = 20


def freezes(policy: Policy, *, now: int) -> Message:
    """Tell of the freezes that hold now, and of those that come within a month."""
    moment = datetime.fromtimestamp(now / 1_000_000, UTC)
    found = [(one, one.stretch(moment)) for one in policy.freezes.freezes]
    known = sorted(
        ((one, stretch) for one, stretch in found if stretch and stretch[0] - moment < _AHEAD),
        key=lambda pair: pair[1],
    )
    hold = [_freeze(policy, one, end=end) for one, (begin, end) in known if begin <= moment]
    come = [
        _freeze(policy, one, begin=begin, end=end) for one, (begin, end) in known if begin > moment
    ]
    if not known:
        told = "Nothing is frozen, and no freeze comes within 30 days."
        return Message(told, [rich(line(words(told)))])
    parts = [line(bold("Frozen now" if hold else "Nothing is frozen now."))]
    parts += [bullets(*hold[:_MOST])] if hold else []
    parts += [line(bold("To come")), bullets(*come[:_MOST])] if come else []
    parts.append(line(words("Changes wait until a freeze ends. In an emergency: "), _break()))
    return Message(_counted(len(hold), len(come)), [rich(*parts)])


def _counted(hold: int, come: int) -> str:
    held = counted(hold, "freeze holds", many="freezes hold") if hold else "Nothing is frozen now"
    return f"{held}; {counted(come, 'freeze comes', many='freezes come')}" if come else held


def areas(policy: Policy, me: str, *, team: str) -> Message:
    """Tell somebody who they are here, and who owns what."""
    mine = policy.person(me)
    parts = [line(*_about(policy, mine))] if mine else []
    owned = [
        [bold(area.title), words(" – "), *_people(policy, area.owners, team=team)]
        for area in policy.household.areas.values()
    ]
    parts += [line(bold("Who has the final say")), bullets(*owned)]
    more = "HOST, AREA or @PERSON tells more; can-i WORDS HOST tells who would approve."
    parts.append(line(code(f"{COMMAND} who"), words(f" {more}")))
    return Message("Who has the final say", [rich(*parts)])


def who(policy: Policy, asked: str, *, team: str) -> Message | None:
    """Tell of a host, an area or a person; None if there is none of that name."""
    name = asked.strip().removeprefix("@").lower()
    if name in policy.inventory.hosts:
        area = policy.area_of(name)
        tags = ", ".join(sorted(policy.inventory[name].tags)) or "no tags"
        lead = [bold(name), words(f" ({tags}) is in {area.title}, owned by ")]
        owners = _people(policy, area.owners, team=team)
        return _one(f"{name} is in {area.title}", [*lead, *owners])
    found = policy.household.areas.get(name)
    if found is not None:
        hosts = [host.name for host in policy.inventory if host.area == name]
        lead = [bold(found.title), words(" is owned by ")]
        rest = [words(f". Its hosts: {', '.join(hosts[:_MOST]) or 'none'}")]
        rest += [words(f" and {len(hosts) - _MOST} more")] if len(hosts) > _MOST else []
        owners = _people(policy, found.owners, team=team)
        return _one(f"Who owns {found.title}", [*lead, *owners, *rest])
    known = policy.person(name)
    return _one(f"Who {known.name} is", _about(policy, known)) if known else None


def _one(title: str, parts: Sequence[Element]) -> Message:
    return Message(notification(title), [rich(line(*parts))])


def _about(policy: Policy, known: Person) -> list[Element]:
    roles = ", ".join(known.roles) or "no role"
    owned = [a.title for a in policy.household.areas.values() if known.id in a.owners]
    rest = f", owner of {', '.join(owned)}" if owned else ""
    return [bold(known.name), words(f" ({known.id}): {roles}{rest}")]


def _people(policy: Policy, owners: Sequence[str], *, team: str) -> list[Element]:
    """Name people so that a click shows who they are; an answer to one person rings nobody."""
    parts: list[Element] = []
    for n, owner in enumerate(owners):
        known = policy.person(owner)
        user = next((one.user for one in known.slack if one.team == team), "") if known else ""
        parts += [words(", ")] if n else []
        parts.append(person(user) if user else words(known.name if known else owner))
    return parts


def _freeze(
    policy: Policy, one: Freeze, *, end: datetime, begin: datetime | None = None
) -> list[Element]:
    where = [policy.household.areas[name].title for name in one.areas] or ["every area"]
    since = f"from {begin:%a %Y-%m-%d %H:%M} " if begin else ""
    told = f": {', '.join(where)}, {since}until {end:%a %Y-%m-%d %H:%M} UTC"
    told += f", {one.returns}" if one.returns else ""
    told += f"; but {', '.join(one.but)}" if one.but else ""
    return [bold(one.name), words(told)]


def _break() -> Element:
    return code(f"{COMMAND} break-glass WORDS because …")
