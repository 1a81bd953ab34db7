"""Asking by form: opens one, offers what may be chosen in it, and takes it in."""

import asyncio
import json
import logging
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import ClientError
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot.db import dedup, runs
from bot.db.database import Database
from bot.model import request_form
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.plain_text import join_to_one_line
from bot.model.request_form import (
    FormField,
    InvalidValuesError,
    RequestSyntaxError,
    list_form_fields,
)
from bot.model.run import RequestOrigin, Run
from bot.model.text import escape_to_one_line, format_sentence
from bot.policy import Policy, PolicySource
from bot.policy.explain import PreviewQuestion
from bot.service import Workflow
from bot.slack import threads
from bot.slack.blocks import (
    Block,
    Element,
    View,
    code,
    context,
    escape_mrkdwn,
    rich_text,
    rich_text_section,
    shorten_text,
    text_element,
)
from bot.slack.client import get_error_code, is_retryable
from bot.slack.commands import RequestedForm
from bot.slack.payloads import ViewState
from bot.slack.replies import COMMAND, get_runbook_purpose
from bot.workflow import resubmit
from bot.workflow.form_options import FormOptions
from bot.workflow.preview import preview_request
from connectors.command import InvisibleCharacterError, quote_text
from runbooks import AnyRunbook, load_catalogue
from runbooks._catalogue import get_kind

# Callbacks and actions, as they come back.
FORM, CHOOSER, ABOUT_HOST = "form", "chooser", "about-host"
HOST_SHORTCUT_NAME = "Ask about this host"
HOST, VALUE, WHAT = "form-host", "form-value", "form-what"
HOST_BLOCK, WHAT_BLOCK, BECAUSE = "host", "what", "because"

_MAX_TITLE_LENGTH = 24
_MAX_OPTIONS = 100
_MAX_OPTION_LENGTH = 75
_MAX_REASON_LENGTH = 1000
_MAX_INPUT_LENGTH = 3000
_BOOLEAN_LABELS: Mapping[str, str] = {"false": "No", "true": "Yes"}


@dataclass(frozen=True)
class RequestFormView:
    """A form before it is drawn. hosts: those that may be chosen; host: the chosen one, or "".

    about: what is kept in it. told: what would come of it, in sentences.
    others: hosts by tag, for fields that name one beside the target.
    given: values that stand in it from the start, by field.
    """

    runbook: type[AnyRunbook]
    hosts: Sequence[str]
    metadata: Mapping[str, str]
    host: str = ""
    preview: Sequence[str] = ()
    hosts_by_tag: Mapping[str, Sequence[str]] = ()  # pyright: ignore[reportAssignmentType] - read only
    initial_values: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def option_source_fields(self) -> frozenset[str]:
        """The fields that say where the host looks for what others list."""
        return frozenset(name for blank in list_form_fields(self.runbook) for name in blank.within)


def render_loading() -> View:
    """Hold the place of a form: Slack leaves three seconds to open one."""
    return _build_modal("Keyturn", [rich_text(rich_text_section(text_element("One moment …")))])


def render_notice(title: str, *paragraphs: str) -> View:
    """Say something in the place of a form."""
    return _build_modal(
        title,
        [
            rich_text(rich_text_section(text_element(shorten_text(one, 2900))))
            for one in paragraphs
        ],
    )


def render_form(form_view: RequestFormView) -> View:
    runbook = form_view.runbook
    blocks: list[Block] = [
        rich_text(rich_text_section(text_element(get_runbook_purpose(runbook)))),
        _render_preview(form_view),
    ]
    # What needs an answer stands first: on a telephone the rest is scrolled to by those who care.
    filled = [
        replace(blank, default=form_view.initial_values.get(blank.name, blank.default))
        for blank in list_form_fields(runbook)
    ]
    fields = sorted(filled, key=lambda blank: (blank.name != HOST_BLOCK, not blank.required))
    blocks += [_render_input(blank, form_view) for blank in fields]
    blocks.append(_render_reason_input())
    typed = f"{COMMAND} {runbook.words} {runbook.example}".rstrip()
    blocks.append(
        rich_text(rich_text_section(text_element("Typed, it is for example "), code(typed)))
    )
    return _build_modal(
        runbook.words,
        blocks,
        callback=FORM,
        submit="Ask",
        metadata={**form_view.metadata, "words": runbook.words, "host": form_view.host},
    )


