"""The commands behind /keyturn."""

import difflib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bot.audit import change_log, events
from bot.auth import sessions
from bot.db import dedup, runs, search, search_words, stops
from bot.db.database import Database
from bot.model import request_form, resubmit, times
from bot.model.errors import (
    BreakGlassNotNeededError,
    InvalidRequestError,
    NotAllowed,
    TicketRequiredError,
)
from bot.model.request_form import InvalidValuesError, RequestSyntaxError, UnknownRunbookError
from bot.model.run import RequestOrigin, Run
from bot.model.sequence import UndoSelection
from bot.model.text import (
    capitalise_sentence,
    escape_to_one_line,
    format_count,
    format_sentence,
)
from bot.policy import Policy, PolicySource
from bot.policy.explain import parse_preview_question
from bot.queries import stop_reasons
from bot.queries.break_glass_rules import check_break_glass_reason
from bot.queries.preview import preview_request
from bot.queries.suggestions import RequestableRunbooks
from bot.service import KeyturnService
from bot.slack import handover, parsing, policy_commands, replies, storms, unfurls, watching
from bot.slack.blocks import Message
from bot.slack.buttons import is_reading
from bot.slack.changed_command import answer_changed_command
from bot.slack.delegation_command import DelegationCommands
from bot.slack.features import NO_FEATURES, ChatFeatures
from bot.slack.help_screen import HelpScreens
from bot.slack.parsing import TypedCommand, TypedText
from bot.slack.payloads import Account, SharedLinks
from bot.slack.plain_text import PlainTextAnswers
from bot.slack.run_facts import SlackRunViewBuilder
from bot.slack.run_forms import PendingPlan, create_pending_plan
from bot.slack.run_message import render_card
from bot.slack.suggestions import render_not_understood
from bot.slack.thread_commands import ThreadCommands
from connectors.errors import DomainError, UnknownHostError
from connectors.inventory import Inventory
from connectors.visible_text import quote_text
from runbooks import AnyRunbook, load_catalogue
from runbooks._catalogue import get_kind

_MAX_RUNS = 15
_EVERYTHING_WORDS = frozenset({"all", "everything"})
# Behind the word of a command, other than a run, a person or a runbook.
_COMMAND_ARGUMENTS = _EVERYTHING_WORDS | {"", "person", "to", "end"}


@dataclass(frozen=True)
class RequestedForm:
    """A form to open: of a runbook without values, of `again`, or of a suggested command."""

    runbook: type[AnyRunbook]
    resubmitted_run: int = 0
    """The run whose values the form contains; 0 if none."""
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """By field; the reason is "because"."""


CommandAnswer = Message | RequestedForm | PendingPlan | None


