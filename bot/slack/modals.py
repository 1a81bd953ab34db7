"""The request form: render it, list its options, and submit it."""

import asyncio
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from bot.db import dedup, runs
from bot.db.database import Database
from bot.model import request_form, resubmit
from bot.model.plain_request import search_runbooks
from bot.model.plain_text import join_to_one_line
from bot.model.request_form import (
    FormField,
    InvalidValuesError,
    RequestSyntaxError,
    list_form_fields,
)
from bot.model.run import RequestOrigin, RequestTerms, Run
from bot.model.text import escape_to_one_line
from bot.model.tickets import MAX_KEY_LENGTH
from bot.policy import Policy, PolicySource
from bot.policy.explain import PreviewQuestion
from bot.queries.form_options import FormOptions
from bot.queries.preview import list_granted_fields, preview_request
from bot.queries.suggestions import RequestableRunbooks
from bot.service import KeyturnService
from bot.slack import threads
from bot.slack.blocks import (
    Block,
    Element,
    View,
    code,
    context,
    escape_sentence,
    input_block,
    modal,
    paragraph,
    plain_text,
    reason_input,
    shorten_text,
)
from bot.slack.commands import RequestedForm
from bot.slack.payloads import ViewState
from bot.slack.replies import COMMAND, get_runbook_purpose
from bot.slack.run_forms import PendingPlan, create_pending_plan
from bot.slack.views import Views, render_notice
from connectors.visible_text import InvisibleCharacterError, quote_text
from runbooks import AnyRunbook, load_catalogue
from runbooks._catalogue import get_kind

# Ids of callbacks, actions and blocks.
FORM, CHOOSER, ABOUT_HOST = "form", "chooser", "about-host"
HOST_SHORTCUT_NAME = "Run on this host"
HOST, VALUE = "form-host", "form-value"
HOST_BLOCK, WHAT_BLOCK, BECAUSE, TICKET = "host", "what", "because", "ticket"

_MAX_OPTIONS = 100
_MAX_OPTION_LENGTH = 75
_MAX_INPUT_LENGTH = 3000
_BOOLEAN_LABELS: Mapping[str, str] = {"false": "No", "true": "Yes"}


@dataclass(frozen=True)
class RequestFormView:
    """The content of a form."""

    runbook: type[AnyRunbook]
    hosts: Sequence[str]
    """The hosts that can be chosen."""
    metadata: Mapping[str, str]
    """What the form stores and returns."""
    host: str = ""
    """The chosen host, or ""."""
    preview: Sequence[str] = ()
    """Sentences about what the request would need."""
    hosts_by_tag: Mapping[str, Sequence[str]] = ()  # pyright: ignore[reportAssignmentType] - read only
    """For fields that name a host other than the target."""
    initial_values: Mapping[str, str] = field(default_factory=dict[str, str])
    """By field."""
    watched_fields: frozenset[str] = frozenset()
    """The fields on whose values the preview or the options of other fields depend."""
    asks_ticket: bool = False
    """Whether a rule may ask for a change ticket."""


def render_form(form_view: RequestFormView) -> View:
    """Render the request form of a runbook."""
    runbook = form_view.runbook
    blocks: list[Block] = [
        paragraph(get_runbook_purpose(runbook)),
        _render_preview(form_view),
    ]
    # Required fields first: optional ones may need scrolling on a phone.
    filled = [
        replace(
            form_field, default=form_view.initial_values.get(form_field.name, form_field.default)
        )
        for form_field in list_form_fields(runbook)
    ]
    fields = sorted(
        filled, key=lambda form_field: (form_field.name != HOST_BLOCK, not form_field.required)
    )
    blocks += [_render_input(form_field, form_view) for form_field in fields]
    reason = form_view.initial_values.get(BECAUSE, "")
    field_block = reason_input(BECAUSE, VALUE, initial=reason, seen_by="Approvers see this")
    blocks.append(field_block | {"optional": True})
    if form_view.asks_ticket:
        blocks.append(_render_ticket_input(form_view.initial_values.get(TICKET, "")))
    example = f"{COMMAND} {runbook.words} {runbook.example}".rstrip()
    blocks.append(paragraph("Or type: ", code(example)))
    return modal(
        runbook.words,
        blocks,
        callback=FORM,
        submit="Run check" if get_kind(runbook) == "check" else "Plan",
        metadata={**form_view.metadata, "words": runbook.words, "host": form_view.host},
    )


