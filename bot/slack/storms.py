"""The card that the requests of a storm share, and who is called to decide them.

The delivery of each run only records what the card needs, and announces the run that leads: its
delivery alone posts and updates the card, so that a burst of changes becomes few updates.
"""

from collections import Counter
from collections.abc import Sequence

from bot.db import outbox, runs, storms, view_conditions
from bot.db.database import Transaction
from bot.db.outbox import SHARED_CARD
from bot.model.errors import TooLate
from bot.model.run import RequestOrigin, Run, State
from bot.model.run_states import Tone, get_run_display
from bot.model.text import format_count
from bot.model.view_rights import ViewRights
from bot.slack import routing
from bot.slack.blocks import (
    Block,
    Message,
    actions,
    bold,
    button,
    context,
    escape_mrkdwn,
    format_notification,
    format_place,
    header,
    paragraph,
    table,
    user_mention,
)
from bot.slack.client import MessageLocation
from bot.slack.labels import TONE_EMOJI, rank_tone
from bot.slack.notifications import list_missing_approvers
from bot.slack.routing import Audience
from bot.slack.run_facts import SlackRunView
from bot.slack.run_posts import ASKED, CARD, COPY, RunPosts, Storm

SHOW_EACH = "show-each"
# The starts of the slots of the calls in the thread, the first and that of a reminder, and what is
# before them in the slots that record that they are to be sent.
_CALL, _REMIND, _DUE = "call ", "remind ", "due "
_MAX_CALLED, _MAX_SHOWN = 5, 10


def is_urgent(run_view: SlackRunView) -> bool:
    """Return whether a run overtakes others: by break-glass."""
    return run_view.break_glass is not None and run_view.break_glass.activated_at is not None


def find_storm(tx: Transaction, posts: RunPosts, *, default_channel: str) -> Storm | None:
    """Return the card that a run shares, or is to share from now on; None for one of its own.

    The approvers who are called to decide the run are recorded for the thread of that card.
    """
    run_view, shared = posts.run_view, posts.posted.get(storms.SHARES)
    number = run_view.run.id
    leader = int(shared.digest) if shared else None
    if leader is None and _can_share(posts, default_channel=default_channel):

        def get_channel(origin: RequestOrigin) -> str:
            return routing.get_first_channel(run_view, origin, default_channel=default_channel)

        leader = storms.join_storm(tx, run_view.run, get_channel)
    if leader is None:
        return None
    has_own_card = CARD in posts.posted or is_urgent(run_view)
    if not has_own_card:
        for slot in _list_calls(run_view):
            storms.record_once(tx, leader, f"{_DUE}{slot}")
    posted = outbox.list_messages(tx, leader)
    if leader == number:
        posts.posted = posted
    else:
        outbox.announce_run(tx, leader)
    card = posted.get(SHARED_CARD)
    location = MessageLocation(card.channel, card.ts) if card else None
    return Storm(leader, location, has_own_card=has_own_card)


def _can_share(posts: RunPosts, *, default_channel: str) -> bool:
    run_view, run = posts.run_view, posts.run_view.run
    return (
        CARD not in posts.posted
        and run.kind == "change"
        and run.parent is None
        and run.proposal_for is None
        and run_view.break_glass is None
        and routing.get_audience(run_view, is_posted=False) is Audience.CHANNEL
        and bool(routing.list_channels(run_view, default_channel=default_channel))
    )


def _list_calls(run_view: SlackRunView) -> Sequence[str]:
    """Return the slots of the calls for the people who are to decide a run now.

    An approver to whom it is assigned gets a copy of its own card instead.
    """
    if run_view.run.state is not State.PENDING or run_view.view.awaits_signature:
        return []
    missing = list_missing_approvers(run_view)
    users = [one.slack_user for one in missing if one.slack_user and not one.is_assigned]
    is_reminded = run_view.run.reminded_at is not None
    return [
        f"{start}{user}"
        for user in users[:_MAX_CALLED]
        for start in (_CALL, *((_REMIND,) if is_reminded else ()))
    ]


