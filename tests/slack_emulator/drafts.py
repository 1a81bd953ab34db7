"""What the bot wants to say, checked as Slack checks it before it is posted."""

from dataclasses import dataclass

from tests.slack_emulator.blockkit import faults_of_blocks, with_ids
from tests.slack_emulator.expiring_ids import ResponseTarget
from tests.slack_emulator.messages import Message
from tests.slack_emulator.wire import Json, SlackError, is_list, record, text
from tests.slack_emulator.workspace import Workspace

MOST_TEXT = 40_000


@dataclass(frozen=True)
class Draft:
    text: str
    blocks: tuple[Json, ...]


def draft_of(given: Json, *, truncate: bool = False) -> Draft:
    """Return text and blocks, or raise SlackError: no_text, msg_too_long, invalid_blocks.

    truncate: cut a text that is too long, as chat.postMessage does, rather than refuse it.
    """
    words = text(given.get("text"))
    blocks: object = given.get("blocks") or []
    if not is_list(blocks):
        raise SlackError("invalid_blocks_format")
    faults = faults_of_blocks(blocks, surface="message")
    if faults:
        raise SlackError("invalid_blocks", faults)
    if not words.strip() and not blocks:
        raise SlackError("no_text")
    if len(words) > MOST_TEXT and not truncate:
        raise SlackError("msg_too_long")
    return Draft(words[:MOST_TEXT], with_ids(blocks))


def respond(workspace: Workspace, ticket: ResponseTarget, given: Json) -> None:
    """Do what an answer through a response URL, or an acknowledgement, asks for."""
    if given.get("delete_original") is True:
        workspace.delete(ticket.channel, ticket.message_ts)
        return
    draft = draft_of(given)
    if given.get("replace_original") is True:
        _replace(workspace, ticket, draft)
        return
    in_channel = given.get("response_type") == "in_channel"
    workspace.post(
        Message(
            ticket.channel,
            "",
            workspace.app.bot_user_id,
            draft.text,
            draft.blocks,
            thread_ts=text(given.get("thread_ts")) or ticket.thread_ts,
            only_for="" if in_channel else ticket.user,
        )
    )


def _replace(workspace: Workspace, ticket: ResponseTarget, draft: Draft) -> None:
    original = workspace.message(ticket.channel, ticket.message_ts)
    changed = Message(
        original.channel,
        original.ts,
        original.user,
        draft.text,
        draft.blocks,
        thread_ts=original.thread_ts,
        only_for=original.only_for,
        edited=workspace.next_ts(),
    )
    workspace.put(changed)


def answer_of(body: Json | str) -> Json:
    """Return what an acknowledgement says as a message; plain text is one, empty is none."""
    if isinstance(body, str):
        return {"text": body} if body.strip() else {}
    return body if body.get("text") or body.get("blocks") or _acts(body) else {}


def _acts(body: Json) -> bool:
    return bool(record(body).get("delete_original") or record(body).get("replace_original"))