def _render_ticket_input(initial: str) -> Block:
    text_input: Element = {
        "type": "plain_text_input",
        "action_id": VALUE,
        "max_length": MAX_KEY_LENGTH,
        "placeholder": plain_text("CHG0030001, where a rule asks for one"),
    }
    if initial:
        text_input["initial_value"] = initial
    return input_block(TICKET, "Change ticket", text_input) | {"optional": True}


def render_chooser(
    hosts: Sequence[str], host: str, metadata: Mapping[str, str], *, can_request: bool
) -> View:
    """Render the search for a runbook, for a host or for any.

    can_request: whether the person may request any runbook there.
    """
    blocks: list[Block] = [_render_host_input(hosts, host) | {"optional": True}]
    if can_request:
        select = {
            "type": "external_select",
            "action_id": VALUE,
            "min_query_length": 0,
            "placeholder": plain_text("What for? Type unblock, disk, who changed …"),
        }
        # Another host has other runbooks: a new block id clears the previous choice.
        blocks.append(input_block(f"{WHAT_BLOCK}-{host}", "Runbook", select))
    else:
        text = f"The policy does not allow you to request anything on {host or 'any host'}."
        blocks.append(paragraph(text))
    return modal("New request", blocks, callback=CHOOSER, submit="Next", metadata=metadata)


def build_options(values: Sequence[str], typed: str, *, allow_other: bool) -> list[Element]:
    """Return the options that contain *typed*; allow_other: *typed* itself is an option too."""
    search_text = typed.strip().lower()
    found = [value for value in values if search_text in value.lower() and _is_valid_option(value)]
    plain = typed.strip()
    if allow_other and plain not in found and _is_valid_option(plain):
        found = [*found[: _MAX_OPTIONS - 1], plain]
    return [_build_option(value) for value in found[:_MAX_OPTIONS]]


def _is_valid_option(value: str) -> bool:
    """Return whether Slack accepts the value as an option and shows it whole."""
    return 0 < len(value) <= _MAX_OPTION_LENGTH and escape_to_one_line(value) == value


def _render_preview(form_view: RequestFormView) -> Block:
    sentences = form_view.preview or ["Choose a host to see who must approve."]
    return {
        **context(" ".join(map(escape_sentence, sentences))),
        "block_id": f"outlook-{form_view.host}",
    }


def _render_input(form_field: FormField, form_view: RequestFormView) -> Block:
    if form_field.name == HOST_BLOCK:
        return _render_host_input(form_view.hosts, form_view.host)
    block = input_block(form_field.name, form_field.label, _build_element(form_field, form_view))
    if form_field.hint:
        # Plain text cannot mark code.
        block["hint"] = plain_text(shorten_text(form_field.hint.replace("`", ""), 500))
    if form_field.name in form_view.watched_fields:
        # Slack sends a choice at once, and a text when Enter is pressed in it.
        block["dispatch_action"] = True
    return block if form_field.required else block | {"optional": True}


def _build_element(form_field: FormField, form_view: RequestFormView) -> Element:
    if form_field.kind == "choice" or form_field.kind == "host":
        options = (
            form_field.choices
            if form_field.kind == "choice"
            else form_view.hosts_by_tag[form_field.tag]
        )
        return _build_select(options, form_field.default)
    if form_field.lists:
        return {
            "type": "external_select",
            "action_id": VALUE,
            "min_query_length": 0,
            "placeholder": plain_text("Choose or type a value"),
            **_build_initial_option(form_field.default),
        }
    text_input = {"type": "plain_text_input", "action_id": VALUE}
    has_initial_value = 0 < len(form_field.default) <= _MAX_INPUT_LENGTH
    return text_input | ({"initial_value": form_field.default} if has_initial_value else {})


