"""Commands: what may stand behind /keyturn, and what each does."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.audit import change_log
from bot.auth import sessions
from bot.db import runs, search, search_words
from bot.db.database import Database
from bot.model import request_form
from bot.model.errors import InvalidRequestError, NotAllowed
from bot.model.request_form import InvalidValuesError, RequestSyntaxError
from bot.model.run import RequestOrigin, Run
from bot.model.view_rights import ViewRights
from bot.policy import Policy, PolicySource
from bot.policy.explain import parse_preview_question
from bot.service import Workflow
from bot.slack import parsing, replies, who_command
from bot.slack.blocks import Message
from bot.slack.changed_command import answer_changed_command
from bot.slack.delegation_command import DelegationCommands
from bot.slack.parsing import TypedText
from bot.slack.run_facts import SlackRunViewBuilder
from bot.slack.run_message import render_card
from bot.slack.schedule_command import ScheduleCommands, TypedScheduleCommand
from bot.slack.stop_command import StopCommands
from bot.workflow import resubmit
from bot.workflow.break_glass import check_break_glass_reason
from bot.workflow.form_options import list_requestable_hosts
from bot.workflow.preview import preview_request
from connectors.command import quote_text
from connectors.errors import UnknownHostError
from connectors.inventory import Inventory
from runbooks import AnyRunbook, load_catalogue
from runbooks._catalogue import get_kind

_MAX_RUNS = 15


@dataclass(frozen=True)
class TypedCommand:
    """What somebody typed, and where. policy: the one that knows them.

    zone: the one that Slack shows them times in.
    """

    person: str
    policy: Policy
    origin: RequestOrigin
    typed_text: TypedText
    zone: str = "UTC"

    @property
    def view_rights(self) -> ViewRights:
        """What they may view."""
        return self.policy.get_view_rights(self.person)


@dataclass(frozen=True)
class RequestedForm:
    """A form is opened: of a runbook that was named without a value, or to ask again.

    again: the run whose values it is filled in with; 0 if none.
    """

    runbook: type[AnyRunbook]
    resubmitted_run: int = 0


class SlackCommands:
    """Answers commands. None as answer: the card that follows says it all."""

    def __init__(
        self,
        workflow: Workflow,
        database: Database,
        policies: PolicySource,
        stories: SlackRunViewBuilder,
    ) -> None:
        self._workflow, self._database = workflow, database
        self._view_builder, self._policies = stories, policies
        self._schedule_commands = ScheduleCommands(workflow, database, policies)
        mandates = DelegationCommands(workflow, database, policies)
        self._stop_commands = brakes = StopCommands(workflow, database, policies)
        # Words about runs. Any other words are a runbook's.
        self._handlers: Mapping[str, Callable[[TypedCommand], Message | RequestedForm | None]] = {
            "": self._show_help,
            "help": self._show_help,
            "runs": self._list_runs,
            "run": self._show_run,
            "approve": self._approve_run,
            "deny": self._deny_run,
            "undo": self._undo_run,
            "again": lambda asked: self.get_resubmit_form(
                asked.typed_text.words_after_first.partition(" ")[0], person=asked.person
            ),
            "withdraw": self._withdraw_run,
            "web": self._create_sign_in_reply,
            "can-i": self._preview_request,
            "break-glass": self._request_break_glass,
            "review": self._review_break_glass,
            "delegate": lambda asked: mandates.answer_delegate_command(
                asked.person, asked.typed_text, asked.zone
            ),
            "delegations": lambda asked: mandates.answer_delegate_command(
                asked.person, asked.typed_text, asked.zone
            ),
            "grant": lambda asked: mandates.answer_grant_command(
                asked.person, asked.typed_text, asked.zone
            ),
            "grants": lambda asked: mandates.answer_grant_command(
                asked.person, asked.typed_text, asked.zone
            ),
            "counter": lambda asked: mandates.propose_values(asked.person, asked.typed_text),
            "accept": lambda asked: mandates.accept_proposal(asked.person, asked.typed_text),
            "stop": lambda asked: brakes.answer_stop_command(asked.person, asked.typed_text),
            "resume": lambda asked: brakes.answer_resume_command(asked.person, asked.typed_text),
            "ban": lambda asked: brakes.answer_ban_command(asked.person, asked.typed_text),
            "unban": lambda asked: brakes.answer_unban_command(asked.person, asked.typed_text),
            "changed": lambda asked: answer_changed_command(
                self._database,
                asked.view_rights,
                asked.typed_text.words_after_first,
                asked.zone,
                person_names=self._view_builder.get_person_names(),
            ),
            "schedule": self._answer_schedule_command,
            "freeze": self._list_freezes,
            "freezes": self._list_freezes,
            "who": self._show_owners,
            "schedules": lambda asked: self._schedule_commands.list_schedules(asked.person),
            replies.PRIVATE_CHECK_WORD: self._request_private_check,
        }

    @property
    def command_words(self) -> Sequence[str]:
        """The first words of what is no runbook."""
        return [word for word in self._handlers if word]

    def answer_command(
        self, text: str, *, person: str, policy: Policy, origin: RequestOrigin, zone: str = "UTC"
    ) -> Message | RequestedForm | None:
        """Do what was typed. Raises what the workflow raises, and forms.NotUnderstood."""
        plain = (
            parsing.replace_mentions(text, self._view_builder.get_person_ids_by_account())
            if "<@" in text
            else text
        )
        asked = TypedCommand(person, policy, origin, parsing.parse_typed_text(plain), zone)
        return self._handlers.get(asked.typed_text.first_word, self._request_run)(asked)

    def get_resubmit_form(self, typed_number: str, *, person: str) -> RequestedForm:
        """Return the form that asks again. typed: the run's number. Raises NoSuchRun and Unfit."""
        with self._database.reading(self._policies.get_policy().get_view_rights(person)) as tx:
            run = runs.get_run(tx, _parse_number(typed_number, "again"))
        resubmit.check_resubmit(run)
        return RequestedForm(load_catalogue()[run.runbook], resubmitted_run=run.id)

    def _request_run(self, asked: TypedCommand) -> Message | RequestedForm | None:
        typed = request_form.split_words(asked.typed_text.command_words)
        family = _list_runbooks_with_prefix(typed)
        if family:
            return replies.render_runbook_family(" ".join(typed), family)
        runbook, values = self._find_runbook(asked.typed_text.first_word, typed)
        if not values:
            return RequestedForm(runbook)
        run = self._record_request(asked)
        if not isinstance(run, Run):
            return run
        return replies.build_text_reply(f"{run.title}: {run.summary}") if run.is_ended else None

    def _request_private_check(self, asked: TypedCommand) -> Message | RequestedForm | None:
        """Ask for a check; its answer goes where only this person reads it."""
        if not asked.typed_text.words_after_first:
            raise InvalidRequestError(
                f"which check? Type {replies.COMMAND} {replies.PRIVATE_CHECK_WORD} WORDS HOST"
            )
        runbook, values = request_form.find_runbook(
            request_form.split_words(asked.typed_text.words_after_first)
        )
        if not values:
            usage = request_form.format_usage(runbook)
            raise InvalidRequestError(
                f"say all of it: {replies.COMMAND} {replies.PRIVATE_CHECK_WORD} {usage}"
            )
        if get_kind(runbook) != "check":
            raise InvalidRequestError(
                "only a check is answered to you alone: others approve a change, so its card is "
                f"for everybody. Type it without {replies.PRIVATE_CHECK_WORD}"
            )
        return self._request_run(
            replace(
                asked,
                typed_text=TypedText(asked.typed_text.words_after_first, asked.typed_text.reason),
            )
        )

    def _find_runbook(
        self, first: str, typed: Sequence[str]
    ) -> tuple[type[AnyRunbook], Sequence[str]]:
        """Return the runbook that is meant and its values; of other commands, the nearest."""
        try:
            return request_form.find_runbook(typed)
        except RequestSyntaxError:
            close = difflib.get_close_matches(first, self.command_words, 1, 0.75)
            if not close:
                raise
            raise InvalidRequestError(
                f"there is no {quote_text(first)}: did you mean {replies.COMMAND} {close[0]}?"
            ) from None

    def _record_request(self, asked: TypedCommand) -> Run | Message:
        """Record what was asked for; or say what is missing."""
        runbook, values = request_form.find_runbook(
            request_form.split_words(asked.typed_text.command_words)
        )
        if not values:
            return replies.render_runbook_help(runbook)
        try:
            spelled, requests = request_form.parse_request_for_hosts(
                runbook, values, asked.policy.inventory.tags
            )
        except InvalidValuesError as problem:
            return replies.render_invalid_values(runbook, problem)
        return self._create_run(asked, spelled, requests)

    def _create_run(
        self, asked: TypedCommand, host_pattern: str, requests: Sequence[AnyRunbook]
    ) -> Run:
        person, origin, reason = asked.person, asked.origin, asked.typed_text.reason
        if host_pattern:
            return self._workflow.request_fanout_run(
                requests, host_pattern=host_pattern, person=person, origin=origin, reason=reason
            )
        return self._workflow.request_run(requests[0], person=person, origin=origin, reason=reason)

    def _request_break_glass(self, asked: TypedCommand) -> Message:
        """Ask, and say where the glass is broken: that takes more than chat."""
        why = check_break_glass_reason(asked.typed_text.reason)
        if not asked.typed_text.words_after_first:
            raise InvalidRequestError(
                f"what for? Type {replies.COMMAND} break-glass WORDS HOST because REASON"
            )
        if asked.typed_text.words_after_first.removeprefix("#").isdecimal():
            number, _ = _parse_run_number(asked)
        else:
            run = self._record_request(
                replace(asked, typed_text=TypedText(asked.typed_text.words_after_first, why))
            )
            if not isinstance(run, Run):
                return run
            if run.is_ended:
                return replies.build_text_reply(f"{run.title}: {run.summary}")
            number = self._record_break_glass(run, asked.person, why)
            return replies.render_break_glass_link(
                number, self._create_sign_in_link(asked, next_path=f"/runs/{number}")
            )
        self._workflow.break_glass.request_break_glass(number, person=asked.person, reason=why)
        return replies.render_break_glass_link(
            number, self._create_sign_in_link(asked, next_path=f"/runs/{number}")
        )

    def _record_break_glass(self, run: Run, person: str, reason: str) -> int:
        """Note that glass is to be broken for what was just asked for, and return its number."""
        try:
            return self._workflow.break_glass.request_break_glass(
                run.id, person=person, reason=reason
            ).id
        except NotAllowed as refused:
            raise NotAllowed(f"{refused}. Run {run.id} waits for its approvals as usual") from None

    def _review_break_glass(self, asked: TypedCommand) -> Message:
        number, rest = _parse_run_number(asked)
        said = " because ".join(part for part in (rest, asked.typed_text.reason) if part)
        self._workflow.break_glass.review_break_glass(number, person=asked.person, findings=said)
        return replies.build_text_reply(f"You reviewed run {number}.")

    def _show_help(self, asked: TypedCommand) -> Message:
        if asked.typed_text.words_after_first:
            return self._explain_words(
                request_form.split_words(asked.typed_text.words_after_first)
            )
        with self._database.reading(asked.view_rights) as tx:
            now = tx.now
        return replies.render_overview(
            [
                runbook
                for runbook in load_catalogue().values()
                if _can_request(asked.policy, asked.person, runbook, now=now)
            ]
        )

    def _explain_words(self, typed: Sequence[str]) -> Message:
        """Explain a runbook, those that begin with these words, or a word that is built in."""
        family = _list_runbooks_with_prefix(typed)
        if family:
            return replies.render_runbook_family(" ".join(typed), family)
        found = replies.render_command_help(typed[0]) if typed else None
        return found or replies.render_runbook_help(
            self._find_runbook(typed[0] if typed else "", typed)[0]
        )

    def _list_runs(self, asked: TypedCommand) -> Message:
        """List the newest on a host, or with some words in them: who cleared 203.0.113.9?"""
        typed = asked.typed_text.words_after_first.split()
        known = asked.policy.inventory
        host = next((word.lower() for word in typed if word.lower() in known.hosts), None)
        sought = " ".join(word for word in typed if word.lower() != host)
        wanted = search.RunFilter(host=host, text=search_words.parse_search(sought))
        with self._database.reading(asked.view_rights) as tx:
            found = search.find_newest_runs(tx, wanted, most=_MAX_RUNS)
            votes = runs.list_votes_on(tx, [run.id for run in found])
            now = tx.now
        if not found and sought:
            raise InvalidRequestError(
                f"no run tells of {quote_text(sought)}{_describe_unknown_host(known, typed)}"
            )
        names = self._view_builder.get_person_names()
        above = self._stop_commands.describe_stop_of_everything()
        return replies.render_run_list(found, votes, now=now, person_names=names, notice=above)

    def _show_run(self, asked: TypedCommand) -> Message:
        number, _ = _parse_run_number(asked)
        return self._render_card(asked, number)

    def _approve_run(self, asked: TypedCommand) -> Message | None:
        number, rest = _parse_run_number(asked)
        digest = rest.lower()
        if not digest:
            return self._render_card(asked, number)
        if len(digest) < 10:
            raise InvalidRequestError(
                f"{quote_text(digest)} is no plan: give the ten digits that the card shows. Type "
                f"{replies.format_command_usage('approve')}"
            )
        self._workflow.approve_run(
            number, person=asked.person, digest=digest, reason=asked.typed_text.reason
        )
        return replies.build_text_reply(f"You approved run {number}.")

    def _deny_run(self, asked: TypedCommand) -> Message | None:
        number, rest = _parse_run_number(asked)
        reason = " because ".join(part for part in (rest, asked.typed_text.reason) if part)
        if not reason:
            raise InvalidRequestError(
                f"say why, so that the asker knows: type {replies.COMMAND} deny {number} REASON"
            )
        self._workflow.deny_run(number, person=asked.person, reason=reason)
        return replies.build_text_reply(f"You denied run {number}.")

    def _withdraw_run(self, asked: TypedCommand) -> Message | None:
        number, _ = _parse_run_number(asked)
        self._workflow.withdraw_run(number, person=asked.person)
        return replies.build_text_reply(f"You withdrew run {number}.")

    def _undo_run(self, asked: TypedCommand) -> Message | None:
        number, _ = _parse_run_number(asked)
        run = self._workflow.request_undo(
            number, person=asked.person, origin=asked.origin, reason=asked.typed_text.reason
        )
        return replies.build_text_reply(f"{run.title}: {run.summary}") if run.is_ended else None

    def _preview_request(self, asked: TypedCommand) -> Message:
        if not asked.typed_text.words_after_first:
            raise InvalidRequestError(
                f"what would you ask for? Type {replies.COMMAND} can-i WORDS HOST, with words "
                "and a host such as “service restart web1”"
            )
        policy = asked.policy
        meant = parse_preview_question(
            policy, request_form.split_words(asked.typed_text.words_after_first)
        )
        with self._database.reading(asked.view_rights) as tx:
            seen = preview_request(tx, policy, meant, person=asked.person, source="slack")
        return replies.build_text_reply(" ".join(seen.describe()))

    def _answer_schedule_command(self, asked: TypedCommand) -> Message | None:
        return self._schedule_commands.answer_schedule_command(
            TypedScheduleCommand(asked.person, asked.origin, asked.typed_text)
        )

    def _list_freezes(self, asked: TypedCommand) -> Message:
        with self._database.reading(asked.view_rights) as tx:
            return who_command.render_freezes(asked.policy, now=tx.now)

    def _show_owners(self, asked: TypedCommand) -> Message:
        policy, team = asked.policy, self._view_builder.workspace
        if not asked.typed_text.words_after_first:
            return who_command.render_area_owners(policy, asked.person, workspace=team)
        found = who_command.answer_who_command(
            policy, asked.typed_text.words_after_first, workspace=team
        )
        if found is None:
            raise InvalidRequestError(
                "there is no host, area or person "
                f"{quote_text(asked.typed_text.words_after_first)}"
            )
        return found

    def _create_sign_in_reply(self, asked: TypedCommand) -> Message:
        if not self._view_builder.base_url:
            raise InvalidRequestError(
                "the web pages have no address yet: an administrator sets KEYTURN_BASE_URL"
            )
        return replies.render_sign_in_link(self._create_sign_in_link(asked))

    def _create_sign_in_link(self, asked: TypedCommand, *, next_path: str = "") -> str:
        """Return a link that signs in once, and leads on to a page."""
        with self._database.transaction() as tx:
            token = sessions.create_sign_in_link(tx, asked.person)
            change_log.append_entry(
                tx, "sign-in link created", person=asked.person, source="slack"
            )
        to = f"?next={next_path}" if next_path else ""
        return f"{self._view_builder.base_url}/sign-in/{token}{to}"

    def _render_card(self, asked: TypedCommand, number: int) -> Message:
        with self._database.reading(asked.view_rights) as tx:
            return render_card(self._view_builder.build_slack_run_view(tx, number), buttons=False)


