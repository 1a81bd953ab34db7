"""Commands: what may stand behind /keyturn, and what each does."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.audit import change_log
from bot.auth import sessions
from bot.db import runs, search, search_words
from bot.db.database import Database
from bot.model import request_form
from bot.model.request_form import InvalidValues, NotUnderstood
from bot.model.run import Origin, Run
from bot.model.view_rights import Sight
from bot.policy import Policy
from bot.policy.explain import parse_question
from bot.service import Workflow
from bot.slack import parsing, replies, who_command
from bot.slack.blocks import Message
from bot.slack.changed_command import changed
from bot.slack.delegation_command import Mandates
from bot.slack.parsing import TypedText
from bot.slack.run_facts import Stories
from bot.slack.run_message import render_card
from bot.slack.schedule_command import Timetables, Typed
from bot.slack.stop_command import Brakes
from bot.workflow import resubmit
from bot.workflow.approvals import NotAllowed
from bot.workflow.break_glass import check_reason
from bot.workflow.context import Policies
from bot.workflow.form_options import list_requestable_hosts
from bot.workflow.preview import preview_request
from bot.workflow.requests import InvalidRequest
from connectors.command import quote_text
from connectors.errors import UnknownHostError
from connectors.inventory import Inventory
from runbooks import AnyRunbook, load_catalogue
from runbooks._catalogue import get_kind

_NEWEST = 15


@dataclass(frozen=True)
class Asked:
    """What somebody typed, and where. policy: the one that knows them.

    zone: the one that Slack shows them times in.
    """

    person: str
    policy: Policy
    origin: Origin
    said: TypedText
    zone: str = "UTC"

    @property
    def sight(self) -> Sight:
        """What they may view."""
        return self.policy.sight(self.person)


@dataclass(frozen=True)
class Blank:
    """A form is opened: of a runbook that was named without a value, or to ask again.

    again: the run whose values it is filled in with; 0 if none.
    """

    runbook: type[AnyRunbook]
    again: int = 0


class Commands:
    """Answers commands. None as answer: the card that follows says it all."""

    def __init__(
        self, workflow: Workflow, database: Database, policies: Policies, stories: Stories
    ) -> None:
        self._workflow, self._database = workflow, database
        self._stories, self._policies = stories, policies
        self._timetables = Timetables(workflow, database, policies)
        mandates = Mandates(workflow, database, policies)
        self._brakes = brakes = Brakes(workflow, database, policies)
        # Words about runs. Any other words are a runbook's.
        self._about_runs: Mapping[str, Callable[[Asked], Message | Blank | None]] = {
            "": self._help,
            "help": self._help,
            "runs": self._runs,
            "run": self._run,
            "approve": self._approve,
            "deny": self._deny,
            "undo": self._undo,
            "again": lambda asked: self.again(
                asked.said.rest.partition(" ")[0], person=asked.person
            ),
            "withdraw": self._withdraw,
            "web": self._web,
            "can-i": self._can_i,
            "break-glass": self._break_glass,
            "review": self._review,
            "delegate": lambda asked: mandates.delegate(asked.person, asked.said, asked.zone),
            "delegations": lambda asked: mandates.delegate(asked.person, asked.said, asked.zone),
            "grant": lambda asked: mandates.grant(asked.person, asked.said, asked.zone),
            "grants": lambda asked: mandates.grant(asked.person, asked.said, asked.zone),
            "counter": lambda asked: mandates.counter(asked.person, asked.said),
            "accept": lambda asked: mandates.accept(asked.person, asked.said),
            "stop": lambda asked: brakes.stop(asked.person, asked.said),
            "resume": lambda asked: brakes.resume(asked.person, asked.said),
            "ban": lambda asked: brakes.ban(asked.person, asked.said),
            "unban": lambda asked: brakes.unban(asked.person, asked.said),
            "changed": lambda asked: changed(
                self._database,
                asked.sight,
                asked.said.rest,
                asked.zone,
                names=self._stories.people(),
            ),
            "schedule": self._schedule,
            "freeze": self._freezes,
            "freezes": self._freezes,
            "who": self._who,
            "schedules": lambda asked: self._timetables.listing(asked.person),
            replies.PRIVATELY: self._privately,
        }

    @property
    def words(self) -> Sequence[str]:
        """The first words of what is no runbook."""
        return [word for word in self._about_runs if word]

    def answer(
        self, text: str, *, person: str, policy: Policy, origin: Origin, zone: str = "UTC"
    ) -> Message | Blank | None:
        """Do what was typed. Raises what the workflow raises, and forms.NotUnderstood."""
        plain = parsing.replace_mentions(text, self._stories.accounts()) if "<@" in text else text
        asked = Asked(person, policy, origin, parsing.parse_typed_text(plain), zone)
        return self._about_runs.get(asked.said.first, self._ask)(asked)

    def again(self, typed: str, *, person: str) -> Blank:
        """Return the form that asks again. typed: the run's number. Raises NoSuchRun and Unfit."""
        with self._database.reading(self._policies.current().sight(person)) as tx:
            run = runs.get_run(tx, _numbered(typed, "again"))
        resubmit.check_resubmit(run)
        return Blank(load_catalogue()[run.words], again=run.id)

    def _ask(self, asked: Asked) -> Message | Blank | None:
        typed = request_form.split_words(asked.said.words)
        family = _family(typed)
        if family:
            return replies.family(" ".join(typed), family)
        runbook, values = self._found(asked.said.first, typed)
        if not values:
            return Blank(runbook)
        run = self._requested(asked)
        if not isinstance(run, Run):
            return run
        return replies.reply_text(f"{run.title}: {run.summary}") if run.over else None

    def _privately(self, asked: Asked) -> Message | Blank | None:
        """Ask for a check; its answer goes where only this person reads it."""
        if not asked.said.rest:
            raise InvalidRequest(
                f"which check? Type {replies.COMMAND} {replies.PRIVATELY} WORDS HOST"
            )
        runbook, values = request_form.find_runbook(request_form.split_words(asked.said.rest))
        if not values:
            usage = request_form.format_usage(runbook)
            raise InvalidRequest(f"say all of it: {replies.COMMAND} {replies.PRIVATELY} {usage}")
        if get_kind(runbook) != "check":
            raise InvalidRequest(
                "only a check is answered to you alone: others approve a change, so its card is "
                f"for everybody. Type it without {replies.PRIVATELY}"
            )
        return self._ask(replace(asked, said=TypedText(asked.said.rest, asked.said.reason)))

    def _found(self, first: str, typed: Sequence[str]) -> tuple[type[AnyRunbook], Sequence[str]]:
        """Return the runbook that is meant and its values; of other commands, the nearest."""
        try:
            return request_form.find_runbook(typed)
        except NotUnderstood:
            close = difflib.get_close_matches(first, self.words, 1, 0.75)
            if not close:
                raise
            raise InvalidRequest(
                f"there is no {quote_text(first)}: did you mean {replies.COMMAND} {close[0]}?"
            ) from None

    def _requested(self, asked: Asked) -> Run | Message:
        """Record what was asked for; or say what is missing."""
        runbook, values = request_form.find_runbook(request_form.split_words(asked.said.words))
        if not values:
            return replies.about(runbook)
        try:
            spelled, requests = request_form.parse_for_hosts(
                runbook, values, asked.policy.inventory.tags
            )
        except InvalidValues as problem:
            return replies.misfit(runbook, problem)
        return self._record(asked, spelled, requests)

    def _record(self, asked: Asked, spelled: str, requests: Sequence[AnyRunbook]) -> Run:
        person, origin, reason = asked.person, asked.origin, asked.said.reason
        if spelled:
            return self._workflow.ask_all(
                requests, spelled=spelled, person=person, origin=origin, reason=reason
            )
        return self._workflow.ask(requests[0], person=person, origin=origin, reason=reason)

    def _break_glass(self, asked: Asked) -> Message:
        """Ask, and say where the glass is broken: that takes more than chat."""
        why = check_reason(asked.said.reason)
        if not asked.said.rest:
            raise InvalidRequest(
                f"what for? Type {replies.COMMAND} break-glass WORDS HOST because REASON"
            )
        if asked.said.rest.removeprefix("#").isdecimal():
            number, _ = _number(asked)
        else:
            run = self._requested(replace(asked, said=TypedText(asked.said.rest, why)))
            if not isinstance(run, Run):
                return run
            if run.over:
                return replies.reply_text(f"{run.title}: {run.summary}")
            number = self._wanted(run, asked.person, why)
            return replies.to_the_glass(number, self._way_in(asked, onward=f"/runs/{number}"))
        self._workflow.breaking.want(number, person=asked.person, reason=why)
        return replies.to_the_glass(number, self._way_in(asked, onward=f"/runs/{number}"))

    def _wanted(self, run: Run, person: str, why: str) -> int:
        """Note that glass is to be broken for what was just asked for, and return its number."""
        try:
            return self._workflow.breaking.want(run.id, person=person, reason=why).id
        except NotAllowed as refused:
            raise NotAllowed(f"{refused}. Run {run.id} waits for its approvals as usual") from None

    def _review(self, asked: Asked) -> Message:
        number, rest = _number(asked)
        said = " because ".join(part for part in (rest, asked.said.reason) if part)
        self._workflow.breaking.review(number, person=asked.person, words=said)
        return replies.reply_text(f"You reviewed run {number}.")

    def _help(self, asked: Asked) -> Message:
        if asked.said.rest:
            return self._explained(request_form.split_words(asked.said.rest))
        with self._database.reading(asked.sight) as tx:
            now = tx.now
        return replies.overview(
            [
                runbook
                for runbook in load_catalogue().values()
                if _may_ask(asked.policy, asked.person, runbook, now=now)
            ]
        )

    def _explained(self, typed: Sequence[str]) -> Message:
        """Explain a runbook, those that begin with these words, or a word that is built in."""
        family = _family(typed)
        if family:
            return replies.family(" ".join(typed), family)
        found = replies.builtin(typed[0]) if typed else None
        return found or replies.about(self._found(typed[0] if typed else "", typed)[0])

    def _runs(self, asked: Asked) -> Message:
        """List the newest on a host, or with some words in them: who cleared 203.0.113.9?"""
        typed = asked.said.rest.split()
        known = asked.policy.inventory
        host = next((word.lower() for word in typed if word.lower() in known.hosts), None)
        sought = " ".join(word for word in typed if word.lower() != host)
        wanted = search.RunFilter(host=host, text=search_words.parse_search(sought))
        with self._database.reading(asked.sight) as tx:
            found = search.find_newest_runs(tx, wanted, most=_NEWEST)
            votes = runs.list_votes_on(tx, [run.id for run in found])
            now = tx.now
        if not found and sought:
            raise InvalidRequest(
                f"no run tells of {quote_text(sought)}{_nor_a_host(known, typed)}"
            )
        names = self._stories.people()
        above = self._brakes.standing()
        return replies.listing(found, votes, now=now, names=names, above=above)

    def _run(self, asked: Asked) -> Message:
        number, _ = _number(asked)
        return self._card(asked, number)

    def _approve(self, asked: Asked) -> Message | None:
        number, rest = _number(asked)
        digest = rest.lower()
        if not digest:
            return self._card(asked, number)
        if len(digest) < 10:
            raise InvalidRequest(
                f"{quote_text(digest)} is no plan: give the ten digits that the card shows. Type "
                f"{replies.usage_of('approve')}"
            )
        self._workflow.approve(
            number, person=asked.person, digest=digest, reason=asked.said.reason
        )
        return replies.reply_text(f"You approved run {number}.")

    def _deny(self, asked: Asked) -> Message | None:
        number, rest = _number(asked)
        reason = " because ".join(part for part in (rest, asked.said.reason) if part)
        if not reason:
            raise InvalidRequest(
                f"say why, so that the asker knows: type {replies.COMMAND} deny {number} REASON"
            )
        self._workflow.deny(number, person=asked.person, reason=reason)
        return replies.reply_text(f"You denied run {number}.")

    def _withdraw(self, asked: Asked) -> Message | None:
        number, _ = _number(asked)
        self._workflow.withdraw(number, person=asked.person)
        return replies.reply_text(f"You withdrew run {number}.")

    def _undo(self, asked: Asked) -> Message | None:
        number, _ = _number(asked)
        run = self._workflow.undo(
            number, person=asked.person, origin=asked.origin, reason=asked.said.reason
        )
        return replies.reply_text(f"{run.title}: {run.summary}") if run.over else None

    def _can_i(self, asked: Asked) -> Message:
        if not asked.said.rest:
            raise InvalidRequest(
                f"what would you ask for? Type {replies.COMMAND} can-i WORDS HOST, with words "
                "and a host such as “service restart web1”"
            )
        policy = asked.policy
        meant = parse_question(policy, request_form.split_words(asked.said.rest))
        with self._database.reading(asked.sight) as tx:
            seen = preview_request(tx, policy, meant, person=asked.person, door="slack")
        return replies.reply_text(" ".join(seen.sentences()))

    def _schedule(self, asked: Asked) -> Message | None:
        return self._timetables.answer(Typed(asked.person, asked.origin, asked.said))

    def _freezes(self, asked: Asked) -> Message:
        with self._database.reading(asked.sight) as tx:
            return who_command.freezes(asked.policy, now=tx.now)

    def _who(self, asked: Asked) -> Message:
        policy, team = asked.policy, self._stories.team
        if not asked.said.rest:
            return who_command.areas(policy, asked.person, team=team)
        found = who_command.who(policy, asked.said.rest, team=team)
        if found is None:
            raise InvalidRequest(f"there is no host, area or person {quote_text(asked.said.rest)}")
        return found

    def _web(self, asked: Asked) -> Message:
        if not self._stories.base_url:
            raise InvalidRequest(
                "the web pages have no address yet: an administrator sets KEYTURN_BASE_URL"
            )
        return replies.way_in(self._way_in(asked))

    def _way_in(self, asked: Asked, *, onward: str = "") -> str:
        """Return a link that signs in once, and leads on to a page."""
        with self._database.transaction() as tx:
            token = sessions.create_link(tx, asked.person)
            change_log.append_entry(tx, "link made", person=asked.person, door="slack")
        to = f"?next={onward}" if onward else ""
        return f"{self._stories.base_url}/sign-in/{token}{to}"

    def _card(self, asked: Asked, number: int) -> Message:
        with self._database.reading(asked.sight) as tx:
            return render_card(self._stories.of(tx, number), buttons=False)