def _render_host_input(hosts: Sequence[str], host: str) -> Block:
    if len(hosts) > _MAX_OPTIONS:
        select: Element = {
            "type": "external_select",
            "min_query_length": 0,
            **_build_initial_option(host),
        }
    else:
        select = _build_select(hosts, host)
    select |= {"action_id": HOST, "placeholder": plain_text("Choose a host")}
    return input_block(HOST_BLOCK, "Host", select) | {"dispatch_action": True}


def _build_select(values: Sequence[str], initial: str) -> Element:
    found = [_build_option(value) for value in values[:_MAX_OPTIONS]]
    select: Element = {
        "type": "static_select",
        "action_id": VALUE,
        "placeholder": plain_text("Choose"),
        "options": found,
    }
    # The initial option must be one of the options.
    return select | (_build_initial_option(initial) if _build_option(initial) in found else {})


def _build_initial_option(value: str) -> Element:
    return {"initial_option": _build_option(value)} if _is_valid_option(value) else {}


def _build_option(value: str) -> Element:
    return {"text": plain_text(_BOOLEAN_LABELS.get(value, value)), "value": value}


def _build_runbook_option(runbook: type[AnyRunbook]) -> Element:
    purpose = f"{get_kind(runbook).capitalize()}: {get_runbook_purpose(runbook)}"
    description = plain_text(purpose.replace("`", ""), max_length=_MAX_OPTION_LENGTH)
    return {**_build_option(runbook.words), "description": description}


# The keys, by field, of values that a form stores.
_STORED_VALUE_PREFIX = "value-"
# How long a request for options waits for a host whose options are not read yet.
_OPTIONS_TIMEOUT_SECONDS = 1.5
_SOURCE = "slack"
_MAX_NAMED_HOSTS = 10
_WORD_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]*")
_ADDRESS_PATTERN = re.compile(r"[0-9a-f]*[.:][0-9a-f.:]+")

FormErrors = dict[str, str]


