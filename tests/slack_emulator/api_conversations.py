"""Web API: conversations.*"""

from tests.slack_emulator.calls import Call, Methods
from tests.slack_emulator.messages import message_json
from tests.slack_emulator.wire import Json, SlackError
from tests.slack_emulator.workspace import Channel

_NO_MORE: Json = {"next_cursor": ""}


def channel_json(call: Call, channel: Channel) -> Json:
    inside = call.workspace.app.bot_user_id in channel.members
    if channel.kind == "im":
        return {
            "id": channel.id,
            "is_im": True,
            "user": channel.name,
            "is_archived": False,
            "is_user_deleted": channel.name in call.workspace.deactivated,
        }
    return {
        "id": channel.id,
        "name": channel.name,
        "is_channel": channel.kind == "channel",
        "is_group": channel.kind == "group",
        "is_im": False,
        "is_mpim": channel.kind == "mpim",
        "is_private": channel.kind != "channel",
        "is_archived": channel.archived,
        "is_member": inside,
        "is_ext_shared": channel.shared,
        "is_org_shared": False,
        "topic": {"value": channel.topic},
        "purpose": {"value": ""},
        "num_members": len(channel.members),
    }


def _open(call: Call) -> Json:
    if call.word("channel"):
        return {"channel": channel_json(call, call.conversation())}
    users = [user.strip() for user in call.needed("users").split(",") if user.strip()]
    channel = call.direct(users)
    return {"channel": {"id": channel.id} | channel_json(call, channel)}


def _info(call: Call) -> Json:
    return {"channel": channel_json(call, call.conversation())}


def _members(call: Call) -> Json:
    members = sorted(call.conversation().members)
    return {"members": members, "response_metadata": _NO_MORE}


def _list(call: Call) -> Json:
    kinds = {"public_channel": "channel", "private_channel": "group", "im": "im", "mpim": "mpim"}
    wanted = {
        kinds.get(name.strip(), "") for name in (call.word("types") or "public_channel").split(",")
    }
    bot = call.workspace.app.bot_user_id
    shown = [
        channel_json(call, channel)
        for channel in call.workspace.channels.values()
        if channel.kind in wanted
        and (channel.kind == "channel" or bot in channel.members)
        and not (call.claim("exclude_archived") and channel.archived)
    ]
    return {"channels": shown, "response_metadata": _NO_MORE}


def _inside(call: Call) -> Channel:
    channel = call.conversation()
    if call.workspace.app.bot_user_id not in channel.members:
        raise SlackError("not_in_channel")
    return channel


def _history(call: Call) -> Json:
    channel = _inside(call)
    oldest, latest = call.word("oldest"), call.word("latest")
    messages = [
        message
        for message in reversed(call.workspace.log(channel.id, ""))
        if not message.only_for
        and (not oldest or message.ts > oldest)
        and (not latest or message.ts < latest)
    ]
    limit = call.number("limit", 100)
    shown = [message_json(message, call.workspace.app) for message in messages[:limit]]
    return {
        "messages": shown,
        "has_more": len(messages) > limit,
        "response_metadata": _NO_MORE,
    }


def _replies(call: Call) -> Json:
    channel = _inside(call)
    try:
        call.workspace.message(channel.id, call.needed("ts"))
    except SlackError:
        raise SlackError("thread_not_found") from None
    messages = call.workspace.thread(channel.id, call.word("ts"), "")
    shown = [message_json(message, call.workspace.app) for message in messages]
    return {"messages": shown, "has_more": False, "response_metadata": _NO_MORE}


def _join(call: Call) -> Json:
    channel = call.conversation()
    if channel.kind != "channel":
        raise SlackError("method_not_supported_for_channel_type")
    if channel.archived:
        raise SlackError("is_archived")
    call.workspace.set_bot_inside(channel.id, inside=True)
    return {"channel": channel_json(call, channel)}


METHODS: Methods = {
    "conversations.open": _open,
    "conversations.info": _info,
    "conversations.members": _members,
    "conversations.list": _list,
    "conversations.history": _history,
    "conversations.replies": _replies,
    "conversations.join": _join,
}
