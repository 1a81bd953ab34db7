"""Notify people of a run beside its card: alerts, copies for approvers, and reminders."""

from bot.db.break_glass import REVIEW_TIME
from bot.model.run import State
from bot.model.times import to_datetime
from bot.slack.aliases import COMMAND
from bot.slack.blocks import (
    Inline,
    Message,
    bold,
    code,
    context,
    date_element,
    emoji,
    format_date,
    format_notification,
    format_place,
    link,
    paragraph,
    quote,
    rich_text,
    rich_text_section,
    user_mention,
)
from bot.slack.client import MessageLocation
from bot.slack.labels import format_title_with_host
from bot.slack.run_facts import Approver, SlackRunView
from bot.slack.run_message import render_card, render_decided
from bot.slack.run_notices import RunNotice
from bot.slack.run_posts import ASKED, COPY, RunPosts

_MAX_COPIES, _MAX_NAMES = 10, 10


async def send_break_glass_alerts(posts: RunPosts, *, alert_channel: str) -> None:
    """Notify the area's channel, the alert channel and each owner, once.

    alert_channel: C…, where those of every area go; "" if there is none.
    """
    run_view = posts.run_view
    if run_view.break_glass is None or run_view.break_glass.activated_at is None:
        return
    message = render_break_glass_alert(run_view)
    # If one channel is closed, the others are still notified.
    for channel in dict.fromkeys(filter(None, (run_view.channel, alert_channel))):
        await posts.try_post_once(f"alarm {channel}", message, channel)
    for user in (owner.slack_user for owner in run_view.owners):
        if user and user != run_view.requester:
            await posts.try_send_once(f"alarm {user}", message, user)


def render_break_glass_alert(run_view: SlackRunView) -> Message:
    """Render the alert. It mentions the owners, so that Slack notifies them."""
    run, break_glass = run_view.run, run_view.break_glass
    if break_glass is None or break_glass.activated_at is None:
        raise ValueError(f"run {run.id} needs no review")
    who = run_view.get_person_name(break_glass.person)
    request = f"{format_title_with_host(run)} ({run_view.area_title})"
    text = f"Run {run.id} · {who} {break_glass.deed}: {request}"
    owners = [owner for owner in run_view.owners if owner.slack_user]
    mentioned = [part for owner in owners for part in (user_mention(owner.slack_user), " ")]
    page = [" ", link(run_view.page_url, "Open")] if run_view.page_url else []
    parts = [
        rich_text_section(emoji("rotating_light"), " ", bold(text)),
        *([quote(break_glass.reason)] if break_glass.reason else []),
        rich_text_section(
            (
                "A rule of the policy permits it. "
                if break_glass.is_by_rule
                else "It bypasses freezes and approvals. "
            ),
            *mentioned,
            "one of you must review it by ",
            date_element(to_datetime(break_glass.activated_at + REVIEW_TIME)),
            ": ",
            code(f"{COMMAND} review {run.id} FINDINGS"),
            *page,
        ),
    ]
    until = break_glass.active_until
    facts = [context(f"active until {format_date(until)} at the latest")] if until else []
    place = format_place(run.id, run_view.page_url)
    return Message(format_notification(text), [rich_text(*parts), *facts], place=place)


async def send_notice(posts: RunPosts, notice: RunNotice, *, default_channel: str) -> None:
    """Send what a feature has to say about a run, once, or update it.

    default_channel: C…, for areas without one; "" if there is none.
    """
    channel = posts.run_view.channel or default_channel
    if notice.user:
        await posts.try_send_once(notice.slot, notice.message, notice.user)
    elif notice.is_kept_current and notice.slot in posts.posted:
        await posts.update_or_forget(notice.slot, notice.message)
    elif channel:
        await posts.try_post_once(notice.slot, notice.message, channel)


