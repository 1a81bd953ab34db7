"""`/keyturn drift`: what changed outside Keyturn, and the answers; and the message about it."""

from collections.abc import Callable, Mapping, Sequence

from bot.db.database import Database
from bot.features.drift import rows
from bot.features.drift.actions import DriftActions
from bot.features.drift.details import (
    DriftDetails,
    build_digest,
    describe_drift,
    list_announced_keys,
    read_details,
)
from bot.features.drift.rows import DriftKey
from bot.features.drift.state import Candidate
from bot.features.drift.watch import format_slot
from bot.model import times
from bot.model.drift_state import DRIFTED_STATES, DriftState
from bot.model.errors import InvalidRequestError
from bot.model.text import align_rows, format_count
from bot.service import KeyturnService
from bot.slack import replies
from bot.slack.blocks import (
    Element,
    Message,
    actions,
    bold,
    bullet_list,
    code,
    format_notification,
    link,
    preformatted,
    rich_text,
    rich_text_section,
    shorten_text,
)
from bot.slack.buttons import CommandButton, Missing, build_read_button
from bot.slack.features import AnswerCommand, ChatFeatures, ChatWords
from bot.slack.parsing import TypedCommand, parse_number, split_ticket
from bot.slack.run_notices import NoticeContext, RunNotice
from connectors.visible_text import quote_text

_MAX_LISTED, _MAX_ALERTED, _MAX_CANDIDATES = 20, 3, 15
_USAGE = f"{replies.COMMAND} drift"


_HELP = (
    ("drift [HOST|N]", "what changed outside Keyturn, and what may have changed it"),
    ("drift restore N because …", "request again what set a value"),
    ("drift adopt N because …", "accept the value on the host; nothing is sent"),
    ("drift expect N until TIME because …", "let a value vary for a while"),
    ("drift read HOST", "read a host now"),
)


def _build_handlers(service: KeyturnService, database: Database) -> Mapping[str, AnswerCommand]:
    return {"drift": DriftCommands(service, database).answer_drift_command}


def build_drift_alert(context: NoticeContext) -> RunNotice | None:
    """Return what changed outside Keyturn on the host of a run, for the channel of its area."""
    keys = list_announced_keys(context.tx, context.run)
    if not keys or keys[0].announced_at is None:
        return None
    drifted = [key for key in keys if key.state in DRIFTED_STATES]
    title = (
        f"{keys[0].host}: {format_count(len(drifted), 'value')} changed outside Keyturn"
        if drifted
        else f"{keys[0].host}: what had changed outside Keyturn was restored or accepted"
    )
    items = [
        [f"{shorten_text(_describe_announced(key), 400)}. ", code(f"{_USAGE} {key.id}")]
        for key in keys[:_MAX_ALERTED]
    ]
    more = len(keys) - _MAX_ALERTED
    items += [[f"and {more} more"]] if more > 0 else []
    address = f"{context.base_url}/drift?host={context.run.host}"
    page = [rich_text_section(link(address, "Open"))] if context.base_url else []
    shown = rich_text(rich_text_section(bold(title)), bullet_list(*items), *page)
    single = len(keys) == 1
    row = _build_buttons(keys[0]) if single else _build_show_buttons(drifted[:_MAX_ALERTED])
    message = Message(
        format_notification(title), [shown, *([actions("drift", *row)] if drifted else [])]
    )
    return RunNotice(format_slot(keys[0].announced_at), message, is_kept_current=True)


def _describe_announced(key: DriftKey) -> str:
    """Return a sentence about a value that changed outside Keyturn, and may be as set again."""
    if key.state is DriftState.AS_SET and key.expected_until is not None:
        return f"{key.name} may vary until {times.format_deadline(key.expected_until)}"
    if key.state is DriftState.AS_SET and key.adopted:
        return f"{key.name} was adopted: {key.set_value}"
    return describe_drift(key)


def _build_buttons(key: DriftKey) -> Sequence[Element]:
    """Return what people can do about a value that is not as it was set."""
    n, asks = key.id, Missing.TIME_AND_REASON
    return [
        CommandButton("Restore", f"drift restore {n}").build(n=0),
        CommandButton("Adopt", f"drift adopt {n}").build(n=1),
        CommandButton("Expect", f"drift expect {n}", asks).build(n=2),
    ]


def _build_show_buttons(keys: Sequence[DriftKey]) -> Sequence[Element]:
    """Return a button for each value, which shows what happened and what to do about it."""
    return [
        build_read_button(shorten_text(f"{key.host}: {key.name}", 60), f"drift {key.id}", n=n)
        for n, key in enumerate(keys)
    ]


CHAT = ChatFeatures(
    notices=[build_drift_alert],
    words=[ChatWords(_HELP, _build_handlers, frozenset({"drift"}))],
    handover_sections=[build_digest],
)


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
            keys = rows.list_keys(tx, host=name, most=_MAX_LISTED)
        return render_keys(keys)

    def _restore_value(self, command: TypedCommand, rest: str) -> Message | None:
        words, ticket = split_ticket(rest.split())
        run = self._service.bind(DriftActions).restore_value(
            _parse_number(" ".join(words)), command.build_terms(ticket=ticket)
        )
        return replies.build_reply_if_ended(run)

    def _adopt_value(self, command: TypedCommand, rest: str) -> Message:
        key = self._service.bind(DriftActions).adopt_value(
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
        key = self._service.bind(DriftActions).expect_value(
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
        count = self._service.bind(DriftActions).read_host_now(host, person=command.person)
        state = (
            f"{format_count(count, 'value')} to read, which takes some seconds"
            if count
            else "no value to read, because all were read in the last ten seconds or none is "
            "watched"
        )
        return replies.build_text_reply(f"{host}: {state}. The result: {_USAGE} {host}")


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
    listed = rich_text(
        rich_text_section(bold(title)),
        preformatted("\n".join(shorten_text(line, 140) for line in lines)),
        rich_text_section("Details: ", code(f"{_USAGE} N")),
    )
    buttons = _build_show_buttons([key for key in keys if key.state in DRIFTED_STATES][:3])
    row = [actions("drift", *buttons)] if buttons else []
    return Message(format_notification(title), [listed, *row])


def render_details(details: DriftDetails, zone: str) -> Message:
    """Show one value, and what happened on its host in the window."""
    key = details.key
    parts = [rich_text_section(bold(f"{key.host}: {key.state.label}"))]
    parts.append(rich_text_section(f"{describe_drift(key)}."))
    shown = [_format_candidate(one, zone) for one in details.candidates[:_MAX_CANDIDATES]]
    if key.state in DRIFTED_STATES:
        heading = f"What happened on {key.host} then (candidates, not a verdict):"
        parts.append(rich_text_section(heading))
        parts.append(preformatted("\n".join(shown) or "nothing that was recorded"))
    row = [actions("drift", *_build_buttons(key))] if key.state in DRIFTED_STATES else []
    return Message(format_notification(describe_drift(key)), [rich_text(*parts), *row])


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