class SlackCommands:
    """Answers commands, with None if the card that follows is the answer.

    Attributes:
        requestable: what each person may request.
        help_screens: the first screen of each person.
    """

    def __init__(
        self,
        service: KeyturnService,
        database: Database,
        policies: PolicySource,
        view_builder: SlackRunViewBuilder,
        features: ChatFeatures = NO_FEATURES,
    ) -> None:
        self._service, self._database = service, database
        self._view_builder, self._policies = view_builder, policies
        self._handover_sections, self._showing = features.handover_sections, features.showing
        delegation_commands = DelegationCommands(service, database, policies)
        self._added_help = features.help
        self._command_list = replies.render_commands(features.help)
        self.requestable = RequestableRunbooks("slack")
        self._plain_text = PlainTextAnswers(database, self.requestable)
        self.help_screens = HelpScreens(database, self.requestable)
        self._threads = ThreadCommands(database, view_builder)
        # Any other first word belongs to a runbook.
        self._handlers: dict[str, Callable[[TypedCommand], CommandAnswer]] = {
            "": self._show_help,
            "help": self._show_help,
            "runs": self._list_runs,
            "run": self._show_run,
            "approve": self._approve_run,
            "deny": self._deny_run,
            "hold": self._hold_run,
            "question": self._ask_question,
            "answer": self._answer_question,
            "reassign": self._reassign_run,
            "undo": self._undo_run,
            "plan": self._request_plan,
            "again": lambda command: self.get_resubmit_form(command.rest, person=command.person),
            "withdraw": self._withdraw_run,
            "web": self._create_sign_in_reply,
            "can-i": self._preview_request,
            "break-glass": self._request_break_glass,
            "review": self._review_break_glass,
            "delegate": delegation_commands.answer_delegate_command,
            "delegations": delegation_commands.answer_delegate_command,
            "grant": delegation_commands.answer_grant_command,
            "grants": delegation_commands.answer_grant_command,
            "counter": delegation_commands.propose_values,
            "accept": delegation_commands.accept_proposal,
            "stop": self._stop_runs,
            "resume": self._resume_runs,
            "ban": self._ban_person,
            "unban": self._unban_person,
            "changed": lambda command: answer_changed_command(
                command, database, person_names=view_builder.get_person_names()
            ),
            "who": self._show_owners,
            "handover": self._show_handover,
            replies.PRIVATE_CHECK_WORD: self._request_private_check,
        }
        added = [words.build_handlers(service, database) for words in features.words]
        # None of them begins a sentence, as `stop` does.
        self._words_of_features = frozenset(word for handlers in added for word in handlers)
        for handlers in added:
            self._handlers |= handlers

    @property
    def command_words(self) -> Sequence[str]:
        """The first words that do not belong to a runbook."""
        return [word for word in self._handlers if word]

    def answer_command(
        self, text: str, *, person: str, policy: Policy, origin: RequestOrigin, zone: str = "UTC"
    ) -> CommandAnswer:
        """Run the command. Raises RequestSyntaxError, and what the service raises.

        What is no valid command is answered with the forms that it can mean.
        """
        command = TypedCommand(person, policy, origin, self._parse_text(text), zone)
        if command.typed_text.is_greeting:
            return self.help_screens.render(policy, person)
        try:
            return self._handlers.get(command.word, self._request_run)(command)
        except (RequestSyntaxError, InvalidRequestError) as refusal:
            if self._is_command(command):
                raise
            if isinstance(refusal, UnknownRunbookError):
                return self._suggest_or_explain(command, refusal)
            suggested = self._suggest(command, refusal)
            if suggested is None:
                raise
            return suggested

    def answer_message(
        self,
        text: str,
        *,
        person: str,
        policy: Policy,
        origin: RequestOrigin,
        zone: str = "UTC",
        thread: str = "",
    ) -> Message:
        """Answer a message to the bot: what reads is answered, the rest only suggested.

        Requests nothing. thread: timestamp of the first message of its thread, "" outside one.
        Raises RequestSyntaxError and InvalidRequestError.
        """
        plain = parsing.get_text_of_mention(text).removeprefix(replies.COMMAND)
        command = TypedCommand(person, policy, origin, self._parse_text(plain), zone)
        about_run = self._threads.answer(
            command.typed_text,
            channel=origin.channel,
            thread=thread,
            person=person,
            policy=policy,
        )
        if about_run is not None:
            return about_run
        if command.typed_text.is_greeting:
            return self.help_screens.render(policy, person)
        if self.is_reading(f"{command.word} {command.rest}".strip()):
            try:
                return self._answer_reading_command(command)
            except (RequestSyntaxError, InvalidRequestError) as refusal:
                return self._suggest_or_explain(command, refusal)
        return self._suggest_command(command)

    def is_reading(self, command: str) -> bool:
        """Return whether a command changes nothing, so that a click may run it."""
        return is_reading(command, self._showing)

    def _answer_reading_command(self, command: TypedCommand) -> Message:
        answer = self._handlers[command.word](command)
        if not isinstance(answer, Message):
            raise InvalidRequestError(f"type {replies.COMMAND} {command.typed_text.text}")
        return answer

    def _suggest_command(self, command: TypedCommand) -> Message:
        """Return the command that a message contains, with its form, or what it can mean."""
        typed_text = command.typed_text
        typed = " because ".join(filter(None, [typed_text.command_words, typed_text.reason]))
        if self._is_command(command):
            return replies.render_suggestion(typed, has_form=False)
        try:
            words = request_form.split_words(typed_text.command_words)
            runbook, values = request_form.find_runbook(words)
        except RequestSyntaxError as unknown:
            return self._suggest_or_explain(command, unknown)
        if not values:
            return replies.render_runbook_help(runbook)
        try:
            spelled, requests = self._parse_values(command, runbook, values)
        except InvalidValuesError as problem:
            return self._render_invalid_values(command, runbook, values, problem)
        except RequestSyntaxError as problem:
            return self._suggest_or_explain(command, problem)
        if (
            not spelled
            and request_form.clean_words(words, command.policy.inventory.hosts) != words
        ):
            reason = f" because {typed_text.reason}" if typed_text.reason else ""
            typed = f"{shlex.join(request_form.list_request_words(requests[0]))}{reason}"
        # A form has one host.
        return replies.render_suggestion(typed, has_form=not spelled)

    def _is_command(self, command: TypedCommand) -> bool:
        """Return whether a text is one of the commands, and not a sentence: `stop nginx`."""
        if command.word not in self._handlers:
            return False
        if command.word in self._words_of_features:
            return True
        first = (command.rest.split() or [""])[0].lower()
        people = command.policy.organisation.people
        is_about = first.removeprefix("@") in people or parsing.parse_number(first) is not None
        is_runbook = bool(first and _list_runbooks_with_prefix([first]))
        return is_about or is_runbook or first in _COMMAND_ARGUMENTS

    def _suggest(self, command: TypedCommand, refusal: DomainError) -> Message | None:
        """Return what a text can mean; None if nothing fits. refusal: why it is no command."""
        is_unknown = isinstance(refusal, UnknownRunbookError)
        return self._plain_text.suggest(
            command.typed_text,
            person=command.person,
            policy=command.policy,
            # What is spelled like it is of no use beside what means the same.
            notice="" if is_unknown else format_sentence(str(refusal)),
        )

    def _suggest_or_explain(self, command: TypedCommand, refusal: DomainError) -> Message:
        words = command.typed_text.command_words.split()
        family = _list_runbooks_with_prefix(words)
        if family:
            return replies.render_runbook_family(" ".join(words).lower(), family)
        notice = format_sentence(str(refusal))
        return self._suggest(command, refusal) or render_not_understood(notice)

    def record_links(self, links: SharedLinks) -> None:
        """Have links to runs unfurled."""
        unfurls.record_links(self._database, links, base_url=self._view_builder.base_url)

    def watch_run(self, number: int, *, person: str, user: str) -> Message:
        """Have a person notified when a run ends. Raises NoSuchRun, TooLate."""
        rights = self._view_builder.get_view_rights(person)
        with self._database.transaction() as tx:
            watching.add_watcher(tx, number, user=user, rights=rights)
        return replies.build_text_reply(f"You get a direct message when run {number} ends.")

    def show_each(self, leader: int, *, person: str, user: str) -> Message:
        """Send a person the cards of requests that share one. Raises TooLate."""
        rights = self._view_builder.get_view_rights(person)
        with self._database.transaction() as tx:
            answer = storms.ask_for_cards(tx, leader, user=user, rights=rights)
        return replies.build_text_reply(answer)

    def remember_access(self, account: Account) -> bool:
        """Record that an unknown person asks for access; return whether it is the first time."""
        with self._database.transaction() as tx:
            return dedup.remember_first(tx, f"slack access {account.team} {account.user}")

    def _parse_text(self, text: str) -> TypedText:
        if "<@" in text:
            people = self._view_builder.get_person_ids_by_account()
            text = parsing.replace_mentions(text, people)
        return parsing.parse_typed_text(text)

    def get_resubmit_form(self, typed_number: str, *, person: str) -> RequestedForm:
        """Return the form that requests a run again. Raises NoSuchRun and InvalidRequestError."""
        number, _ = parsing.parse_run_number(typed_number, "again")
        with self._database.reading(self._policies.get_policy().get_view_rights(person)) as tx:
            run = runs.get_run(tx, number)
        resubmit.check_resubmit(run)
        return RequestedForm(load_catalogue()[run.runbook], resubmitted_run=run.id)

    def get_typed_form(self, typed: str) -> RequestedForm:
        """Return the form with the valid values of a typed request. Raises RequestSyntaxError."""
        typed_text = parsing.split_reason(typed)
        words = request_form.split_words(typed_text.command_words)
        runbook, typed_values = request_form.find_runbook(words)
        values = request_form.get_valid_values(runbook, typed_values)
        reason = {"because": typed_text.reason} if typed_text.reason else {}
        return RequestedForm(runbook, values={**values, **reason})

    def _request_run(self, command: TypedCommand) -> CommandAnswer:
        typed = request_form.split_words(command.typed_text.command_words)
        family = _list_runbooks_with_prefix(typed)
        if family:
            return replies.render_runbook_family(" ".join(typed), family)
        runbook, values = self._find_runbook(command.word, typed)
        if not values:
            return RequestedForm(runbook)
        run = self._record_request(command, runbook, values)
        return replies.build_reply_if_ended(run) if isinstance(run, Run) else run

    def _request_plan(self, command: TypedCommand) -> CommandAnswer:
        """Plan a change, and show the plan to this person only."""
        typed = request_form.split_words(command.rest)
        if not typed:
            raise InvalidRequestError(
                f"the runbook is missing: type {replies.COMMAND} plan WORDS HOST"
            )
        runbook, values = self._find_runbook(typed[0], typed)
        if get_kind(runbook) == "check":
            raise InvalidRequestError(
                f"{runbook.words} is a check, which changes nothing and has no plan: type it "
                "without plan"
            )
        if not values:
            return RequestedForm(runbook)
        run = self._record_request(command, runbook, values, plan_only=True)
        if not isinstance(run, Run):
            return run
        return replies.build_reply_if_ended(run) or create_pending_plan(run)

    def _request_private_check(self, command: TypedCommand) -> CommandAnswer:
        """Request a check whose answer only this person reads."""
        if not command.rest:
            raise InvalidRequestError(
                "the check is missing: type "
                f"{replies.COMMAND} {replies.PRIVATE_CHECK_WORD} WORDS HOST"
            )
        runbook, values = request_form.find_runbook(request_form.split_words(command.rest))
        if not values:
            usage = request_form.format_usage(runbook)
            raise InvalidRequestError(
                f"values are missing: type {replies.COMMAND} {replies.PRIVATE_CHECK_WORD} {usage}"
            )
        if get_kind(runbook) != "check":
            raise InvalidRequestError(
                "only checks can be private: approvers have to see the card of a change. Type it "
                f"without {replies.PRIVATE_CHECK_WORD}"
            )
        run = self._record_request(command, runbook, values)
        if not isinstance(run, Run):
            return run
        return replies.build_reply_if_ended(run) or create_pending_plan(run)

    def _find_runbook(
        self, first: str, typed: Sequence[str]
    ) -> tuple[type[AnyRunbook], Sequence[str]]:
        """Return the runbook and its values; suggest the closest command if there is none."""
        try:
            return request_form.find_runbook(typed)
        except RequestSyntaxError:
            close = difflib.get_close_matches(first, self.command_words, 1, 0.75)
            if not close:
                raise
            raise InvalidRequestError(
                f"unknown command {quote_text(first)}: did you mean {replies.COMMAND} {close[0]}?"
            ) from None

    def _record_request(
        self,
        command: TypedCommand,
        runbook: type[AnyRunbook],
        values: Sequence[str],
        *,
        plan_only: bool = False,
    ) -> Run | Message:
        """Create the run, or return a message with what is missing."""
        values, ticket = parsing.split_ticket(values)
        if command.typed_text.find_reason_slip() != command.typed_text:
            raise InvalidRequestError("the word before a reason is spelled because")
        try:
            spelled, requests = self._parse_values(command, runbook, values)
        except InvalidValuesError as problem:
            return self._render_invalid_values(command, runbook, values, problem)
        return self._service.request_on_hosts(
            requests,
            command.build_terms(ticket=ticket, plan_only=plan_only),
            host_pattern=spelled,
        )

    def _parse_values(
        self, command: TypedCommand, runbook: type[AnyRunbook], values: Sequence[str]
    ) -> tuple[str, list[AnyRunbook]]:
        """Parse the values as they were typed, or else without the punctuation of a sentence."""
        tags = command.policy.inventory.tags
        try:
            return request_form.parse_request_for_hosts(runbook, values, tags)
        except RequestSyntaxError:
            cleaned = request_form.clean_words(values, tags)
            try:
                return request_form.parse_request_for_hosts(runbook, cleaned, tags)
            except RequestSyntaxError:
                pass
            raise

    def _render_invalid_values(
        self,
        command: TypedCommand,
        runbook: type[AnyRunbook],
        values: Sequence[str],
        problem: InvalidValuesError,
    ) -> Message:
        """Render what is wrong, with a form that has the values which are valid."""
        cleaned = request_form.clean_words(values, command.policy.inventory.tags)
        valid = request_form.get_valid_values(runbook, cleaned)
        words = [*runbook.words.split(), *(f"{name}={value}" for name, value in valid.items())]
        reason = f" because {escape_to_one_line(command.reason)}" if command.reason else ""
        return replies.render_invalid_values(runbook, problem, f"{shlex.join(words)}{reason}")

    def _request_break_glass(self, command: TypedCommand) -> Message:
        """Request break-glass, and return the link to confirm it: that needs a second factor."""
        reason = check_break_glass_reason(command.reason)
        if not command.rest:
            raise InvalidRequestError(
                "the runbook is missing: type "
                f"{replies.COMMAND} break-glass WORDS HOST because REASON"
            )
        if command.rest.removeprefix("#").isdecimal():
            number, _ = command.parse_run_number()
            after_refusal = ""
        else:
            runbook, values = request_form.find_runbook(request_form.split_words(command.rest))
            if not values:
                return replies.render_runbook_help(runbook)
            needs_ticket = ""
            try:
                run = self._record_request(command, runbook, values)
            except TicketRequiredError as error:
                # A plan needs no ticket, and break-glass starts what it shows.
                needs_ticket = f". {capitalise_sentence(str(error))}"
                run = self._record_request(command, runbook, values, plan_only=True)
            if not isinstance(run, Run):
                return run
            if run.is_ended:
                return replies.build_outcome_reply(run)
            number = run.id
            after_refusal = needs_ticket or f". Run {number} waits for approvals as usual"
        return self._announce_break_glass(command, number, reason, after_refusal)

    def _announce_break_glass(
        self, command: TypedCommand, number: int, reason: str, after_refusal: str
    ) -> Message:
        """Announce break-glass for a run, and return a link to its page.

        after_refusal: what becomes of the run where the rules refuse break-glass.
        """
        try:
            run = self._service.break_glass.request_break_glass(
                number, person=command.person, reason=reason
            )
        except NotAllowed as error:
            raise NotAllowed(f"{error}{after_refusal}") from None
        except BreakGlassNotNeededError as error:
            page = self._create_sign_in_link(command, next_path=f"/runs/{number}")
            return replies.render_page_link(capitalise_sentence(str(error)), page)
        return replies.render_break_glass_link(
            run, self._create_sign_in_link(command, next_path=f"/runs/{number}")
        )

    def _review_break_glass(self, command: TypedCommand) -> Message:
        number, findings = parsing.parse_run_number(command.text_after_word, command.word)
        self._service.break_glass.review_break_glass(
            number, person=command.person, findings=findings
        )
        return replies.build_text_reply(f"You reviewed run {number}.")

    def _show_help(self, command: TypedCommand) -> Message:
        if command.rest.lower() == "commands":
            return self._command_list
        if command.rest:
            return self._explain_words(request_form.split_words(command.rest))
        return self.help_screens.render(command.policy, command.person)

    def _explain_words(self, typed: Sequence[str]) -> Message:
        """Explain a runbook, the runbooks that begin with these words, or a command."""
        family = _list_runbooks_with_prefix(typed)
        if family:
            return replies.render_runbook_family(" ".join(typed), family)
        found = replies.render_command_help(typed[0], self._added_help) if typed else None
        return found or replies.render_runbook_help(
            self._find_runbook(typed[0] if typed else "", typed)[0]
        )

    def _list_runs(self, command: TypedCommand) -> Message:
        """List the newest runs, of one host or with a text: who cleared 203.0.113.9?"""
        typed = command.rest.split()
        known = command.policy.inventory
        host = next((word.lower() for word in typed if word.lower() in known.hosts), None)
        sought = " ".join(word for word in typed if word.lower() != host)
        wanted = search.RunFilter(host=host, text=search_words.parse_search(sought))
        with self._database.reading(command.view_rights) as tx:
            found = search.find_newest_runs(tx, wanted, most=_MAX_RUNS)
            decisions = runs.list_decisions_on(tx, [run.id for run in found])
            now = tx.now
        if not found and sought:
            unknown = _describe_unknown_host(known, typed)
            return replies.build_text_reply(f"No run contains {quote_text(sought)}{unknown}.")
        names = self._view_builder.get_person_names()
        notice = self._describe_stop_of_everything(command)
        return replies.render_run_list(
            found, decisions, now=now, person_names=names, notice=notice
        )

    def _show_run(self, command: TypedCommand) -> Message:
        number, _ = command.parse_run_number()
        return self._render_card(command, number)

    def _approve_run(self, command: TypedCommand) -> Message | None:
        number, rest = command.parse_run_number()
        digest, at, typed_time = [*rest.split(maxsplit=2), "", "", ""][:3]
        if not digest:
            return self._render_card(command, number)
        if len(digest) < 10:
            raise InvalidRequestError(
                f"{quote_text(digest.lower())} is not a plan: copy its ten characters from "
                f"Details. Type {replies.format_command_usage('approve')}"
            )
        if at and at.lower() != "at":
            raise InvalidRequestError(
                f"{quote_text(at)} is not expected behind the plan: type because and a reason, or "
                f"at and a time. For example: {replies.COMMAND} approve {number} {digest} at 22:00"
            )
        start_at = self._parse_start_time(command, typed_time) if at else None
        self._service.approve_run(
            number,
            person=command.person,
            digest=digest.lower(),
            reason=command.reason,
            start_at=start_at,
        )
        when = f" to start at {times.format_deadline(start_at)}" if start_at else ""
        return replies.build_text_reply(f"You approved run {number}{when}.")

    def _parse_start_time(self, command: TypedCommand, typed: str) -> int:
        with self._database.reading(command.view_rights) as tx:
            now = tx.now
        return times.parse_deadline(typed, now=now, zone=command.zone)

    def _hold_run(self, command: TypedCommand) -> Message | None:
        number, _ = command.parse_run_number()
        self._service.hold_run(number, person=command.person, reason=command.reason)
        return replies.build_text_reply(f"You held run {number}. It needs its approvals again.")

    def _deny_run(self, command: TypedCommand) -> Message | None:
        number, reason = _parse_run_and_text(command, "the reason")
        self._service.deny_run(number, person=command.person, reason=reason)
        return replies.build_text_reply(f"You denied run {number}.")

    def _ask_question(self, command: TypedCommand) -> Message:
        number, text = _parse_run_and_text(command, "the question")
        self._service.ask_question(number, person=command.person, text=text)
        return replies.build_text_reply(f"You asked about run {number}. It stays pending.")

    def _answer_question(self, command: TypedCommand) -> Message:
        number, text = _parse_run_and_text(command, "the answer")
        self._service.answer_question(number, person=command.person, text=text)
        return replies.build_text_reply(f"You answered about run {number}.")

    def _reassign_run(self, command: TypedCommand) -> Message:
        number, assignee = command.parse_run_number()
        if not assignee:
            usage = replies.format_command_usage("reassign")
            raise InvalidRequestError(f"the person is missing: type {usage}")
        assignee = assignee.removeprefix("@").lower()
        self._service.reassign_run(
            number, person=command.person, assignee=assignee, reason=command.reason
        )
        name = command.policy.get_person_name(assignee)
        return replies.build_text_reply(f"You assigned run {number} to {name}.")

    def _withdraw_run(self, command: TypedCommand) -> Message | None:
        number, _ = command.parse_run_number()
        self._service.withdraw_run(number, person=command.person)
        return replies.build_text_reply(f"You withdrew run {number}.")

    def _undo_run(self, command: TypedCommand) -> Message | None:
        words, ticket = parsing.split_ticket(command.rest.split())
        if words[:1] == ["person"]:
            return self._undo_person(command, " ".join(words[1:]), ticket)
        number, _ = parsing.parse_run_number(" ".join(words), command.word)
        run = self._service.request_undo(number, command.build_terms(ticket=ticket))
        return replies.build_reply_if_ended(run)

    def _undo_person(self, command: TypedCommand, typed: str, ticket: str) -> Message | None:
        """Handle `undo person NAME since TIME`. typed: what follows `person`."""
        person, _, since = typed.partition(" since ")
        if not since:
            raise InvalidRequestError(f"type {replies.COMMAND} undo person NAME since 2h")
        with self._database.reading(command.view_rights) as tx:
            now = tx.now
        start = times.parse_earliest_time(since, now=now, zone=command.zone)
        run = self._service.request_undo_of_selection(
            UndoSelection(person=person.strip(), since=start), command.build_terms(ticket=ticket)
        )
        return replies.build_reply_if_ended(run)

    def _stop_runs(self, command: TypedCommand) -> Message:
        """Stop one run by its number, or everything."""
        if command.rest.lower() in _EVERYTHING_WORDS:
            number = self._service.stop_everything(person=command.person, reason=command.reason)
            active = (
                format_count(number, "run was", plural="runs were") if number else "no run was"
            )
            return replies.build_text_reply(
                f"Everything is stopped; {active} active. Another person resumes with "
                f"{replies.COMMAND} resume because …"
            )
        run_number = parsing.parse_number(command.rest)
        if run_number is None:
            usage = f"{replies.COMMAND} stop"
            raise InvalidRequestError(
                f"the run number is missing: type {usage} N, or {usage} all because …"
            )
        run = self._service.stop_run(run_number, person=command.person, reason=command.reason)
        result = run.summary if run.is_ended else "It ends before its next step."
        return replies.build_text_reply(f"You stopped run {run.id}. {result}")

    def _resume_runs(self, command: TypedCommand) -> Message:
        self._service.resume_everything(
            person=command.person, reason=command.reason or command.rest
        )
        return replies.build_text_reply("Runs can start again. Request again what was stopped.")

    def _ban_person(self, command: TypedCommand) -> Message:
        who = _parse_person(command)
        self._service.ban_person(who, banned_by=command.person, reason=command.reason)
        name = self._policies.get_policy().get_person_name(who)
        return replies.build_text_reply(
            f"{name} is banned: their sessions have ended, and their API tokens are revoked for "
            f"good. Another person lifts the ban with {replies.COMMAND} unban {who} because …"
        )

    def _unban_person(self, command: TypedCommand) -> Message:
        who = _parse_person(command)
        self._service.unban_person(who, unbanned_by=command.person, reason=command.reason)
        name = self._policies.get_policy().get_person_name(who)
        return replies.build_text_reply(
            f"{name} is no longer banned and can sign in again. Their old API tokens stay "
            "revoked: they create new ones on the Tokens page."
        )

    def _describe_stop_of_everything(self, command: TypedCommand) -> str:
        """Return a sentence with who stopped everything and why; "" if nothing is stopped."""
        with self._database.reading(command.view_rights) as tx:
            stop = stops.get_stop_of_everything(tx)
        return (
            f"{stop_reasons.describe_stop_of_everything(stop, self._policies.get_policy())}."
            if stop
            else ""
        )

    def _preview_request(self, command: TypedCommand) -> Message:
        if not command.rest:
            raise InvalidRequestError(
                f"the runbook is missing: type {replies.COMMAND} can-i WORDS HOST, such as "
                "“service restart web1”"
            )
        policy = command.policy
        question = parse_preview_question(policy, request_form.split_words(command.rest))
        with self._database.reading(command.view_rights) as tx:
            preview = preview_request(tx, policy, question, person=command.person, source="slack")
        return replies.build_text_reply(" ".join(preview.describe()))

    def _show_handover(self, command: TypedCommand) -> Message:
        """Show what is open where the person is on duty, or else where they are an owner."""
        policy, person = command.policy, command.person
        known = policy.organisation.areas
        on_duty = [name for name in known if person in policy.list_on_duty(name)]
        areas = on_duty or [name for name, area in known.items() if person in area.owners]
        if not areas:
            raise InvalidRequestError("you are not on duty, and no area is yours")
        with self._database.reading(command.view_rights) as tx:
            facts = handover.read_handover(
                tx, policy, person, areas=areas, build_sections=self._handover_sections
            )
        return handover.render_handover(facts, self._view_builder.base_url)

    def _show_owners(self, command: TypedCommand) -> Message:
        policy, team = command.policy, self._view_builder.workspace
        if not command.rest:
            return policy_commands.render_area_owners(policy, command.person, workspace=team)
        found = policy_commands.answer_who_command(policy, command.rest, workspace=team)
        if found is None:
            raise InvalidRequestError(
                f"no host, area or person is called {quote_text(command.rest)}"
            )
        return found

    def _create_sign_in_reply(self, command: TypedCommand) -> Message:
        if not self._view_builder.base_url:
            raise InvalidRequestError(
                "the web pages have no address yet: an administrator sets KEYTURN_BASE_URL"
            )
        return replies.render_sign_in_link(self._create_sign_in_link(command))

    def _create_sign_in_link(self, command: TypedCommand, *, next_path: str = "") -> str:
        """Return a link that signs the person in once and opens a page."""
        with self._database.transaction() as tx:
            token = sessions.create_sign_in_link(tx, command.person)
            change_log.append_entry(
                tx, events.SignInLinkCreated(source="slack"), person=command.person
            )
        to = f"?next={next_path}" if next_path else ""
        return f"{self._view_builder.base_url}/sign-in/{token}{to}"

    def _render_card(self, command: TypedCommand, number: int) -> Message:
        with self._database.reading(command.view_rights) as tx:
            return render_card(self._view_builder.build_slack_run_view(tx, number), buttons=False)


