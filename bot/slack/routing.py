"""Who is told of a run, and where: as few people as it concerns. Pure."""

from enum import Enum, auto

from bot.model.run import State
from bot.slack.run_facts import SlackRunView

# Whoever asks at these doors has the answer in front of them.
_SOURCES_WITH_REPLY = frozenset({"web", "api", "cli"})
_STATES_WITHOUT_MENTION = frozenset({State.WITHDRAWN, State.NO_CHANGES, State.SUPERSEDED})


# Of what ended longer ago than this, in microseconds, no card is posted any more: whoever connects
# chat to a Keyturn that has worked without it for a year is told of no year's work, and the first
# request is not behind it.
_MAX_AGE = 7 * 86_400 * 1_000_000


class Audience(Enum):
    CHANNEL = auto()
    REQUESTER = auto()  # in words that only they see
    NOBODY = auto()


def get_audience(story: SlackRunView, *, is_posted: bool) -> Audience:
    """Return who sees the run as it is now. posted: its card stands somewhere already."""
    run = story.run
    if is_posted:
        return Audience.CHANNEL
    if story.is_quiet or (run.ended_at is not None and story.now - run.ended_at > _MAX_AGE):
        return Audience.NOBODY
    if story.is_refused_at_once and run.origin.source != "schedule":
        return Audience.NOBODY
    elsewhere = run.origin.source in _SOURCES_WITH_REPLY
    if run.kind == "check" or run.state is State.PLANNING:
        return Audience.NOBODY if elsewhere else Audience.CHANNEL
    if run.is_ended and run.started_at is None and run.origin.source != "schedule":
        return Audience.NOBODY if elsewhere else Audience.REQUESTER
    return Audience.CHANNEL


def needs_requester_mention(story: SlackRunView) -> bool:
    """Return whether the asker is called into the thread of the card to see how it ended."""
    run = story.run
    if run.kind == "check" or run.plan is None:
        return False
    ended = run.is_ended or run.state is State.UNKNOWN
    return ended and run.state not in _STATES_WITHOUT_MENTION


def list_channels(story: SlackRunView, *, default_channel: str) -> list[str]:
    """Return where the card belongs, the best place first; an empty list means to the asker.

    A change is never decided in a conversation between the asker and the bot: nobody else sees it
    there, so it goes to the channel of its area, or to the default one.
    """
    run = story.run
    origin = run.origin.channel if run.origin.source in {"slack", "schedule"} else ""
    shared = [channel for channel in (story.channel, default_channel) if channel]
    if origin.startswith("D") and run.kind == "change" and shared:
        origin = ""
    return list(dict.fromkeys([channel for channel in (origin, *shared) if channel]))