def render_chooser(
    hosts: Sequence[str],
    host: str,
    runbook_groups: Sequence[tuple[str, Sequence[type[AnyRunbook]]]],
    metadata: Mapping[str, str],
) -> View:
    """Offer what may be asked for about a host. offered: groups of runbooks by their headings."""
    groups = [
        {
            "label": _plain_text(heading),
            "options": [_build_runbook_option(one) for one in found[:_MAX_OPTIONS]],
        }
        for heading, found in runbook_groups
        if found
    ]
    blocks: list[Block] = [_render_host_input(hosts, host)]
    if groups:
        select = {
            "type": "static_select",
            "action_id": WHAT,
            "placeholder": _plain_text("Choose what to ask for"),
            "option_groups": groups,
        }
        # Another host offers other things: a new block forgets what was chosen for the old one.
        blocks.append(_build_input_block(f"{WHAT_BLOCK}-{host}", "What", select))
        return _build_modal(
            "Ask Keyturn", blocks, callback=CHOOSER, submit="Next", metadata=metadata
        )
    if host:
        told = f"The policy lets you ask for nothing on {host}."
        blocks.append(rich_text(rich_text_section(text_element(told))))
    return _build_modal("Ask Keyturn", blocks, callback=CHOOSER, submit="Next", metadata=metadata)


def build_options(values: Sequence[str], typed: str, *, allow_other: bool) -> list[Element]:
    """Return what fits what was typed so far; free: that itself may be chosen too."""
    wanted = typed.strip().lower()
    found = [value for value in values if wanted in value.lower() and _is_valid_option(value)]
    plain = typed.strip()
    if allow_other and plain not in found and _is_valid_option(plain):
        found = [*found[: _MAX_OPTIONS - 1], plain]
    return [_build_option(value) for value in found[:_MAX_OPTIONS]]


def _is_valid_option(value: str) -> bool:
    """Return whether Slack takes it for an option, and people see all of it."""
    return 0 < len(value) <= _MAX_OPTION_LENGTH and escape_to_one_line(value) == value


def _build_modal(
    title: str,
    blocks: Sequence[Block],
    *,
    callback: str = "",
    submit: str = "",
    metadata: Mapping[str, str] | None = None,
) -> View:
    view: View = {
        "type": "modal",
        "title": _plain_text(shorten_text(title, _MAX_TITLE_LENGTH)),
        "close": _plain_text("Cancel" if submit else "Close"),
        "blocks": list(blocks),
    }
    if callback:
        view |= {"callback_id": callback, "private_metadata": json.dumps(metadata)}
    return view | ({"submit": _plain_text(submit)} if submit else {})


def _render_preview(form_view: RequestFormView) -> Block:
    said = form_view.preview or ["Choose a host to see whether it takes an approval, and whose."]
    return {**context(" ".join(map(escape_mrkdwn, said))), "block_id": f"outlook-{form_view.host}"}


def _render_input(blank: FormField, form_view: RequestFormView) -> Block:
    if blank.name == HOST_BLOCK:
        return _render_host_input(form_view.hosts, form_view.host)
    block = _build_input_block(blank.name, blank.label, _build_element(blank, form_view))
    if blank.hint:
        # Plain text has no way to mark words that are typed.
        block["hint"] = _plain_text(shorten_text(blank.hint.replace("`", ""), 500))
    if blank.name in form_view.option_source_fields and blank.lists:
        # Slack tells nothing of the other fields while it looks for options.
        block["dispatch_action"] = True
    return block if blank.required else block | {"optional": True}


def _build_element(blank: FormField, form_view: RequestFormView) -> Element:
    if blank.kind == "choice" or blank.kind == "host":
        offered = blank.choices if blank.kind == "choice" else form_view.hosts_by_tag[blank.tag]
        return _build_select(offered, blank.default)
    if blank.lists:
        return {
            "type": "external_select",
            "action_id": VALUE,
            "min_query_length": 0,
            "placeholder": _plain_text("Choose, or type it"),
            **_build_initial_option(blank.default),
        }
    typed = {"type": "plain_text_input", "action_id": VALUE}
    fits = 0 < len(blank.default) <= _MAX_INPUT_LENGTH
    return typed | ({"initial_value": blank.default} if fits else {})


