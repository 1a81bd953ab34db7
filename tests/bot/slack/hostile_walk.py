"""Use every command, button and form of Slack once."""

import asyncio
import itertools
from collections.abc import Mapping
from html import escape
from typing import Any

from sqlalchemy import update

from bot.db import runs, tables
from bot.model.run import RequestOrigin, RequestTerms
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.slack import modals
from connectors.errors import CommandError, UnknownOutcomeError
from tests.bot.authenticator_app import enrol_and_step_up
from tests.bot.clock import MINUTE
from tests.bot.features.tables import collect
from tests.bot.slack import payloads
from tests.bot.slack.chat import Chat
from tests.bot.slack.hostile import BRIEF, HIDDEN, LOUD, SAID, forbid
from tests.ticket_system import require_unreachable_tickets
from tests.toy import SetSwitch

_numbers = itertools.count(1)


NO_RAID = (
    'forbid (principal, action == Action::"request", resource)\n'
    'when { context.runbook == "raid check" };\n'
)


class Walk:
    """Does all that can be done in chat. typed: what is free text, as Slack escapes it."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.typed = escape(LOUD, quote=False)

    async def whole(self) -> None:
        await self.words()
        await self.household()
        await self.requests()
        await self.decisions()
        await self.plans()
        await self.times()
        await self.mandates()
        await self.several_hosts()
        await self.storm()
        for walk in collect("CHAT_WALKS").values():
            await walk(self)
        await self.forms()
        await self.glass()
        await self.homes()
        await self.mentions()
        await self.threads()
        await self.access()
        await self.troubles()
        await self.brakes()
        await self.reasons()
        await self.signatures()
        await self.tickets()

    async def say(self, text: str, user: str = "U0DORA", channel: str = "C0OPS") -> None:
        text_sent = text.replace("SAID", self.typed).replace("BRIEF", escape(BRIEF, quote=False))
        await self.chat.type(text_sent, user, channel)
        # A change that cannot be undone shows its plan first.
        last = self.chat.slack.posted[-1:]
        shown = [one for one in last if one.seen_by and "submit" in one.buttons]
        for plan in shown if not text.startswith("plan ") else ():
            await self.chat.press("submit", user, message=plan)

    async def each(self, *typed: str, user: str = "U0OLGA") -> None:
        for text in typed:
            await self.say(text, user)

    async def words(self) -> None:
        """Type what is not understood, with free text wherever it is repeated."""
        hidden = escape(HIDDEN.replace("\n", " "), quote=False)
        await self.each(
            *("help", "help toy", "help SAID", "toy", "SAID", f"toy set lb1 {hidden} on"),
            *(
                "toy set 'SAID'",
                "help toy set",
                "toy set '&lt;!here&gt;_x_'",
                "toy set lb1 lamp on 'SAID'",
                "toy set lb1 'SAID",
                "web",
            ),
            *("run SAID", "approve SAID", "approve 1 SAID", "deny SAID", "undo SAID"),
            *("runs SAID", "who SAID", "can-i SAID", "can-i toy set 'SAID'", "can-i"),
            *("privately SAID", "privately toy show SAID", "help approve"),
            *("can-i toy set lb1", "changed 5 minutes ago 'SAID'", "changed SAID", "changed"),
            *("changed 5 minutes ago <!here>*x*", "changed 5 minutes ago &lt;!here&gt;*x*"),
            "changed 5 minutes ago &lt;!channel&gt;_x_",
            *("stop SAID", "ban SAID", "ban &lt;!here&gt;*x* because SAID", "review SAID"),
            *("delegate SAID", "delegate to SAID for 2 hours", "grant SAID", "counter SAID"),
            *("grant 'SAID' toy set lb* 5 an hour until 4h", "accept SAID"),
            *("break-glass SAID", "break-glass toy show lb1 because SAID", "withdraw SAID"),
        )

    async def household(self) -> None:
        await self.each("who", "who lb1", "who edge", "who adam")
        await self.say("handover", "U0OLGA")
        # Who comes on duty gets the handover.
        await self.chat.door.direct_notices.send_due()

    async def requests(self) -> None:
        """Ask for what succeeds, is refused, fails, waits elsewhere, is frozen or has no work."""
        await self.say("toy say lb1")
        await self.say("toy balk lb1")
        await self.say("toy echo lb1 'SAID' because SAID")
        await self.say("toy set lb1 lamp off because SAID")
        await self.say("toy echo lb2 'SAID' because SAID", channel="D0DORA")
        self.chat.slack.refuse("chat.postMessage", "not_in_channel")
        self.chat.slack.refuse("chat.postMessage", "not_in_channel")
        await self.say("toy set lb1 lamp on because SAID", channel="C0SECRET")
        await self.say("toy set web1 lamp on because SAID", channel="C0SECRET")
        await self.say("toy insist lb2 'SAID' because SAID")
        await self.say("toy insist lb2 much because SAID")
        await self.say("toy set nas1 lamp on because SAID")
        await self.say("toy echo lb* 'SAID' because SAID")
        await self.say("runs")
        await self.say("runs lb1")
        await self.say("changed 5 minutes ago &lt;!here&gt;,lb1")

    async def times(self) -> None:
        """Have a card show a request for a schedule."""
        timing = ScheduleTiming(BRIEF, parse_cron("@daily", "UTC"))
        self.chat.harness.service.request_on_hosts(
            [SetSwitch(host="lb2", name="lamp", value="on")],
            RequestTerms("dora", RequestOrigin("slack", channel="C0OPS"), LOUD, timing=timing),
            host_pattern="",
        )
        await self.chat.settle()
        run = self.find_newest("schedule")
        await self.say(f"withdraw {run.id}")

    async def decisions(self) -> None:
        """Remind, approve with a reason, run, follow up, undo, deny, counter and accept."""
        chat, service = self.chat, self.chat.harness.service
        run = self.find_newest("toy echo lb1")
        value = f"{run.id}:{run.short_digest}"
        await chat.press("watch", "U0STAN", message=chat.slack.posted[0], value=value)
        with chat.harness.database.transaction() as tx:
            runs.amend_run(tx, runs.lock_run(tx, run.id), pending_since=tx.now - 31 * MINUTE)
        service.advancer.remind_approvers()
        await chat.settle()
        await self.say(f"run {run.id}")
        await self.say(f"question {run.id} SAID", "U0OLGA")
        await self.say(f"run {run.id}")
        await self.homes()
        await self.say(f"answer {run.id} SAID")
        await self.say(f"reassign {run.id} adam because SAID", "U0OLGA")
        await self.say(f"run {run.id}")
        later = f"approve {run.id} {run.short_digest} at 2 hours because SAID"
        await self.say(later, "U0OLGA")
        await self.say(later, "U0ADAM")
        await self.say(f"hold {run.id} because SAID")
        await self.say(f"approve {run.id} {run.short_digest} because SAID", "U0OLGA")
        await self.say(f"approve {run.id} {run.short_digest}", "U0ADAM")
        with chat.harness.database.transaction() as tx:
            tx.sql.execute(update(tables.follow_up).values(next_at=tx.now))
        service.advancer.run_due_follow_ups()
        await chat.settle()
        await self.say(f"undo {run.id} because SAID")
        await self.each("undo person SAID", "undo person SAID since 2h", user="U0DORA")
        await self.each("undo person dora since SAID", "undo person olga since 1h", user="U0DORA")
        other = self.find_newest("toy insist lb2 *")
        await self.say(f"counter {other.id} what='SAID x' because SAID", "U0OLGA")
        await self.say(f"accept {other.id + 1} SAID")
        several = self.find_newest("toy echo lb*")
        await self.say(f"deny {several.id} SAID", "U0OLGA")
        await self.say(f"deny {several.id} SAID", "U0ADAM")
        await chat.settle()

    async def plans(self) -> None:
        """Plan first, by words and by a form; read commands, undo, and deny with a reason."""
        chat = self.chat
        await self.say("plan SAID")
        await self.say("plan toy set nas1 lamp on")
        long = self.find_newest("toy insist lb2 much")
        await self.say("plan toy echo lb2 'SAID y' because SAID")
        withdrawn = self.find_newest("toy echo lb2")
        value = f"{withdrawn.id}:{withdrawn.short_digest}"
        await chat.press("withdraw-plan", "U0DORA", message=chat.slack.posted[-1], value=value)
        service = chat.harness.service
        service.request_plan(long.id, person="dora", digest=long.digest)
        await chat.settle()
        await self.say("plan toy echo lb2 'SAID x' because SAID")
        run = self.find_newest("toy echo lb2")
        card = next(one for one in reversed(chat.slack.posted) if "deny" in one.buttons)
        for one in (run, long):
            value = f"{one.id}:{one.short_digest}"
            await chat.press("commands", "U0DORA", message=card, value=value)
        await chat.press("undo", "U0DORA", message=card, value=f"{run.id}:{run.short_digest}")
        await chat.press(
            "review-plan", "U0DORA", message=card, value=f"{run.id}:{run.short_digest}"
        )
        await chat.press("reassign", "U0OLGA", message=card)
        await chat.press(
            "approve-later", "U0OLGA", message=card, value=f"{long.id}:{long.short_digest}"
        )
        await chat.press("question", "U0OLGA", message=card)
        await chat.deny("U0STAN", LOUD, message=card)
        await chat.submit({"because": HIDDEN}, "U0OLGA")
        await chat.submit({"because": LOUD}, "U0OLGA")

    async def mandates(self) -> None:
        await self.each(
            *("delegations", "grants", "delegate to stan for 2 hours because SAID", "delegate"),
            *("grant dora toy echo lb* what='*O*' 5 an hour until 4h because SAID", "grants"),
        )
        await self.say("toy echo lb2 'SAID' because SAID")
        # A button opens the form of a command.
        shown = await self.chat.type("grants", "U0OLGA")
        rows = [one["elements"] for one in shown.json["blocks"] if one["type"] == "actions"]
        [end] = [one for row in rows for one in row]
        card = self.chat.slack.posted[0]
        await self.chat.press(end["action_id"], "U0OLGA", message=card, value=end["value"])
        await self.chat.submit({}, "U0OLGA")
        await self.each("delegate end 1", "grant end 1")

    async def several_hosts(self) -> None:
        """Have a change run on several hosts, which its card lists."""
        await self.say("toy echo lb* 'SAID t' because SAID")
        several = self.find_newest("toy echo lb*")
        for user in ("U0OLGA", "U0ADAM"):
            await self.say(f"approve {several.id} {several.short_digest}", user)
        await self.chat.settle()

    async def storm(self) -> None:
        """Have more requests of one kind than get cards of their own."""
        runbook = SetSwitch(host="lb2", name="lamp", value="on")
        for _ in range(11):
            await asyncio.to_thread(self.chat.harness.request, runbook, reason=LOUD)
        await self.chat.settle()
        card = next(one for one in self.chat.slack.posted if "show-each" in one.buttons)
        await self.chat.press("show-each", "U0OLGA", message=card)

    async def forms(self) -> None:
        """Open each form, look for options, hand in what does not fit and what does."""
        for words in ("toy echo", "toy tune", "toy show"):
            await self.say(words)
        opened = [name for name in self.chat.slack.views if name.startswith("V")][-3]
        values = {"host": "lb1"}
        await self._in_form("block_actions", opened, values, actions=[_chosen("lb1")])
        for typed in ("", LOUD[:40], HIDDEN[:8]):
            looked = {"block_id": "what", "action_id": modals.VALUE, "value": typed}
            await self._in_form("block_suggestion", opened, values, **looked)
        await self._in_form("view_submission", opened, values | {"what": SAID, "because": SAID})
        await self._in_form("view_submission", opened, values | {"what": SAID})
        given = {"host": "lb9" + LOUD, "what": "x"}
        await self._in_form("view_submission", opened, given)
        await self._in_form("view_submission", opened, values | {"what": LOUD, "because": LOUD})
        forbid(self.chat.harness, "toy tune")
        # What the rules forbid is said below a field too, in their own words.
        shut = [name for name in self.chat.slack.views if name.startswith("V")][-2]
        await self._in_form("view_submission", shut, values | {"name": "lamp", "because": "x"})
        await self.each("toy tune lb1 lamp", "toy tune")
        await self._chooser()

    async def glass(self) -> None:
        chat = self.chat
        app = enrol_and_step_up(chat.harness, "adam")
        await self.say("break-glass toy set web1 lamp on because SAID", "U0ADAM")
        run = self.find_newest("toy set web1")
        chat.harness.service.break_glass.activate_break_glass(
            run.id, person="adam", session=app.session, digest=run.digest, reason=LOUD
        )
        await chat.settle()
        await self.say(f"review {run.id} SAID", "U0OLGA")
        # A plan that needs no approval needs no break-glass either.
        await self.say("plan toy set lb1 fan on", "U0OLGA")
        shown = self.find_newest("toy set lb1")
        await self.say(f"break-glass {shown.id} because all customers see an error page", "U0OLGA")

    async def homes(self) -> None:
        for user in ("U0DORA", "U0OLGA", "U0STAN", "U0NOBODY"):
            raw = payloads.event(f"Ev{next(_numbers)}", user=user, tab="home")
            await self.chat.send(raw)
            await self.chat.settle()

    async def mentions(self) -> None:
        rules = self.chat.harness.policies.path / "policy.cedar"
        rules.write_text(f"{rules.read_text()}\n{NO_RAID}")
        for text in (
            *("SAID", "toy echo lb1 SAID because SAID", "toy SAID", "who SAID", "lb1", "???"),
            *(
                "qqqq *O*",
                "toy set lb1 -x because SAID",
                "zzz SAID",
                "raid of lb1",
                "ban dora because SAID",
                "switch name SAID on lb1",
                "echo lb1 - SAID",
            ),
        ):
            for user in ("U0DORA", "U0NOBODY"):
                typed = text.replace("SAID", SAID).replace("BRIEF", BRIEF)
                raw = payloads.mention(f"<@U0KEYTURN> {typed}", user)
                await self.chat.send(raw)
                await self.chat.settle()

    async def threads(self) -> None:
        """Write in the thread of a card."""
        cards = [one for one in self.chat.slack.posted if not one.thread and not one.seen_by]
        shown = [one for one in cards if one.blocks and one.blocks[0]["type"] == "header"]
        for card in (shown[0], shown[-1]):
            for text in ("why", "approve", "deny SAID", "again", "undo"):
                typed = f"<@U0KEYTURN> {text.replace('SAID', SAID)}"
                raw = payloads.mention(typed, "U0OLGA", thread_ts=card.ts, channel=card.channel)
                await self.chat.send(raw)
                await self.chat.settle()

    async def access(self) -> None:
        """Have an unknown person ask for access."""
        await self.chat.send(payloads.direct_message("help", "U0NOBODY"))
        await self.chat.settle()
        shown = next(one for one in self.chat.slack.posted if "ask-access" in one.buttons)
        await self.chat.press("ask-access", "U0NOBODY", message=shown)

    async def troubles(self) -> None:
        """Have hosts fail with words of theirs, and click what decides nothing."""
        fleet = self.chat.harness.fleet

        def fail(_host: str, _words: str = "") -> None:
            raise CommandError(SAID)

        fleet.before_send = fail
        await self.say("toy set lb2 lamp on because SAID", "U0OLGA")
        run = self.find_newest("toy set lb2")
        await self.say(f"approve {run.id} {run.short_digest} because SAID", "U0ADAM")

        def lose(_host: str, _words: str = "") -> None:
            raise UnknownOutcomeError(SAID)

        # Who owns the host is asked on the Home tab how it ended.
        fleet.before_send = lose
        await self.say("toy echo lb1 'SAID lost' because SAID")
        run = self.find_newest("toy echo lb1")
        await self.say(f"approve {run.id} {run.short_digest} because SAID", "U0OLGA")
        await self.homes()
        fleet.before_query = fail
        await self.say("toy say lb1")
        fleet.before_query = fleet.before_send = _nothing
        card = self.chat.slack.posted[0]
        for action, value in (("approve", LOUD), ("ask-0", LOUD), ("nothing", LOUD)):
            await self.chat.press(action, "U0OLGA", message=card, value=value)
        await self.say("toy show lb1", "U0NOBODY")
        raw = payloads.slash("", command="/other")
        await self.chat.send(raw)

    async def brakes(self) -> None:
        await self.each("stop all because SAID", "runs", user="U0ADAM")
        await self.say("toy set lb1 fan on because SAID")
        await self.each("resume because SAID", "ban stan because SAID", "unban stan because SAID")
        run = self.find_newest("toy")
        await self.say(f"stop {run.id} because SAID")

    async def reasons(self) -> None:
        """Ask where the rules want to know why an approval is given."""
        rules = self.chat.harness.policies.path / "policy.cedar"
        rules.write_text(rules.read_text().replace("@approvals", '@reason("required")@approvals'))
        await self.say("toy echo lb1 'again SAID' because SAID")

    # --- how ---

    async def signatures(self) -> None:
        """Request where the rules want signatures."""
        rules = self.chat.harness.policies.path / "policy.cedar"
        before = rules.read_text()
        rules.write_text(before.replace("@approvals", '@signed("both")@approvals'))
        await self.each("toy set lb1 lamp on because SAID", user="U0DORA")
        rules.write_text(before)

    async def tickets(self) -> None:
        """Have rules require a change ticket, and type one in a form and in words."""
        require_unreachable_tickets(self.chat.harness.policies.path)
        await self.each("toy set", "toy set lb1 lamp on ticket=SAID because SAID")

    def find_newest(self, request: str) -> Any:
        with self.chat.harness.database.reading() as tx:
            run_list = [runs.get_run(tx, one.id) for one in runs.list_unfinished(tx)] + _ended(tx)
        asked = [one for one in run_list if one.parent is None and one.title.startswith(request)]
        return max(asked, key=lambda one: one.id)

    async def _in_form(
        self, kind: str, name: str, values: Mapping[str, str], **other: Any
    ) -> dict[str, Any]:
        view = self.chat.slack.views[name]
        inputs = {b["block_id"]: b["element"] for b in view["blocks"] if "element" in b}
        state = {block: _filled(inputs[block], value) for block, value in values.items()}
        view_sent = {"id": name, "hash": "1.a", **view, "state": {"values": state}}
        payload = payloads.in_view(kind, view_sent, "U0DORA", **other)
        answer = await self.chat.send(payloads.interaction(payload))
        await self.chat.settle()
        return answer.json

    async def _chooser(self) -> None:
        payload = payloads.message_action("about-host", f"{SAID} lb1", "U0DORA")
        await self.chat.send(payloads.interaction(payload))
        await self.chat.settle()
        name = [one for one in self.chat.slack.views if one.startswith("V")][-1]
        await self._in_form("block_actions", name, {"host": "lb1"}, actions=[_chosen("lb1")])
        await self._in_form("view_submission", name, {"host": "lb1"})
        looked = {"block_id": "what-lb1", "action_id": "form-value", "value": "echo"}
        await self._in_form("block_suggestion", name, {}, **looked)
        await self._in_form("view_submission", name, {"host": "lb1", "what-lb1": "toy echo"})


def _nothing(_host: str, _words: str = "") -> None:
    """Let all be well."""


def _ended(tx: Any) -> list[Any]:
    numbers = tx.sql.exec_driver_sql("SELECT id FROM run").scalars()
    return [runs.get_run(tx, number) for number in numbers]


def _chosen(host: str) -> dict[str, Any]:
    option = {"text": {"type": "plain_text", "text": host}, "value": host}
    action = {"action_id": modals.HOST, "block_id": "host", "type": "static_select"}
    return action | {"selected_option": option, "action_ts": "1.1"}


def _filled(element: Mapping[str, Any], value: str) -> dict[str, Any]:
    state: dict[str, Any] = {"type": element["type"], "value": value}
    if element["type"].endswith("select"):
        option = {"text": {"type": "plain_text", "text": value}, "value": value}
        state = {"type": element["type"], "selected_option": option}
    return {element["action_id"]: state}


def everything_sent(chat: Chat) -> list[Any]:
    """Return all that was sent to Slack: calls with their arguments, answers, and files."""
    calls = [args for _, args in chat.slack.calls]
    return [*calls, *chat.acknowledged, *chat.slack.uploaded]