async def send_calls(posts: RunPosts, location: MessageLocation | None) -> None:
    """Call each person in the thread of the shared card, once; and once more by a reminder."""
    for slot in posts.posted:
        if slot.startswith(_DUE):
            call = slot.removeprefix(_DUE)
            await posts.post_once(call, _render_call(posts.run_view, call), location)


def _render_call(run_view: SlackRunView, call: str) -> Message:
    asked = (
        "These requests still need your approval"
        if call.startswith(_REMIND)
        else "These requests need your approval"
    )
    what = f"{asked}: {run_view.run.runbook} ({run_view.area_title})."
    user = call.removeprefix(_REMIND).removeprefix(_CALL)
    text = "Show each sends you their cards, each of which is decided by itself."
    place = format_place(run_view.run.id, run_view.page_url)
    block = paragraph(user_mention(user), " ", bold(what), f" {text}")
    return Message(format_notification(what), [block], place=place)


def read_members(tx: Transaction, leader: int) -> Sequence[Run]:
    """Return the runs that share a card, without their plans, by their numbers."""
    return sorted(runs.list_runs(tx, storms.list_members(tx, leader)), key=lambda run: run.id)


def render_shared_card(run_view: SlackRunView, members: Sequence[Run]) -> Message:
    """Render the card of several runs: how each is, those first that need a look. Pure.

    run_view: of the run that leads.
    """
    run = run_view.run
    displays = {one.id: get_run_display(one) for one in members}
    by_tone = sorted(members, key=lambda one: rank_tone(displays[one.id].tone))
    rows = [
        (
            f"{one.id}",
            one.host,
            f"{TONE_EMOJI[displays[one.id].tone]} {displays[one.id].label}",
        )
        for one in by_tone
    ]
    tone = displays[by_tone[0].id].tone if by_tone else Tone.NEUTRAL
    counts = Counter(displays[one.id].label for one in by_tone)
    states = ", ".join(f"{label}: {count}" for label, count in counts.items())
    numbers = f"Runs {members[0].id}–{members[-1].id}" if len(members) > 1 else f"Run {run.id}"
    title = f"{numbers} · {format_count(len(members), 'request')}: {run.runbook}"
    facts = f"{escape_mrkdwn(run_view.area_title)} · each is planned, decided and run by itself"
    blocks: list[Block] = [
        header(f"{TONE_EMOJI[tone]} {title}"),
        context(facts),
        paragraph(bold(states)),
    ]
    if any(one.state is State.PENDING for one in members):
        spoken = f"Show each of {format_count(len(members), 'request')}: {run.runbook}"
        pressed = button("Show each", action=SHOW_EACH, value=str(run.id), label=spoken)
        blocks.append(actions(f"storm-{run.id}", pressed))
    # Below the button, which a long table would hide.
    blocks.append(table(("Run", "Host", "State"), rows))
    place = format_place(run.id, run_view.page_url)
    return Message(format_notification(f"{title} – {states}"), blocks, place=place)


def ask_for_cards(tx: Transaction, leader: int, *, user: str, rights: ViewRights) -> str:
    """Have the next cards that wait for a decision sent to a user; return an answer.

    Raises TooLate if none of them waits, or the person may view none.
    """
    with view_conditions.viewing_as(tx, rights):
        pending = [run for run in read_members(tx, leader) if run.state is State.PENDING]
    if not pending:
        raise TooLate("None of these requests waits for a decision any more.")
    missing = [
        run.id
        for run in pending
        if not {f"{ASKED}{user}", f"{COPY}{user}"} & outbox.list_messages(tx, run.id).keys()
    ]
    for number in missing[:_MAX_SHOWN]:
        storms.record_once(tx, number, f"{ASKED}{user}")
        outbox.announce_run(tx, number)
    if not missing:
        return "You have the card of each request that waits, in your messages with Keyturn."
    sent, left = missing[:_MAX_SHOWN], len(missing) - _MAX_SHOWN
    more = f" Press again for the next of {left} more." if left > 0 else ""
    return f"You get {format_count(len(sent), 'card')} in your messages with Keyturn.{more}"
