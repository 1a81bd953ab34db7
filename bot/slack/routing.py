"""Decide who sees a run in Slack, and where: only the people it concerns. Pure."""

from enum import Enum, auto

from bot.model.run import RequestOrigin, State
from bot.slack.run_facts import SlackRunView

# The answer to any other request is where it was made.
_SOURCES_IN_CHAT = frozenset({"slack", "schedule"})
_STATES_WITHOUT_MENTION = frozenset({State.WITHDRAWN, State.NO_CHANGES, State.SUPERSEDED})


# Do not post runs that ended longer ago than this, in microseconds: after Slack is connected for
# the first time, new requests are not queued behind the history.
_MAX_AGE = 7 * 86_400 * 1_000_000


class Audience(Enum):
    CHANNEL = auto()
    REQUESTER = auto()  # by an ephemeral message
    NONE = auto()


def get_audience(run_view: SlackRunView, *, is_posted: bool) -> Audience:
    """Return who sees the run as it is now. is_posted: whether its card is posted already."""
    run = run_view.run
    if is_posted:
        return Audience.CHANNEL
    if (
        run.plan_only
        or run_view.is_quiet
        or (run.ended_at is not None and run_view.view.now - run.ended_at > _MAX_AGE)
    ):
        return Audience.NONE
    if run_view.is_refused_at_once and run.origin.source != "schedule":
        return Audience.NONE
    elsewhere = run.origin.source not in _SOURCES_IN_CHAT
    if run.kind == "check" or run.state is State.PLANNING:
        return Audience.NONE if elsewhere else Audience.CHANNEL
    if run.is_ended and run.started_at is None and run.origin.source != "schedule":
        return Audience.NONE if elsewhere else Audience.REQUESTER
    return Audience.CHANNEL


def needs_requester_mention(run_view: SlackRunView) -> bool:
    """Return whether the result in the card's thread mentions the requester."""
    run = run_view.run
    if run.kind == "check" or run.plan is None:
        return False
    ended = run.is_ended or run.state is State.UNKNOWN
    return ended and run.state not in _STATES_WITHOUT_MENTION


def can_unfurl_in(
    run_view: SlackRunView, channel: str, *, card_channel: str, default_channel: str
) -> bool:
    """Return whether the members of a channel may see what a link to the run shows.

    They may if the card is there, or goes there unless its channel is closed.
    """
    run = run_view.run
    origin = run.origin.channel if run.origin.source in _SOURCES_IN_CHAT else ""
    if run.plan_only or (run.kind == "check" and origin.startswith("D")):
        return False
    return channel in {card_channel, origin, run_view.channel or default_channel}


def list_channels(run_view: SlackRunView, *, default_channel: str) -> list[str]:
    """Return the channels for the card, best first; an empty list: direct to the requester.

    The card of a change does not stay in the requester's direct messages with the bot, where no
    approver sees it: it goes to the channel of its area, or to the default one.
    """
    run = run_view.run
    shared = [channel for channel in (run_view.channel, default_channel) if channel]
    origin = _get_origin_channel(run.origin, run.kind, has_shared=bool(shared))
    return list(dict.fromkeys([channel for channel in (origin, *shared) if channel]))


def get_first_channel(
    run_view: SlackRunView, origin: RequestOrigin, *, default_channel: str
) -> str:
    """Return the first channel for the card of a request like a run; "" without one.

    origin: of the request.
    """
    shared = run_view.channel or default_channel
    return _get_origin_channel(origin, run_view.run.kind, has_shared=bool(shared)) or shared


def _get_origin_channel(origin: RequestOrigin, kind: str, *, has_shared: bool) -> str:
    channel = origin.channel if origin.source in _SOURCES_IN_CHAT else ""
    return "" if channel.startswith("D") and kind == "change" and has_shared else channel