class RequestForms:
    """Opens, updates and submits request forms. Raises the refusals of bot.slack.actions."""

    def __init__(
        self,
        service: KeyturnService,
        database: Database,
        policies: PolicySource,
        form_options: FormOptions,
        views: Views,
        requestable: RequestableRunbooks,
    ) -> None:
        self._requestable = requestable
        self._service, self._database, self._policies = service, database, policies
        self._form_options, self._views = form_options, views

    # --- open ---

    async def open_form(
        self, form: RequestedForm, *, trigger_id: str, person: str, channel: str
    ) -> bool:
        """Open a form; return False if Slack does not show it. channel: C…, of the request."""
        metadata = {"channel": channel} | (
            {"again": str(form.resubmitted_run)} if form.resubmitted_run else {}
        )

        def build_view() -> View:
            return self._build_form(form.runbook, person, metadata, values=form.values)

        return await self._views.open_view(trigger_id, build_view)

    async def open_host_chooser(
        self, message_text: str, *, trigger_id: str, person: str, channel: str
    ) -> bool:
        """Open the choice of a runbook for the hosts that a message names, or for any host.

        Return False if Slack does not show it.
        """
        return await self._views.open_view(
            trigger_id, lambda: self._build_chooser_for_text(message_text, person, channel)
        )

    # --- update ---

    async def update_form(self, shown: ViewState, *, person: str) -> None:
        """Update preview and options for the values so far, and start reading the options."""
        host = shown.values.get(HOST_BLOCK, "")
        if shown.callback_id != FORM:
            view = await threads.run_in_answer_thread(
                self._build_chooser_for_host, shown, host, person
            )
            await self._views.update_view(shown.view_id, view, shown.view_hash)
            return
        runbook = _get_runbook(shown.metadata.get("words", ""))
        host = host or shown.metadata.get("host", "")
        values = _get_option_source_values(runbook, shown)
        stored = {f"{_STORED_VALUE_PREFIX}{name}": value for name, value in values.items()}
        metadata = {**shown.metadata, **stored}
        view = await threads.run_in_answer_thread(
            self._build_form, runbook, person, metadata, host, shown.values
        )
        await self._views.update_view(shown.view_id, view, shown.view_hash)
        await self._read_options(runbook, host, person, values)

    async def list_options(self, shown: ViewState, *, person: str) -> Sequence[Any]:
        """Return the options for what was typed, cached or read from the host."""
        runbook = load_catalogue().get(shown.metadata.get("words", ""))
        if shown.block_id.startswith(f"{WHAT_BLOCK}-"):
            host = shown.block_id.removeprefix(f"{WHAT_BLOCK}-")
            return await threads.run_in_answer_thread(
                self._search_runbooks, shown.typed_text, host, person
            )
        if shown.block_id == HOST_BLOCK:
            hosts = await threads.run_in_answer_thread(self._list_hosts, runbook, person)
            return build_options(hosts, shown.typed_text, allow_other=False)
        form_fields = request_form.list_form_fields(runbook) if runbook else ()
        form_field = next(
            (form_field for form_field in form_fields if form_field.name == shown.block_id), None
        )
        if runbook is None or form_field is None:
            return []
        host = shown.values.get(HOST_BLOCK) or shown.metadata.get("host", "")
        values: Sequence[str] = ()
        if host:
            form_values = _get_option_source_values(runbook, shown)
            await self._read_options(runbook, host, person, form_values)
            values = await threads.run_in_answer_thread(
                self._form_options.list_options,
                runbook,
                form_field,
                host=host,
                person=person,
                source=_SOURCE,
                form_values=form_values,
            )
        return build_options(values, shown.typed_text, allow_other=True)

    async def _read_options(
        self, runbook: type[AnyRunbook], host: str, person: str, form_values: Mapping[str, str]
    ) -> None:
        reading = asyncio.to_thread(
            self._form_options.read_options,
            runbook,
            host=host,
            person=person,
            source=_SOURCE,
            form_values=form_values,
        )
        with suppress(TimeoutError):
            # The thread continues: the next request finds its result.
            async with asyncio.timeout(_OPTIONS_TIMEOUT_SECONDS):
                await reading

    # --- submit ---

    def build_next_view(self, shown: ViewState, *, person: str) -> View | FormErrors:
        """Return the form of the chosen runbook, or what is wrong with the choice."""
        host = shown.values.get(HOST_BLOCK, "")
        block = f"{WHAT_BLOCK}-{host}"
        chosen = shown.values.get(block, "")
        if not chosen:
            return {HOST_BLOCK: "Choose a runbook; if there is none, choose another host."}
        runbook = _get_runbook(chosen)
        if host and host not in self._list_hosts(runbook, person):
            return {block: f"You cannot request {runbook.words} on {host}."}
        return self._build_form(runbook, person, shown.metadata, host)

    def submit_form(self, shown: ViewState, *, person: str) -> FormErrors | PendingPlan:
        """Request a check, or a plan of a change, once. Return errors by block, or the plan."""
        runbook = _get_runbook(shown.metadata.get("words", ""))
        reason = shown.values.get(BECAUSE, "")
        names = [form_field.name for form_field in request_form.list_form_fields(runbook)]
        try:
            join_to_one_line(reason)
            given = {name: shown.values[name] for name in names if name in shown.values}
            request = request_form.parse_values(runbook, given)
        except InvisibleCharacterError as error:
            return {BECAUSE: f"This {error}."}
        except InvalidValuesError as error:
            return {
                name if name in names else HOST_BLOCK: what.partition(" Usage: ")[0]
                for name, what in error.problems.items()
            }
        origin = RequestOrigin(_SOURCE, shown.metadata.get("channel", ""), shown.account.user)
        return self._request_once(
            shown,
            lambda: self._service.request_run(
                request,
                RequestTerms(
                    person,
                    origin,
                    reason,
                    ticket=shown.values.get(TICKET, ""),
                    plan_only=get_kind(runbook) == "change",
                ),
            ),
        )

    def _request_once(
        self, shown: ViewState, request_run: Callable[[], Run]
    ) -> FormErrors | PendingPlan:
        """Request, unless this form was submitted before. A refused form may be sent again."""
        key = f"slack form {shown.view_id}"
        with self._database.transaction() as tx:
            if not dedup.remember_first(tx, key):
                return {HOST_BLOCK: "This form was already submitted: see /keyturn runs."}
        try:
            run = request_run()
        except Exception:
            self._allow_resubmission(key)
            raise
        if not run.is_ended:
            return create_pending_plan(run) if run.plan_only else {}
        self._allow_resubmission(key)
        return {HOST_BLOCK if shown.values.get(BECAUSE) else BECAUSE: run.summary}

    def _allow_resubmission(self, key: str) -> None:
        with self._database.transaction() as tx:
            dedup.forget_key(tx, key)

    # --- content ---

    def _build_form(
        self,
        runbook: type[AnyRunbook],
        person: str,
        metadata: Mapping[str, str],
        host: str = "",
        values: Mapping[str, str] | None = None,
    ) -> View:
        """Build a form. values: filled in so far, by field."""
        hosts = self._list_hosts(runbook, person)
        if not hosts:
            text = f"The policy does not allow you to request {runbook.words} on any host."
            return render_notice(runbook.words, text, "/keyturn help lists what you can request.")
        policy = self._policies.get_policy()
        resubmitted = self._get_resubmitted_run(policy, person, metadata)
        initial_values: Mapping[str, str] = {
            **(resubmit.get_resubmit_values(resubmitted) if resubmitted else {}),
            **(values or {}),
        }
        preferred = host or initial_values.get("host", "")
        host = preferred if preferred in hosts else hosts[0] if len(hosts) == 1 else ""
        form_fields = request_form.list_form_fields(runbook)
        tags = {form_field.tag for form_field in form_fields if form_field.kind == "host"}
        hosts_by_tag = {
            tag: [found.name for found in policy.inventory.list_tagged(tag or None)]
            for tag in tags
        }
        given = {form_field.name: form_field.default for form_field in form_fields}
        question = PreviewQuestion(runbook, (host,), {**given, **initial_values})
        watched = {name for form_field in form_fields for name in form_field.within}
        preview: list[str] = []
        with self._database.reading(policy.get_view_rights(person)) as tx:
            watched |= list_granted_fields(tx, person=person, words=runbook.words)
            if host:
                shown = preview_request(tx, policy, question, person=person, source=_SOURCE)
                preview += shown.describe()
        if resubmitted and resubmitted.hosts:
            preview.append(_describe_request_for_all_hosts(resubmitted))
        return render_form(
            RequestFormView(
                runbook,
                hosts,
                metadata,
                host,
                preview,
                hosts_by_tag,
                initial_values,
                frozenset(watched),
                policy.can_require_ticket and get_kind(runbook) == "change",
            )
        )

    def _get_resubmitted_run(
        self, policy: Policy, person: str, metadata: Mapping[str, str]
    ) -> Run | None:
        """Return the run whose values are the initial values of a form."""
        number = metadata.get("again")
        if not number:
            return None
        with self._database.reading(policy.get_view_rights(person)) as tx:
            return runs.get_run(tx, int(number))

    def _build_chooser_for_text(self, message_text: str, person: str, channel: str) -> View:
        policy = self._policies.get_policy()
        found = find_named_hosts(message_text, policy)[:_MAX_NAMED_HOSTS]
        hosts = found or [host.name for host in policy.inventory]
        metadata = {"channel": channel, "hosts": " ".join(found)}
        return self._build_chooser(hosts, found[0] if found else "", person, metadata)

    def _build_chooser_for_host(self, shown: ViewState, host: str, person: str) -> View:
        policy = self._policies.get_policy()
        named = [name for name in shown.metadata.get("hosts", "").split() if name]
        hosts = named or [one.name for one in policy.inventory]
        return self._build_chooser(hosts, host if host in hosts else "", person, shown.metadata)

    def _build_chooser(
        self, hosts: Sequence[str], host: str, person: str, metadata: Mapping[str, str]
    ) -> View:
        can_request = bool(self._list_requestable_words(host, person))
        return render_chooser(hosts, host, metadata, can_request=can_request)

    def _search_runbooks(self, typed: str, host: str, person: str) -> Sequence[Element]:
        """Return the runbooks that a text means, as options: by purpose, not only by name."""
        allowed = self._list_requestable_words(host, person)
        found = [one for one in search_runbooks(typed) if one.words in allowed]
        return [_build_runbook_option(one) for one in found[:_MAX_OPTIONS]]

    def _list_requestable_words(self, host: str, person: str) -> Collection[str]:
        """Return the words of the runbooks that this person may request on a host; "": on any."""
        policy = self._policies.get_policy()
        with self._database.reading(policy.get_view_rights(person)) as tx:
            now = tx.now
        found = self._requestable.get_hosts(policy, person, now=now)
        return {words for words, hosts in found.items() if not host or host in hosts}

    def _list_hosts(self, runbook: type[AnyRunbook] | None, person: str) -> Sequence[str]:
        if runbook is None:
            return [host.name for host in self._policies.get_policy().inventory]
        return list(self._form_options.list_hosts(runbook, person=person, source=_SOURCE))