async def update_copies(posts: RunPosts, location: MessageLocation | None) -> None:
    """Send the copies of the card that are due, and update those that are out of date."""
    run_view = posts.run_view
    is_pending = run_view.run.state is State.PENDING
    message = render_card(run_view) if is_pending else render_decided(run_view)
    for slot in posts.posted:
        if slot.startswith(COPY):
            await posts.update_or_forget(slot, message)
    for user in list_users_due_copy(run_view, location, is_shared=posts.shares_card):
        await posts.try_send_once(_build_copy_slot(run_view, user), message, user)
    for slot in list(posts.posted):
        if slot.startswith(ASKED):
            user = slot.removeprefix(ASKED)
            await posts.try_send_once(f"{COPY}{user}", message, user)


def _build_copy_slot(run_view: SlackRunView, user: str) -> str:
    """Return the slot of a person's copy: the assignee gets a new one, which notifies them."""
    assignment = run_view.discussion.assignment
    is_assigned = any(one.is_assigned and one.slack_user == user for one in run_view.approvers)
    return f"{COPY}{user} {assignment.at}" if assignment and is_assigned else f"{COPY}{user}"


def list_users_due_copy(
    run_view: SlackRunView, location: MessageLocation | None, *, is_shared: bool = False
) -> list[str]:
    """Return the users who need a copy of the card.

    A requester who has to sign first is called at once: nothing goes on before. Of requests that
    share a card, approvers are called in its thread, and get copies of those assigned to them.

    Args:
        location: Of the card itself.
        is_shared: Whether the run shares it with others.
    """
    if run_view.run.state is not State.PENDING:
        return []
    is_hidden = location is None or location.channel.startswith("D")
    if run_view.view.awaits_signature and run_view.requester and not is_hidden:
        return [run_view.requester]
    missing = list_missing_approvers(run_view)
    if is_shared and not is_hidden:
        missing = [one for one in missing if one.is_assigned]
    is_called = any(one.is_assigned or one.is_on_duty for one in missing)
    if run_view.run.reminded_at is None and not is_hidden and not is_called:
        return []
    informed = {run_view.requester if is_hidden else ""}
    users = [
        one.slack_user for one in missing if one.slack_user and one.slack_user not in informed
    ]
    return users[:_MAX_COPIES]


def build_reminders(run_view: SlackRunView) -> dict[str, Message]:
    """Return the reminders that are due, by slot: each slot is sent once."""
    run = run_view.run
    if run.state is not State.PENDING:
        return {}
    reminders: dict[str, Message] = {}
    if run.escalated_at is not None:
        reminders["escalation"] = _build_reminder(
            run_view, f"Escalated: {run_view.view.approvals_from} can now approve"
        )
    elif run.reminded_at is not None:
        reminders[f"reminder {run.reminded_at}"] = _build_reminder(
            run_view, "Your approval is still needed"
        )
    return reminders


def _build_reminder(run_view: SlackRunView, text: str) -> Message:
    run = run_view.run
    parts: list[Inline] = [emoji("bell"), " "]
    # Names without mentions: Slack notifies approvers of their copy of the card already.
    names = [approver.name for approver in list_missing_approvers(run_view)[:_MAX_NAMES]]
    if names:
        parts.append(bold(f"{', '.join(names)}: "))
    asked = f"Run {run.id} · {text}: {format_title_with_host(run)}"
    parts.append(asked)
    since = f"waiting since {format_date(run.pending_since or run.requested_at)}"
    until = f" · expires {format_date(run.expires_at)}" if run.expires_at else ""
    return Message(
        format_notification(asked),
        [paragraph(*parts), context(since + until)],
        place=format_place(run.id, run_view.page_url),
    )


def list_missing_approvers(run_view: SlackRunView) -> list[Approver]:
    """Return the approvers who have not decided yet: of those, who is called first.

    That is who is assigned; or, until approvers are reminded, who is on duty.
    """
    decided = {run_view.get_person_name(decision.person) for decision in run_view.approvals}
    missing = [approver for approver in run_view.approvers if approver.name not in decided]
    on_duty = [one for one in missing if one.is_on_duty and run_view.run.reminded_at is None]
    return [one for one in missing if one.is_assigned] or on_duty or missing