def _render_host_input(hosts: Sequence[str], host: str) -> Block:
    if len(hosts) > _MAX_OPTIONS:
        select: Element = {
            "type": "external_select",
            "min_query_length": 0,
            **_build_initial_option(host),
        }
    else:
        select = _build_select(hosts, host)
    select |= {"action_id": HOST, "placeholder": _plain_text("Choose a host")}
    return _build_input_block(HOST_BLOCK, "Host", select) | {"dispatch_action": True}


def _render_reason_input() -> Block:
    typed = {
        "type": "plain_text_input",
        "action_id": VALUE,
        "multiline": True,
        "max_length": _MAX_REASON_LENGTH,
        "placeholder": _plain_text("Whoever approves it reads this"),
    }
    return _build_input_block(BECAUSE, "Why", typed) | {"optional": True}


def _build_input_block(block_id: str, label: str, element: Element) -> Block:
    return {"type": "input", "block_id": block_id, "label": _plain_text(label), "element": element}


def _build_select(values: Sequence[str], initial: str) -> Element:
    found = [_build_option(value) for value in values[:_MAX_OPTIONS]]
    select: Element = {
        "type": "static_select",
        "action_id": VALUE,
        "placeholder": _plain_text("Choose"),
        "options": found,
    }
    # What is chosen from the start must be among what may be chosen.
    return select | (_build_initial_option(initial) if _build_option(initial) in found else {})


def _build_initial_option(value: str) -> Element:
    return {"initial_option": _build_option(value)} if _is_valid_option(value) else {}


def _build_option(value: str) -> Element:
    return {"text": _plain_text(_BOOLEAN_LABELS.get(value, value)), "value": value}


def _build_runbook_option(runbook: type[AnyRunbook]) -> Element:
    described = _plain_text(shorten_text(get_runbook_purpose(runbook), _MAX_OPTION_LENGTH))
    return {**_build_option(runbook.words), "description": described}


def _plain_text(text: str) -> Element:
    return {"type": "plain_text", "text": escape_to_one_line(text), "emoji": False}


_log = logging.getLogger(__name__)

# A trigger lives three seconds.
_OPEN_TIMEOUT_SECONDS = 2.5
# How long somebody who looks for an option waits for a host that was not read ahead.
# What is chosen in a form and kept in it, by field.
_KEPT_VALUE_PREFIX = "told-"
_OPTIONS_TIMEOUT_SECONDS = 1.5
# How long what Slack did not take waits before it is tried once more.
_RETRY_SECONDS = 1.0
# Slack's words for a form that was closed meanwhile, or drawn anew for a later choice.
_SUPERSEDED_VIEW_ERRORS = frozenset({"not_found", "hash_conflict"})
_SOURCE = "slack"
_MAX_NAMED_HOSTS = 10
_WORD_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]*")
_ADDRESS_PATTERN = re.compile(r"[0-9a-f]*[.:][0-9a-f.:]+")

FormErrors = dict[str, str]