def _parse_run_number(asked: TypedCommand) -> tuple[int, str]:
    """Return the run's number and what stands behind it."""
    first, rest = [*asked.typed_text.words_after_first.split(maxsplit=1), "", ""][:2]
    return _parse_number(first, asked.typed_text.first_word), rest.strip()


def _parse_number(typed: str, command_word: str) -> int:
    digits = typed.removeprefix("#")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        raise InvalidRequestError(f"which run? Type {replies.format_command_usage(command_word)}")
    return int(digits)


def _describe_unknown_host(inventory: Inventory, typed: Sequence[str]) -> str:
    """Say so where the only word that was typed may have been meant as a host's name."""
    if len(typed) > 1:
        return ""
    try:
        inventory[typed[0]]
    except UnknownHostError as unknown:
        return f", and {unknown}"
    return ""


def _list_runbooks_with_prefix(typed: Sequence[str]) -> list[type[AnyRunbook]]:
    """Return the runbooks that begin with all of these words; none if the words name one."""
    said = " ".join(typed).lower()
    if said in load_catalogue():
        return []
    return [one for words, one in load_catalogue().items() if words.startswith(f"{said} ")]


def _can_request(policy: Policy, person: str, runbook: type[AnyRunbook], *, now: int) -> bool:
    """Return whether there is a host that this person may have it done on."""
    found = list_requestable_hosts(policy, runbook, person=person, source="slack", now=now)
    return next(found, None) is not None
