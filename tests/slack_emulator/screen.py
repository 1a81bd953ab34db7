"""What a person sees: everything that the page's template shows, worked out. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType

from markupsafe import Markup

from tests.slack_emulator.controls import Surface, label
from tests.slack_emulator.directory import SYSTEM_USER, EmulatedPerson
from tests.slack_emulator.form_values import Offered
from tests.slack_emulator.interactions import Interactions
from tests.slack_emulator.messages import Message, SharedFile
from tests.slack_emulator.mrkdwn import EMOJI, Names, to_html
from tests.slack_emulator.places import MessagePlace, Place, ViewPlace
from tests.slack_emulator.rendering import blocks_to_html
from tests.slack_emulator.tags import tag
from tests.slack_emulator.views import View, Views
from tests.slack_emulator.wire import Json, records, text
from tests.slack_emulator.workspace import Channel, Workspace

# Messages of one author within this many seconds stand together under one name.
_TOGETHER = 300

_HUES = 6


@dataclass(frozen=True)
class Face:
    """How somebody is shown: full name, what they are, initials, and one of six colours."""

    id: str
    name: str
    title: str
    initials: str
    hue: str


@dataclass(frozen=True)
class Entry:
    """A line of the rail."""

    id: str
    name: str
    sign: str
    unread: int
    current: bool
    muted: bool


@dataclass(frozen=True)
class Line:
    """One message as it is shown. `day` stands above it where a new day begins."""

    message: Message
    face: Face
    html: Markup
    clock: str
    stamp: str
    day: str
    follows: bool
    replies: int
    last_reply: str

    @property
    def id(self) -> str:
        return "m-" + self.message.ts.replace(".", "-")

    @property
    def acts(self) -> bool:
        return bool(self.message.blocks)

    @property
    def files(self) -> Sequence[SharedFile]:
        return self.message.files

    @property
    def reactions(self) -> list[tuple[str, int]]:
        names = [name for name, _ in self.message.reactions]
        return [(EMOJI.get(n, f":{n}:"), names.count(n)) for n in dict.fromkeys(names)]


@dataclass(frozen=True)
class Form:
    """The modal that is open, or a Home tab."""

    view: View
    html: Markup
    title: str
    submit: str
    close: str
    depth: int
    trouble: str


class Screen:
    """Draws the workspace for one person."""

    def __init__(
        self,
        workspace: Workspace,
        views: Views,
        interactions: Interactions,
        person: EmulatedPerson,
    ) -> None:
        self._workspace = workspace
        self._views = views
        self._interactions = interactions
        self.person = person
        self.names = _names(workspace, person.user_id)

    @property
    def active(self) -> bool:
        return self.person.user_id not in self._workspace.deactivated

    @property
    def me(self) -> Face:
        return self.face(self.person.user_id)

    @property
    def faces(self) -> list[Face]:
        return [self.face(user_id) for user_id in self._workspace.people]

    def face(self, user_id: str) -> Face:
        workspace = self._workspace
        name = workspace.name_of(user_id)
        person = workspace.people.get(user_id)
        if user_id == workspace.app.bot_user_id:
            return Face(user_id, name, "app", name[:1].upper(), "bot")
        if user_id == SYSTEM_USER or person is None:
            return Face(user_id, name, "", "i", "system")
        initials = "".join(word[0] for word in name.split()[:2]).upper()
        hue = list(workspace.people).index(user_id) % _HUES
        return Face(user_id, name, person.title, initials, str(hue))

    # The rail

    def entries(self, current: str) -> list[Entry]:
        return [
            self._entry(channel, current)
            for channel in self._workspace.channels_of(self.person.user_id)
            if not channel.direct
        ]

    def directs(self, current: str) -> list[Entry]:
        return [
            self._entry(channel, current)
            for channel in self._workspace.channels_of(self.person.user_id)
            if channel.direct
        ]

    def _entry(self, channel: Channel, current: str) -> Entry:
        unread = self._workspace.unread(channel.id, self.person.user_id)
        return Entry(
            channel.id,
            self.title_of(channel),
            {"channel": "#", "group": "◆"}.get(channel.kind, "@"),
            0 if channel.id == current else unread,
            channel.id == current,
            channel.archived,
        )

    def title_of(self, channel: Channel) -> str:
        if not channel.direct:
            return channel.name
        others = channel.members - {self.person.user_id}
        return ", ".join(sorted(self._workspace.name_of(user) for user in others))

    # Messages

    def log(self, channel: Channel) -> list[Line]:
        return self._lines(self._workspace.log(channel.id, self.person.user_id), threads=True)

    def thread(self, channel: Channel, ts: str) -> list[Line]:
        messages = self._workspace.thread(channel.id, ts, self.person.user_id)
        return self._lines(messages, threads=False)

    def _lines(self, messages: Sequence[Message], *, threads: bool) -> list[Line]:
        lines: list[Line] = []
        before: Message | None = None
        for message in messages:
            lines.append(self._line(message, before, threads=threads))
            before = message
        return lines

    def _line(self, message: Message, before: Message | None, *, threads: bool) -> Line:
        moment = self._moment(message.ts)
        earlier = self._moment(before.ts) if before else None
        new_day = earlier is None or earlier.date() != moment.date()
        replies = self._replies(message) if threads else []
        return Line(
            message,
            self.face(message.user),
            self.message_html(message),
            f"{moment:%H:%M}",
            moment.isoformat(),
            self._day(moment) if new_day and threads else "",
            follows=not new_day and before is not None and _belongs(before, message),
            replies=len(replies),
            last_reply=f"{self._moment(replies[-1].ts):%H:%M}" if replies else "",
        )

    def _replies(self, message: Message) -> list[Message]:
        messages = self._workspace.thread(message.channel, message.ts, self.person.user_id)
        return [reply for reply in messages if reply.ts != message.ts]

    def message_html(self, message: Message) -> Markup:
        if message.unfurls:
            html = self.message_html(replace(message, unfurls=()))
            return html + self._unfurls_html(message)
        if not message.blocks:
            return to_html(message.text, self.names)
        key = "m-" + message.ts.replace(".", "-")
        return blocks_to_html(message.blocks, self._surface(key, MessagePlace(message)))

    def _unfurls_html(self, message: Message) -> Markup:
        key = "u-" + message.ts.replace(".", "-")
        surface = self._surface(key, MessagePlace(message))
        drawn = [
            tag("div", {"class": "unfurl"}, blocks_to_html(blocks, surface))
            for _, blocks in message.unfurls
        ]
        return Markup("").join(drawn)

    def _moment(self, ts: str) -> datetime:
        return datetime.fromtimestamp(float(ts), tz=self.names.now.tzinfo)

    def _day(self, moment: datetime) -> str:
        days = (self.names.now.date() - moment.date()).days
        near = {0: "Today", 1: "Yesterday"}.get(days)
        return near or f"{moment:%A}, {moment.day} {moment:%B}"

    # Forms

    def modal(self) -> Form | None:
        stack = self._views.stack(self.person.user_id)
        return self._form(stack[-1], len(stack)) if stack else None

    def home(self) -> Form | None:
        view = self._views.home(self.person.user_id)
        return self._form(view, 1) if view else None

    def _form(self, view: View, depth: int) -> Form:
        place = ViewPlace(view)
        payload = view.payload
        return Form(
            view,
            blocks_to_html(place.blocks, self._surface(view.id, place, view.errors)),
            label(payload.get("title")),
            label(payload.get("submit")),
            label(payload.get("close")) or "Cancel",
            depth,
            _unplaced(view, place.blocks),
        )

    def _surface(
        self, key: str, place: Place, errors: Mapping[str, str] = MappingProxyType({})
    ) -> Surface:
        user = self.person.user_id
        offered: Offered = self._interactions.shown(user, place)
        return Surface(
            key,
            self.names,
            state=self._interactions.state(user, place),
            errors=errors,
            offered=offered,
            people=[(one.user_id, one.display) for one in self._workspace.people.values()],
            channels=[
                (channel.id, f"#{channel.name}")
                for channel in self._workspace.channels_of(user)
                if not channel.direct
            ],
            live=self.active,
        )


def _unplaced(view: View, blocks: Sequence[Json]) -> str:
    """Return the words that belong under no block that the view has."""
    known = {text(block.get("block_id")) for block in records(list(blocks))}
    return " ".join(words for key, words in view.errors.items() if key not in known)


def _belongs(before: Message, message: Message) -> bool:
    near = float(message.ts) - float(before.ts) < _TOGETHER
    alike = (before.user, before.only_for) == (message.user, message.only_for)
    return near and alike and not message.command and not before.command


def _names(workspace: Workspace, reader: str) -> Names:
    users = {person.user_id: person.name for person in workspace.people.values()}
    users[workspace.app.bot_user_id] = workspace.app.bot_name
    return Names(
        users,
        {channel.id: channel.name for channel in workspace.channels.values()},
        {group.group_id: group.handle for group in workspace.groups.values()},
        reader,
        datetime.fromtimestamp(workspace.now(), tz=UTC).astimezone(),
    )