class RequestForms:
    """Raises what bot.slack.actions answers in words."""

    def __init__(
        self,
        workflow: Workflow,
        database: Database,
        policies: PolicySource,
        offering: FormOptions,
        client: AsyncWebClient,
    ) -> None:
        self._workflow, self._database, self._policies = workflow, database, policies
        self._form_options, self._client = offering, client

    # --- opening ---

    async def open_form(
        self, blank: RequestedForm, *, trigger_id: str, person: str, channel: str
    ) -> bool:
        """Open a form; False if nobody sees it whole. at: C…, where it was typed."""
        about = {"channel": channel} | (
            {"again": str(blank.resubmitted_run)} if blank.resubmitted_run else {}
        )

        def filled() -> View:
            hosts = list(
                self._form_options.list_hosts(blank.runbook, person=person, source=_SOURCE)
            )
            return self._build_form(blank.runbook, hosts, person, about)

        return await self._open_view(trigger_id, filled)

    async def open_host_chooser(
        self, message_text: str, *, trigger_id: str, person: str, channel: str
    ) -> bool:
        """Offer what may be asked for about the hosts that a message names, or about any.

        False if nobody sees it whole.
        """
        return await self._open_view(
            trigger_id, lambda: self._build_chooser_for_text(message_text, person, channel)
        )

    async def _open_view(self, trigger_id: str, build_view: Callable[[], View]) -> bool:
        try:
            async with asyncio.timeout(_OPEN_TIMEOUT_SECONDS):
                answer = await self._client.views_open(
                    trigger_id=trigger_id, view=render_loading()
                )
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            _log.warning("no form could be opened: %s", trouble)
            return False
        opened: Mapping[str, str] = answer.get("view") or {}
        name = opened.get("id", "")
        try:
            view = await threads.run_in_answer_thread(build_view)
        except Exception:
            said = "This form could not be filled in. Close it: Keyturn tells you why."
            await self._update_view(name, "", render_notice("Keyturn", said))
            raise
        return await self._update_view(name, "", view)

    async def _update_view(self, view_id: str, view_hash: str, view: View) -> bool:
        """Draw a form anew, trying twice; False if it stays as it was though somebody sees it."""
        for wait in (_RETRY_SECONDS, 0.0):
            try:
                await self._client.views_update(view_id=view_id, hash=view_hash or None, view=view)
            except SlackApiError as refused:
                _log.warning("a form was not brought up to date: %s", get_error_code(refused))
                if not is_retryable(refused):
                    return get_error_code(refused) in _SUPERSEDED_VIEW_ERRORS
            except (SlackClientError, ClientError, TimeoutError) as trouble:
                _log.warning("a form was not brought up to date: %s", type(trouble).__name__)
            else:
                return True
            await asyncio.sleep(wait)
        return False

    # --- while it is filled in ---

    async def redraw_for_host(self, shown: ViewState, *, person: str) -> None:
        """Draw the form for the host that was chosen, and read ahead what that lists."""
        host = shown.values.get(HOST_BLOCK, "")
        if shown.callback_id != FORM:
            view = await threads.run_in_answer_thread(
                self._build_chooser_for_host, shown, host, person
            )
            await self._update_view(shown.view_id, shown.view_hash, view)
            return
        runbook = _get_runbook(shown.metadata.get("words", ""))
        host = host or shown.metadata.get("host", "")
        values = _get_option_source_values(runbook, shown)
        kept = {f"{_KEPT_VALUE_PREFIX}{name}": value for name, value in values.items()}
        about = {**shown.metadata, **kept}

        def filled() -> View:
            hosts = list(self._form_options.list_hosts(runbook, person=person, source=_SOURCE))
            return self._build_form(runbook, hosts, person, about, host)

        await self._update_view(
            shown.view_id, shown.view_hash, await threads.run_in_answer_thread(filled)
        )
        await self._read_options(runbook, host, person, values)

    async def list_options(self, shown: ViewState, *, person: str) -> Sequence[Any]:
        """Return what may be chosen for what was typed; from memory, or after a short look."""
        runbook = load_catalogue().get(shown.metadata.get("words", ""))
        if shown.block_id == HOST_BLOCK:
            hosts = await threads.run_in_answer_thread(self._list_hosts, runbook, person)
            return build_options(hosts, shown.typed_text, allow_other=False)
        blanks = request_form.list_form_fields(runbook) if runbook else []
        blank = next((blank for blank in blanks if blank.name == shown.block_id), None)
        if runbook is None or blank is None:
            return []
        host = shown.values.get(HOST_BLOCK) or shown.metadata.get("host", "")
        values: Sequence[str] = ()
        if host:
            told = _get_option_source_values(runbook, shown)
            await self._read_options(runbook, host, person, told)
            values = await threads.run_in_answer_thread(
                self._form_options.list_options,
                runbook,
                blank,
                host=host,
                person=person,
                source=_SOURCE,
                form_values=told,
            )
        return build_options(values, shown.typed_text, allow_other=True)

    async def _read_options(
        self, runbook: type[AnyRunbook], host: str, person: str, form_values: Mapping[str, str]
    ) -> None:
        look = asyncio.to_thread(
            self._form_options.read_options,
            runbook,
            host=host,
            person=person,
            source=_SOURCE,
            form_values=form_values,
        )
        with suppress(TimeoutError):
            # The thread goes on without us, and is heard the next time.
            async with asyncio.timeout(_OPTIONS_TIMEOUT_SECONDS):
                await look

    # --- handing it in ---

    def build_next_view(self, shown: ViewState, *, person: str) -> View | FormErrors:
        """Return the form for what was chosen, or what is wrong with the choice."""
        host = shown.values.get(HOST_BLOCK, "")
        block = f"{WHAT_BLOCK}-{host}"
        chosen = shown.values.get(block, "")
        if not chosen:
            return {HOST_BLOCK: "Choose a host on which you may ask for something."}
        runbook = _get_runbook(chosen)
        hosts = list(self._form_options.list_hosts(runbook, person=person, source=_SOURCE))
        if host not in hosts:
            return {block: f"You may not ask for {runbook.words} on {host}."}
        return self._build_form(runbook, hosts, person, shown.metadata, host)

    def submit_form(self, shown: ViewState, *, person: str) -> FormErrors:
        """Ask for what the form says, once. Returns what is wrong, by block; nothing if asked."""
        runbook = _get_runbook(shown.metadata.get("words", ""))
        reason = shown.values.get(BECAUSE, "")
        names = [blank.name for blank in request_form.list_form_fields(runbook)]
        try:
            join_to_one_line(reason)
            given = {name: shown.values[name] for name in names if name in shown.values}
            request = request_form.parse_values(runbook, given)
        except InvisibleCharacterError as unclean:
            return {BECAUSE: f"This {unclean}."}
        except InvalidValuesError as misfit:
            return {
                name if name in names else HOST_BLOCK: what.partition(" It is typed")[0]
                for name, what in misfit.problems.items()
            }
        origin = RequestOrigin(_SOURCE, shown.metadata.get("channel", ""), shown.account.user)
        return self._request_once(
            shown,
            lambda: self._workflow.request_run(
                request, person=person, origin=origin, reason=reason
            ),
        )

    def _request_once(self, shown: ViewState, request_run: Callable[[], Run]) -> FormErrors:
        """Ask, unless this very form was handed in before; what was refused may be again."""
        key = f"slack form {shown.view_id}"
        with self._database.transaction() as tx:
            if not dedup.remember_first(tx, key):
                return {HOST_BLOCK: "This form was handed in already: look at /keyturn runs."}
        try:
            run = request_run()
        except (RequestSyntaxError, NotAllowed, TooLate, InvalidRequestError) as no:
            self._allow_resubmission(key)
            return {HOST_BLOCK: format_sentence(str(no))}
        except Exception:
            self._allow_resubmission(key)
            raise
        if not run.is_ended:
            return {}
        self._allow_resubmission(key)
        return {HOST_BLOCK if shown.values.get(BECAUSE) else BECAUSE: run.summary}

    def _allow_resubmission(self, key: str) -> None:
        with self._database.transaction() as tx:
            dedup.forget_key(tx, key)

    # --- what stands in it ---

    def _build_form(
        self,
        runbook: type[AnyRunbook],
        hosts: Sequence[str],
        person: str,
        metadata: Mapping[str, str],
        host: str = "",
    ) -> View:
        if not hosts:
            said = f"The policy lets you ask for {runbook.words} on no host."
            return render_notice(runbook.words, said, "/keyturn help lists what you may ask for.")
        policy = self._policies.get_policy()
        over = self._get_resubmitted_run(policy, person, metadata)
        given: Mapping[str, str] = resubmit.get_resubmit_values(over) if over else {}
        wanted = host or given.get("host", "")
        host = wanted if wanted in hosts else hosts[0] if len(hosts) == 1 else ""
        tags = {
            blank.tag for blank in request_form.list_form_fields(runbook) if blank.kind == "host"
        }
        others = {
            tag: [found.name for found in policy.inventory.list_tagged(tag or None)]
            for tag in tags
        }
        told = list(self._list_preview_sentences(policy, runbook, host, person)) if host else []
        told += [_describe_request_for_all_hosts(over)] if over and over.hosts else []
        return render_form(RequestFormView(runbook, hosts, metadata, host, told, others, given))

    def _get_resubmitted_run(
        self, policy: Policy, person: str, metadata: Mapping[str, str]
    ) -> Run | None:
        """Return the run whose values stand in a form from the start."""
        number = metadata.get("again")
        if not number:
            return None
        with self._database.reading(policy.get_view_rights(person)) as tx:
            return runs.get_run(tx, int(number))

    def _list_preview_sentences(
        self, policy: Policy, runbook: type[AnyRunbook], host: str, person: str
    ) -> Sequence[str]:
        with self._database.reading(policy.get_view_rights(person)) as tx:
            meant = PreviewQuestion(runbook, (host,))
            return preview_request(tx, policy, meant, person=person, source=_SOURCE).describe()

    def _build_chooser_for_text(self, message_text: str, person: str, channel: str) -> View:
        policy = self._policies.get_policy()
        found = find_named_hosts(message_text, policy)[:_MAX_NAMED_HOSTS]
        hosts = found or [host.name for host in policy.inventory]
        about = {"channel": channel, "hosts": " ".join(found)}
        return self._build_chooser(hosts, found[0] if found else "", person, about)

    def _build_chooser_for_host(self, shown: ViewState, host: str, person: str) -> View:
        policy = self._policies.get_policy()
        known = [name for name in shown.metadata.get("hosts", "").split() if name]
        hosts = known or [one.name for one in policy.inventory]
        return self._build_chooser(hosts, host if host in hosts else "", person, shown.metadata)

    def _build_chooser(
        self, hosts: Sequence[str], host: str, person: str, metadata: Mapping[str, str]
    ) -> View:
        may: list[type[AnyRunbook]] = []
        if host:
            may = [
                one for one in load_catalogue().values() if self._can_request(one, host, person)
            ]
        groups = [
            ("Look", [one for one in may if get_kind(one) == "check"]),
            ("Change", [one for one in may if get_kind(one) == "change"]),
        ]
        return render_chooser(hosts, host, groups, metadata)

    def _can_request(self, runbook: type[AnyRunbook], host: str, person: str) -> bool:
        return self._form_options.can_request(runbook, host=host, person=person, source=_SOURCE)

    def _list_hosts(self, runbook: type[AnyRunbook] | None, person: str) -> Sequence[str]:
        if runbook is None:
            return [host.name for host in self._policies.get_policy().inventory]
        return list(self._form_options.list_hosts(runbook, person=person, source=_SOURCE))