def _number(asked: Asked) -> tuple[int, str]:
    """Return the run's number and what stands behind it."""
    first, rest = [*asked.said.rest.split(maxsplit=1), "", ""][:2]
    return _numbered(first, asked.said.first), rest.strip()


def _numbered(typed: str, word: str) -> int:
    digits = typed.removeprefix("#")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        raise InvalidRequest(f"which run? Type {replies.usage_of(word)}")
    return int(digits)


def _nor_a_host(known: Inventory, typed: Sequence[str]) -> str:
    """Say so where the only word that was typed may have been meant as a host's name."""
    if len(typed) > 1:
        return ""
    try:
        known[typed[0]]
    except UnknownHostError as unknown:
        return f", and {unknown}"
    return ""


def _family(typed: Sequence[str]) -> list[type[AnyRunbook]]:
    """Return the runbooks that begin with all of these words; none if the words name one."""
    said = " ".join(typed).lower()
    if said in load_catalogue():
        return []
    return [one for words, one in load_catalogue().items() if words.startswith(f"{said} ")]


def _may_ask(policy: Policy, person: str, runbook: type[AnyRunbook], *, now: int) -> bool:
    """Return whether there is a host that this person may have it done on."""
    found = list_requestable_hosts(policy, runbook, person=person, door="slack", now=now)
    return next(found, None) is not None
