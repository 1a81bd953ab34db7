"""The message in chat to the requester of an erasure that an owner has declined."""

from bot.audit import events
from bot.features.erasure.readings import get_declined_erasure
from bot.slack.blocks import (
    Message,
    bold,
    format_notification,
    link,
    quote,
    rich_text,
    rich_text_section,
)
from bot.slack.run_notices import NoticeContext, RunNotice


def build_declined_erasure(context: NoticeContext) -> RunNotice | None:
    """Return the notice that the last request to erase the output of a run was declined."""
    run = context.run
    declined = get_declined_erasure(context.tx, run.id) if run.is_ended else None
    event = declined.event if declined else None
    if declined is None or not isinstance(event, events.ErasureDeclined):
        return None
    user = context.find_user(event.requested_by)
    if not user:
        return None
    owner = context.policy.get_person_name(declined.person)
    text = f"{owner} declined to erase the output of run {run.id}"
    address = f"{context.base_url}/runs/{run.id}/erase"
    page = [" ", link(address, "Open")] if context.base_url else []
    parts = [rich_text_section(bold(text), *page), quote(event.reason)]
    message = Message(format_notification(text), [rich_text(*parts)])
    return RunNotice(f"declined {declined.seq}", message, user)
