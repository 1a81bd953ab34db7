"""`/keyturn drift`: what changed outside Keyturn, and the answers; and the message about it."""

from collections.abc import Callable, Mapping, Sequence

from bot.db import drift
from bot.db.database import Database
from bot.db.drift import DriftKey
from bot.db.outbox import PostedMessage
from bot.model import times
from bot.model.drift import DRIFTED_STATES, Candidate
from bot.model.errors import InvalidRequestError
from bot.model.text import format_count
from bot.queries.drift import DriftDetails, describe_drift, read_details
from bot.service import KeyturnService
from bot.slack import replies
from bot.slack.blocks import (
    Message,
    align_rows,
    bold,
    bullet_list,
    code,
    format_notification,
    link,
    preformatted,
    rich_text,
    rich_text_section,
    shorten_text,
    text_element,
)
from bot.slack.client import MessageSender, StoreMessage, with_message_name
from bot.slack.parsing import TypedCommand, parse_number
from bot.slack.run_facts import SlackRunView
from connectors.command import quote_text

_MAX_LISTED, _MAX_ALERTED, _MAX_CANDIDATES = 20, 5, 15
_USAGE = f"{replies.COMMAND} drift"


class DriftCommands:
    """Answers commands about drift, with None if the card that follows is the answer."""

    def __init__(self, service: KeyturnService, database: Database) -> None:
        self._service, self._database = service, database
        self._actions: Mapping[str, Callable[[TypedCommand, str], Message | None]] = {
            "restore": self._restore_value,
            "adopt": self._adopt_value,
            "expect": self._expect_value,
            "read": self._read_host,
        }

    def answer_drift_command(self, command: TypedCommand) -> Message | None:
        """List drift, show one value, or act on it. Raises what the service raises."""
        first, _, rest = command.rest.partition(" ")
        act = self._actions.get(first.lower())
        if act is not None:
            return act(command, rest.strip())
        policy, name = command.policy, first.lower()
        is_number = first.removeprefix("#").isdecimal()
        if name and not is_number and name not in policy.inventory.hosts:
            raise InvalidRequestError(f"no host is called {quote_text(first)}")
        with self._database.reading(command.view_rights) as tx:
            if is_number:
                details = read_details(tx, policy, _parse_number(first), person=command.person)
                return render_details(details, command.zone)
            keys = drift.list_keys(tx, host=name, most=_MAX_LISTED)
        return render_keys(keys)

    def _restore_value(self, command: TypedCommand, rest: str) -> Message | None:
        run = self._service.drift.restore_value(
            _parse_number(rest),
            person=command.person,
            origin=command.origin,
            reason=command.reason,
        )
        return replies.build_text_reply(f"{run.title}: {run.summary}") if run.is_ended else None

    def _adopt_value(self, command: TypedCommand, rest: str) -> Message:
        key = self._service.drift.adopt_value(
            _parse_number(rest), person=command.person, reason=command.reason
        )
        return replies.build_text_reply(
            f"You adopted {key.name} on {key.host}: {key.set_value}. Nothing was sent."
        )

    def _expect_value(self, command: TypedCommand, rest: str) -> Message:
        number, until, when = rest.partition(" until ")
        when, _, value_range = when.partition(" between ")
        if not until:
            raise InvalidRequestError(
                f"the time is missing: type {_USAGE} expect N until TIME because …"
            )
        with self._database.reading(command.view_rights) as tx:
            now = tx.now
        lapses = times.parse_deadline(when, now=now, zone=command.zone)
        key = self._service.drift.expect_value(
            _parse_number(number),
            person=command.person,
            until=lapses,
            value_range=value_range.strip(),
            reason=command.reason,
        )
        return replies.build_text_reply(
            f"{key.name} on {key.host} may vary until {times.format_deadline(lapses)}."
        )

    def _read_host(self, command: TypedCommand, rest: str) -> Message:
        host = rest.lower()
        count = self._service.drift.read_host_now(host, person=command.person)
        return replies.build_text_reply(
            f"{host}: {format_count(count, 'value')} to read. The result: {_USAGE} {host}"
        )


