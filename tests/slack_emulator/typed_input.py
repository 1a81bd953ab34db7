"""What a person types into the emulator: slash commands and messages, told to the bot."""

from tests.slack_emulator import payloads
from tests.slack_emulator.deliveries import Courier, NotTaken
from tests.slack_emulator.drafts import answer_of, respond
from tests.slack_emulator.expiring_ids import ResponseTarget, Triggers
from tests.slack_emulator.interactions import Interactions
from tests.slack_emulator.message_encoding import (
    encode_command_text,
    encode_message,
    find_links,
    parse_slash_command,
)
from tests.slack_emulator.messages import Message
from tests.slack_emulator.payloads import Context, Typed
from tests.slack_emulator.wire import Json, SlackError
from tests.slack_emulator.workspace import Channel, Workspace


class TypedInput:
    """Takes what was typed in a conversation, as one person."""

    def __init__(
        self,
        workspace: Workspace,
        interactions: Interactions,
        courier: Courier,
        triggers: Triggers,
    ) -> None:
        self._workspace = workspace
        self._interactions = interactions
        self._courier = courier
        self._triggers = triggers

    async def say(self, user: str, channel_id: str, typed: str, *, thread_ts: str = "") -> None:
        """Post a message or give a slash command; what went wrong is told to the person."""
        channel = self._workspace.channel(channel_id)
        context = self._interactions.context(user)
        command = parse_slash_command(typed)
        if not typed.strip():
            return
        if channel.archived:
            self._workspace.notice(channel_id, user, "This channel is archived: nobody can post.")
        elif command is None:
            self._message(context, channel, typed, thread_ts)
        elif thread_ts:
            words = f"{command.command} is not supported in threads. Sorry!"
            self._workspace.notice(channel_id, user, words, thread_ts=thread_ts)
        else:
            await self._command(context, channel, command)

    async def _command(self, context: Context, channel: Channel, typed: Typed) -> None:
        if typed.command in ("/invite", "/remove"):
            self._invite(context, channel, typed)
            return
        known = [command.name for command in context.app.commands]
        if typed.command not in known:
            words = f"`{typed.command}` is not a valid command. Known here: {', '.join(known)}."
            self._workspace.notice(channel.id, context.person.user_id, words)
            return
        await self._give(context, channel, typed)

    async def _give(self, context: Context, channel: Channel, typed: Typed) -> None:
        user = context.person.user_id
        ticket = ResponseTarget(channel.id, user)
        people, channels = self._ids()
        form = payloads.slash_command(
            context,
            channel,
            Typed(typed.command, encode_command_text(typed.words, people, channels)),
            response_url=self._interactions.response_url(ticket),
            trigger_id=self._triggers.issue(user),
        )
        try:
            response = answer_of(await self._courier.command(form))
            self._show_answer(context, ticket, typed, response)
        except NotTaken as trouble:
            words = f'{typed.command} failed with the error "{trouble.error}"'
            self._workspace.notice(channel.id, user, words)
        except SlackError as trouble:
            words = f'{typed.command} failed with the error "{trouble.error}"'
            self._workspace.notice(channel.id, user, "\n".join([words, *trouble.messages]))

    def _show_answer(
        self, context: Context, ticket: ResponseTarget, typed: Typed, response: Json
    ) -> None:
        if not response:
            return
        if response.get("response_type") == "in_channel":
            line = f"{typed.command} {typed.words}".strip()
            user = context.person.user_id
            self._workspace.post(Message(ticket.channel, "", user, line, command=line))
        respond(self._workspace, ticket, response)

    def _invite(self, context: Context, channel: Channel, typed: Typed) -> None:
        app, user = context.app, context.person.user_id
        inviting = typed.command == "/invite"
        if typed.words.lower().removeprefix("@") not in (app.bot_name, app.bot_display.lower()):
            self._workspace.notice(channel.id, user, f"Try {typed.command} @{app.bot_name}.")
            return
        self._workspace.set_bot_inside(channel.id, inside=inviting)
        done = "was added to" if inviting else "was removed from"
        self._workspace.notice(channel.id, user, f"{app.bot_display} {done} #{channel.name}.")
        if inviting:
            self._interactions.event(
                {
                    "type": "member_joined_channel",
                    "user": app.bot_user_id,
                    "channel": channel.id,
                    "channel_type": "G" if channel.kind == "group" else "C",
                    "team": app.team_id,
                    "inviter": user,
                    "event_ts": self._workspace.next_ts(),
                }
            )

    def _message(self, context: Context, channel: Channel, typed: str, thread_ts: str) -> None:
        people, channels = self._ids()
        words = encode_message(typed, people, channels)
        user = context.person.user_id
        posted = self._workspace.post(Message(channel.id, "", user, words, thread_ts=thread_ts))
        app = context.app
        inside = app.bot_user_id in channel.members
        if links := find_links(words, app.unfurl_domains):
            self._interactions.event(_shared(posted, links, inside=inside))
        if not inside:
            return
        mentioned = f"<@{app.bot_user_id}>" in words
        if channel.kind == "im":
            self._interactions.event(_spoken(posted, app.team_id) | {"channel_type": "im"})
        elif mentioned:
            self._interactions.event(_spoken(posted, app.team_id) | {"type": "app_mention"})

    def _ids(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return user ids and channel ids by lower-case name, the bot's own among them."""
        app = self._workspace.app
        people = {
            person.name.lower(): person.user_id for person in self._workspace.people.values()
        }
        people[app.bot_name.lower()] = app.bot_user_id
        channels = {
            channel.name.lower(): channel.id
            for channel in self._workspace.channels.values()
            if not channel.direct
        }
        return people, channels


def _shared(posted: Message, links: list[tuple[str, str]], *, inside: bool) -> Json:
    """Return the event of a message with links. links: domain and URL of each."""
    inner: Json = {
        "type": "link_shared",
        "channel": posted.channel,
        "is_bot_user_member": inside,
        "user": posted.user,
        "message_ts": posted.ts,
        "unfurl_id": f"{posted.channel}.{posted.ts}",
        "source": "conversations_history",
        "links": [{"domain": domain, "url": url} for domain, url in links],
        "event_ts": posted.ts,
    }
    return inner | ({"thread_ts": posted.thread_ts} if posted.thread_ts else {})


def _spoken(posted: Message, team_id: str) -> Json:
    inner: Json = {
        "type": "message",
        "user": posted.user,
        "text": posted.text,
        "ts": posted.ts,
        "team": team_id,
        "channel": posted.channel,
        "event_ts": posted.ts,
    }
    return inner | ({"thread_ts": posted.thread_ts} if posted.thread_ts else {})
