"""Who is told of a run, and where: as few people as it concerns. Pure."""

from enum import Enum, auto

from bot.model.run import State
from bot.slack.run_facts import Story

# Whoever asks at these doors has the answer in front of them.
_ANSWERED_THERE = frozenset({"web", "api", "cli"})
_ENDS_WITHOUT_A_CALL = frozenset({State.WITHDRAWN, State.UNCHANGED, State.REPLACED})


# Of what ended longer ago than this, in microseconds, no card is posted any more: whoever connects
# chat to a Keyturn that has worked without it for a year is told of no year's work, and the first
# request is not behind it.
_LONG_AGO = 7 * 86_400 * 1_000_000


class Audience(Enum):
    CHANNEL = auto()
    ASKER = auto()  # in words that only they see
    NOBODY = auto()


def of_card(story: Story, *, posted: bool) -> Audience:
    """Return who sees the run as it is now. posted: its card stands somewhere already."""
    run = story.run
    if posted:
        return Audience.CHANNEL
    if story.quiet or (run.ended is not None and story.now - run.ended > _LONG_AGO):
        return Audience.NOBODY
    if story.refused_at_once and run.origin.door != "schedule":
        return Audience.NOBODY
    elsewhere = run.origin.door in _ANSWERED_THERE
    if run.kind == "check" or run.state is State.ASKED:
        return Audience.NOBODY if elsewhere else Audience.CHANNEL
    if run.over and run.started is None and run.origin.door != "schedule":
        return Audience.NOBODY if elsewhere else Audience.ASKER
    return Audience.CHANNEL


def calls_asker(story: Story) -> bool:
    """Return whether the asker is called into the thread of the card to see how it ended."""
    run = story.run
    if run.kind == "check" or run.proposal is None:
        return False
    ended = run.over or run.state is State.UNKNOWN
    return ended and run.state not in _ENDS_WITHOUT_A_CALL


def channels(story: Story, *, default: str) -> list[str]:
    """Return where the card belongs, the best place first; an empty list means to the asker.

    A change is never decided in a conversation between the asker and the bot: nobody else sees it
    there, so it goes to the channel of its area, or to the default one.
    """
    run = story.run
    origin = run.origin.channel if run.origin.door in {"slack", "schedule"} else ""
    shared = [channel for channel in (story.channel, default) if channel]
    if origin.startswith("D") and run.kind == "change" and shared:
        origin = ""
    return list(dict.fromkeys([channel for channel in (origin, *shared) if channel]))