def _parse_run_and_text(command: TypedCommand, what: str) -> tuple[int, str]:
    """Return a run and the text behind it, which may contain "because"."""
    number, text = parsing.parse_run_number(command.text_after_word, command.word)
    if not text:
        usage = replies.format_command_usage(command.word).replace(" N ", f" {number} ")
        raise InvalidRequestError(f"{what} is missing: type {usage}")
    return number, text


def _describe_unknown_host(inventory: Inventory, typed: Sequence[str]) -> str:
    """Return the error of an unknown host if only one word was typed; else ""."""
    if len(typed) > 1:
        return ""
    try:
        inventory[typed[0]]
    except UnknownHostError as unknown:
        return f", and {unknown}"
    return ""


def _list_runbooks_with_prefix(typed: Sequence[str]) -> list[type[AnyRunbook]]:
    """Return the runbooks that begin with these words; none if they name a runbook."""
    prefix = " ".join(typed).lower()
    if prefix in load_catalogue():
        return []
    return [one for words, one in load_catalogue().items() if words.startswith(f"{prefix} ")]


def _parse_person(command: TypedCommand) -> str:
    word = command.rest.removeprefix("@")
    if not word or " " in word:
        raise InvalidRequestError(
            f"the person is missing: type {replies.COMMAND} {command.word} PERSON because …"
        )
    return word.lower()
