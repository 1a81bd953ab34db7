"""The Home tab: what waits for one person, what they asked for, and what goes on. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.run import Run, State
from bot.slack.answers import ASK, COMMAND
from bot.slack.blocks import (
    Block,
    Element,
    View,
    actions,
    bold,
    bullets,
    button,
    code,
    context,
    emoji,
    header,
    line,
    link,
    rich,
    shortened,
    when,
    words,
)
from bot.slack.card import card
from bot.slack.story import Story
from bot.slack.verdicts import label_of

# What the button says that opens the choice of everything.
ANYTHING = "anything"
# A Home holds a hundred blocks, and a card up to a dozen.
_MOST_CARDS = 5
_MOST_LISTED = 8
_DIVIDER: Block = {"type": "divider"}


@dataclass(frozen=True)
class Coming:
    """A schedule that fires. at: when next, in words."""

    name: str
    number: int
    at: str


@dataclass(frozen=True)
class Seen:
    """All that one Home tells. names: of people, by their ids. now: microseconds.

    mine, changed: the newest first.
    """

    person: str
    now: int
    names: Mapping[str, str]
    base_url: str
    to_decide: Sequence[Story]
    mine: Sequence[Run]
    moving: Sequence[Run]
    changed: Sequence[Run]
    coming: Sequence[Coming]


def tab(seen: Seen, *, dated: bool = True) -> View:
    """Draw a Home. dated: say when; left out to see whether anything else has changed."""
    ask = button(
        "Ask for Something", action=f"{ASK}-0", value=ANYTHING, label="Ask for a check or a change"
    )
    blocks = [actions("ask", ask), *_to_decide(seen)]
    blocks += _section("Your requests", seen.mine, seen, f"Ask with {COMMAND}, or above.")
    blocks += _section("Running now", seen.moving, seen, "Nothing is running.")
    blocks += _section("Recent changes", seen.changed, seen, "Nothing was changed yet.")
    blocks += _coming(seen)
    if dated:
        blocks.append(context(f"As of {when(seen.now)}"))
    return {"type": "home", "blocks": blocks}


def refusal(why: str) -> View:
    return {"type": "home", "blocks": [rich(line(words(why)))]}


def _to_decide(seen: Seen) -> list[Block]:
    waiting = seen.to_decide
    title = header(f"Waiting for you · {len(waiting)}" if waiting else "Waiting for you")
    if not waiting:
        return [title, context("Nothing waits for your approval.")]
    blocks = [title]
    for story in waiting[:_MOST_CARDS]:
        head, *rest = card(story).blocks
        blocks += [rich(line(bold(str(head["text"]["text"])))), *rest, _DIVIDER]
    more = waiting[_MOST_CARDS:]
    if more:
        blocks.append(rich(bullets(*(_listed(story.run, seen) for story in more[:_MOST_LISTED]))))
    return blocks


def _section(title: str, found: Sequence[Run], seen: Seen, nothing: str) -> list[Block]:
    if not found:
        return [header(title), context(nothing)]
    return [header(title), rich(bullets(*(_listed(run, seen) for run in found[:_MOST_LISTED])))]


def _listed(run: Run, seen: Seen) -> list[Element]:
    icon, label = label_of(run)
    title = shortened(run.title, 150)
    page = f"{seen.base_url}/runs/{run.id}"
    named = link(page, title) if seen.base_url else bold(title)
    said: list[Element] = [emoji(icon), words(f" {label}: "), named]
    if run.asked_by != seen.person:
        said.append(words(f" – {seen.names.get(run.asked_by, run.asked_by)}"))
    if run.state is State.WAITING:
        said += [words(" – "), code(f"{COMMAND} withdraw {run.id}")]
    return said


def _coming(seen: Seen) -> list[Block]:
    if not seen.coming:
        return []
    told = [
        [bold(one.name), words(f" – {one.at} – "), code(f"{COMMAND} schedule {one.number}")]
        for one in seen.coming[:_MOST_LISTED]
    ]
    return [header("Schedules"), rich(bullets(*told))]