def _get_option_source_values(runbook: type[AnyRunbook], shown: ViewState) -> dict[str, str]:
    """Return the values of the fields on which the options of others depend.

    Slack sends them when one is chosen, but not with a request for options: in between they are
    stored in the form.
    """
    names = {
        name for form_field in request_form.list_form_fields(runbook) for name in form_field.within
    }
    stored = {name: shown.metadata.get(f"{_STORED_VALUE_PREFIX}{name}", "") for name in names}
    found = {name: shown.values.get(name, stored[name]) for name in names}
    return {name: value for name, value in found.items() if value}


def find_named_hosts(message_text: str, policy: Policy) -> list[str]:
    """Return the hosts in a text, by name or address, in the order of the text."""
    text = message_text.lower()
    addresses = {host.address: host.name for host in policy.inventory}
    all_addresses = [host.address for host in policy.inventory]
    matches = [
        (found.start(), name)
        for found in _WORD_PATTERN.finditer(text)
        if (name := found[0].strip("-")) in policy.inventory.hosts
    ]
    matches += [
        (found.start(), addresses[address])
        for found in _ADDRESS_PATTERN.finditer(text)
        # Several hosts can share an address and differ by port: that is ambiguous.
        if all_addresses.count(address := found[0].strip(".:")) == 1
    ]
    return list(dict.fromkeys(name for _, name in sorted(matches)))


def _describe_request_for_all_hosts(run: Run) -> str:
    """Return how to request a run for several hosts again: a form has only one host."""
    values = resubmit.get_resubmit_values(run)
    command = shlex.join([*run.runbook.split(), *(f"{name}={values[name]}" for name in values)])
    return (
        f"Run {run.id} was for {values['host']}. To request all of them again, type "
        f"{COMMAND} {command}"
    )


def _get_runbook(runbook_name: str) -> type[AnyRunbook]:
    found = load_catalogue().get(runbook_name)
    if found is None:
        raise RequestSyntaxError(
            f"Unknown runbook {quote_text(runbook_name)}: type /keyturn help."
        )
    return found