def _get_option_source_values(runbook: type[AnyRunbook], shown: ViewState) -> dict[str, str]:
    """Return what is filled in of the fields that say where the host looks for others.

    Slack says it when one of them is chosen, and not while somebody looks for options: until the
    next choice it is kept in the form.
    """
    names = {name for blank in request_form.list_form_fields(runbook) for name in blank.within}
    kept = {name: shown.metadata.get(f"{_KEPT_VALUE_PREFIX}{name}", "") for name in names}
    found = {name: shown.values.get(name, kept[name]) for name in names}
    return {name: value for name, value in found.items() if value}


def find_named_hosts(message_text: str, policy: Policy) -> list[str]:
    """Return the hosts that a text names, by name or address, in the order of the text."""
    text = message_text.lower()
    addresses = {host.address: host.name for host in policy.inventory}
    shared = [host.address for host in policy.inventory]
    meant = [
        (found.start(), name)
        for found in _WORD_PATTERN.finditer(text)
        if (name := found[0].strip("-")) in policy.inventory.hosts
    ]
    meant += [
        (found.start(), addresses[address])
        for found in _ADDRESS_PATTERN.finditer(text)
        # Behind one address there may be several, told apart by their ports.
        if shared.count(address := found[0].strip(".:")) == 1
    ]
    return list(dict.fromkeys(name for _, name in sorted(meant)))


def _describe_request_for_all_hosts(run: Run) -> str:
    """Say how it is asked again of several hosts: a form has one."""
    values = resubmit.get_resubmit_values(run)
    typed = shlex.join([*run.runbook.split(), *(f"{name}={values[name]}" for name in values)])
    return f"Run {run.id} was for {values['host']}: for all of them, type {COMMAND} {typed}"


def _get_runbook(runbook_name: str) -> type[AnyRunbook]:
    found = load_catalogue().get(runbook_name)
    if found is None:
        raise RequestSyntaxError(
            f"There is no runbook {quote_text(runbook_name)} any more: type /keyturn help."
        )
    return found