def render_keys(keys: Sequence[DriftKey]) -> Message:
    """List values, those that are not as set first."""
    if not keys:
        return replies.build_text_reply("Keyturn watches no value here.")
    drifted = sum(key.state in DRIFTED_STATES for key in keys)
    title = f"{format_count(drifted, 'value')} changed outside Keyturn"
    rows = [
        (f"{key.id}", key.host, key.name, key.state.label, key.value or key.set_value)
        for key in keys
    ]
    lines = align_rows(rows)
    return Message(
        format_notification(title),
        [
            rich_text(
                rich_text_section(bold(title)),
                preformatted("\n".join(shorten_text(line, 140) for line in lines)),
                rich_text_section(text_element("Details: "), code(f"{_USAGE} N")),
            )
        ],
    )


def render_details(details: DriftDetails, zone: str) -> Message:
    """Show one value, and what happened on its host in the window."""
    key = details.key
    parts = [rich_text_section(bold(f"{key.host}: {key.state.label}"))]
    parts.append(rich_text_section(text_element(f"{describe_drift(key)}.")))
    shown = [_format_candidate(one, zone) for one in details.candidates[:_MAX_CANDIDATES]]
    if key.state in DRIFTED_STATES:
        heading = f"What happened on {key.host} then (candidates, not a verdict):"
        parts.append(rich_text_section(text_element(heading)))
        parts.append(preformatted("\n".join(shown) or "nothing that was recorded"))
        parts.append(
            rich_text_section(
                *(text_element("Decide: "), code(f"{_USAGE} restore {key.id} because …")),
                *(text_element(", "), code(f"{_USAGE} adopt {key.id} because …")),
                *(text_element(" or "), code(f"{_USAGE} expect {key.id} until TIME because …")),
            )
        )
    return Message(format_notification(describe_drift(key)), [rich_text(*parts)])


def render_drift_alert(run_view: SlackRunView) -> Message:
    """Render the message about the values of one host that changed outside Keyturn."""
    keys = run_view.drift
    title = f"{keys[0].host}: {format_count(len(keys), 'value')} changed outside Keyturn"
    items = [
        [text_element(f"{shorten_text(describe_drift(key), 400)}. "), code(f"{_USAGE} {key.id}")]
        for key in keys[:_MAX_ALERTED]
    ]
    more = len(keys) - _MAX_ALERTED
    items += [[text_element(f"and {more} more")]] if more > 0 else []
    page = [rich_text_section(link(run_view.drift_url, "Open"))] if run_view.drift_url else []
    return Message(
        format_notification(title),
        [rich_text(rich_text_section(bold(title)), bullet_list(*items), *page)],
    )


class DriftAlerts:
    """Sends the messages about drift. channel: C…, for areas without one; "" if there is none."""

    def __init__(
        self, sender: MessageSender, store_message: StoreMessage, *, channel: str
    ) -> None:
        self._sender, self._store_message, self._channel = sender, store_message, channel

    async def send_alert(
        self, run_view: SlackRunView, posted_messages: Mapping[str, PostedMessage]
    ) -> None:
        """Post in the area's channel what changed on a host, once."""
        if not run_view.drift:
            return
        slot = f"drift {run_view.drift[0].announced_at}"
        channel = run_view.channel or self._channel
        if not channel or slot in posted_messages:
            return
        message = render_drift_alert(run_view)
        location = await self._sender.try_post_message(
            channel, with_message_name(message, run_view, slot), what="about drift"
        )
        if location is not None:
            await self._store_message(run_view, slot, location, message)


def _format_candidate(candidate: Candidate, zone: str) -> str:
    if not candidate.at:
        return f"could not be read: {candidate.description}"
    at = times.format_timestamp(candidate.at, zone)
    line = f"{at}  {candidate.kind:<7}  {candidate.account or '-'}  {candidate.description}"
    return shorten_text(line, 140)


def _parse_number(typed: str) -> int:
    number = parse_number(typed)
    if number is None:
        raise InvalidRequestError(f"the number is missing: {_USAGE} lists them")
    return number
