"""Web API: chat.* and reactions.*"""

from dataclasses import replace

from tests.slack_emulator.calls import Call, Methods
from tests.slack_emulator.drafts import MOST_TEXT, draft_of
from tests.slack_emulator.messages import Message, message_json
from tests.slack_emulator.wire import Json, SlackError, record


def _post_message(call: Call) -> Json:
    channel = call.writable()
    draft = draft_of(call.args, truncate=True)
    thread_ts = call.word("thread_ts")
    if thread_ts:
        call.workspace.message(channel.id, thread_ts)
    posted = call.workspace.post(
        Message(
            channel.id,
            "",
            call.workspace.app.bot_user_id,
            draft.text,
            draft.blocks,
            thread_ts=thread_ts,
            metadata=record(call.args.get("metadata")) or None,
        )
    )
    body = {
        "channel": channel.id,
        "ts": posted.ts,
        "message": message_json(posted, call.workspace.app),
    }
    if len(call.word("text")) > MOST_TEXT:
        body |= {"warning": "message_truncated"}
    return body


def _own(call: Call, wrong: str) -> Message:
    """Return the bot's own message that `channel` and `ts` name; it must be one for everyone."""
    channel = call.conversation()
    message = call.workspace.message(channel.id, call.needed("ts"))
    if message.only_for:
        raise SlackError("message_not_found")
    if message.user != call.workspace.app.bot_user_id:
        raise SlackError(wrong)
    if channel.archived:
        raise SlackError("is_archived")
    return message


def _update(call: Call) -> Json:
    """Put text and blocks in the place of the old ones: what is not given is gone."""
    message = _own(call, "cant_update_message")
    draft = draft_of(call.args)
    changed = call.workspace.put(
        replace(
            message,
            text=draft.text,
            blocks=draft.blocks,
            edited=call.workspace.next_ts(),
            metadata=record(call.args.get("metadata")) or message.metadata,
        )
    )
    return {
        "channel": changed.channel,
        "ts": changed.ts,
        "text": changed.text,
        "message": message_json(changed, call.workspace.app),
    }


def _delete(call: Call) -> Json:
    message = _own(call, "cant_delete_message")
    call.workspace.delete(message.channel, message.ts)
    return {"channel": message.channel, "ts": message.ts}


def _post_ephemeral(call: Call) -> Json:
    channel = call.writable()
    user = call.needed("user")
    if user in call.workspace.deactivated or user not in channel.members:
        raise SlackError("user_not_in_channel")
    draft = draft_of(call.args)
    posted = call.workspace.post(
        Message(
            channel.id,
            "",
            call.workspace.app.bot_user_id,
            draft.text,
            draft.blocks,
            thread_ts=call.word("thread_ts"),
            only_for=user,
        )
    )
    return {"message_ts": posted.ts}


def _permalink(call: Call) -> Json:
    channel = call.conversation()
    message = call.workspace.message(channel.id, call.needed("message_ts"))
    link = f"{call.context.url()}/m/{channel.id}/{message.ts}"
    return {"channel": channel.id, "permalink": link}


def _react(call: Call) -> Json:
    channel = call.conversation()
    message = call.workspace.message(channel.id, call.needed("timestamp"))
    entry = (call.needed("name"), call.workspace.app.bot_user_id)
    if entry in message.reactions:
        raise SlackError("already_reacted")
    call.workspace.put(message.with_reaction(*entry))
    return {}


def _unfurl(call: Call) -> Json:
    """Show blocks below a person's message for URLs that it contains; replace earlier ones."""
    channel = call.workspace.channel(call.needed("channel"))
    message = call.workspace.message(channel.id, call.needed("ts"))
    for url, shown in record(call.args.get("unfurls")).items():
        if f"<{url.replace('&', '&amp;')}>" not in message.text:
            raise SlackError("cannot_unfurl_url")
        message = message.with_unfurl(url, draft_of(record(shown)).blocks)
    call.workspace.put(message)
    return {}


METHODS: Methods = {
    "chat.postMessage": _post_message,
    "chat.update": _update,
    "chat.delete": _delete,
    "chat.postEphemeral": _post_ephemeral,
    "chat.unfurl": _unfurl,
    "chat.getPermalink": _permalink,
    "reactions.add": _react,
}
