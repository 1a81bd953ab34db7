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
from bot.model.plain_text import fold_text
from bot.model.request_form import FormField, InvalidValues, NotUnderstood, list_form_fields
from bot.model.run import Origin, Run
from bot.model.text import escape_to_one_line, sentence
from bot.policy import Policy
from bot.policy.explain import PreviewQuestion
from bot.service import Workflow
from bot.slack import threads
from bot.slack.blocks import (
    Block,
    Element,
    View,
    code,
    context,
    line,
    mrkdwn,
    rich,
    shortened,
    words,
)
from bot.slack.client import error_of, is_away
from bot.slack.commands import Blank
from bot.slack.payloads import Shown
from bot.slack.replies import COMMAND, purpose
from bot.workflow import resubmit
from bot.workflow.approvals import NotAllowed, TooLate
from bot.workflow.context import Policies
from bot.workflow.form_options import FormOptions
from bot.workflow.preview import preview_request
from bot.workflow.requests import InvalidRequest
from connectors.command import InvisibleCharacterError, quote_text
from runbooks import AnyRunbook, load_catalogue
from runbooks._catalogue import get_kind

# Callbacks and actions, as they come back.
FORM, CHOOSER, ABOUT_HOST = "form", "chooser", "about-host"
ABOUT_HOST_NAME = "Ask about this host"
HOST, VALUE, WHAT = "form-host", "form-value", "form-what"
HOST_BLOCK, WHAT_BLOCK, BECAUSE = "host", "what", "because"

_MOST_TITLE = 24
_MOST_OPTIONS = 100
_MOST_OPTION = 75
_MOST_REASON = 1000
_MOST_TYPED = 3000
_YES_NO: Mapping[str, str] = {"false": "No", "true": "Yes"}


@dataclass(frozen=True)
class Sheet:
    """A form before it is drawn. hosts: those that may be chosen; host: the chosen one, or "".

    about: what is kept in it. told: what would come of it, in sentences.
    others: hosts by tag, for fields that name one beside the target.
    given: values that stand in it from the start, by field.
    """

    runbook: type[AnyRunbook]
    hosts: Sequence[str]
    about: Mapping[str, str]
    host: str = ""
    told: Sequence[str] = ()
    others: Mapping[str, Sequence[str]] = ()  # pyright: ignore[reportAssignmentType] - read only
    given: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def tells(self) -> frozenset[str]:
        """The fields that say where the host looks for what others list."""
        return frozenset(name for blank in list_form_fields(self.runbook) for name in blank.within)


def loading() -> View:
    """Hold the place of a form: Slack leaves three seconds to open one."""
    return _modal("Keyturn", [rich(line(words("One moment …")))])


def notice(title: str, *said: str) -> View:
    """Say something in the place of a form."""
    return _modal(title, [rich(line(words(shortened(one, 2900)))) for one in said])


def form(sheet: Sheet) -> View:
    runbook = sheet.runbook
    blocks: list[Block] = [rich(line(words(purpose(runbook)))), _outlook(sheet)]
    # What needs an answer stands first: on a telephone the rest is scrolled to by those who care.
    filled = [
        replace(blank, default=sheet.given.get(blank.name, blank.default))
        for blank in list_form_fields(runbook)
    ]
    fields = sorted(filled, key=lambda blank: (blank.name != HOST_BLOCK, not blank.required))
    blocks += [_input(blank, sheet) for blank in fields]
    blocks.append(_because())
    typed = f"{COMMAND} {runbook.words} {runbook.example}".rstrip()
    blocks.append(rich(line(words("Typed, it is for example "), code(typed))))
    return _modal(
        runbook.words,
        blocks,
        callback=FORM,
        submit="Ask",
        about={**sheet.about, "words": runbook.words, "host": sheet.host},
    )


def chooser(
    hosts: Sequence[str],
    host: str,
    offered: Sequence[tuple[str, Sequence[type[AnyRunbook]]]],
    about: Mapping[str, str],
) -> View:
    """Offer what may be asked for about a host. offered: groups of runbooks by their headings."""
    groups = [
        {"label": _plain(heading), "options": [_runbook(one) for one in found[:_MOST_OPTIONS]]}
        for heading, found in offered
        if found
    ]
    blocks: list[Block] = [_host_input(hosts, host)]
    if groups:
        select = {
            "type": "static_select",
            "action_id": WHAT,
            "placeholder": _plain("Choose what to ask for"),
            "option_groups": groups,
        }
        # Another host offers other things: a new block forgets what was chosen for the old one.
        blocks.append(_labelled(f"{WHAT_BLOCK}-{host}", "What", select))
        return _modal("Ask Keyturn", blocks, callback=CHOOSER, submit="Next", about=about)
    if host:
        told = f"The policy lets you ask for nothing on {host}."
        blocks.append(rich(line(words(told))))
    return _modal("Ask Keyturn", blocks, callback=CHOOSER, submit="Next", about=about)


def options(values: Sequence[str], typed: str, *, free: bool) -> list[Element]:
    """Return what fits what was typed so far; free: that itself may be chosen too."""
    wanted = typed.strip().lower()
    found = [value for value in values if wanted in value.lower() and _offerable(value)]
    plain = typed.strip()
    if free and plain not in found and _offerable(plain):
        found = [*found[: _MOST_OPTIONS - 1], plain]
    return [_option(value) for value in found[:_MOST_OPTIONS]]


def _offerable(value: str) -> bool:
    """Return whether Slack takes it for an option, and people see all of it."""
    return 0 < len(value) <= _MOST_OPTION and escape_to_one_line(value) == value


def _modal(
    title: str,
    blocks: Sequence[Block],
    *,
    callback: str = "",
    submit: str = "",
    about: Mapping[str, str] | None = None,
) -> View:
    view: View = {
        "type": "modal",
        "title": _plain(shortened(title, _MOST_TITLE)),
        "close": _plain("Cancel" if submit else "Close"),
        "blocks": list(blocks),
    }
    if callback:
        view |= {"callback_id": callback, "private_metadata": json.dumps(about)}
    return view | ({"submit": _plain(submit)} if submit else {})


def _outlook(sheet: Sheet) -> Block:
    said = sheet.told or ["Choose a host to see whether it takes an approval, and whose."]
    return {**context(" ".join(map(mrkdwn, said))), "block_id": f"outlook-{sheet.host}"}


def _input(blank: FormField, sheet: Sheet) -> Block:
    if blank.name == HOST_BLOCK:
        return _host_input(sheet.hosts, sheet.host)
    block = _labelled(blank.name, blank.label, _element(blank, sheet))
    if blank.hint:
        # Plain text has no way to mark words that are typed.
        block["hint"] = _plain(shortened(blank.hint.replace("`", ""), 500))
    if blank.name in sheet.tells and blank.lists:
        # Slack tells nothing of the other fields while it looks for options.
        block["dispatch_action"] = True
    return block if blank.required else block | {"optional": True}


def _element(blank: FormField, sheet: Sheet) -> Element:
    if blank.kind == "choice" or blank.kind == "host":
        offered = blank.choices if blank.kind == "choice" else sheet.others[blank.tag]
        return _select(offered, blank.default)
    if blank.lists:
        return {
            "type": "external_select",
            "action_id": VALUE,
            "min_query_length": 0,
            "placeholder": _plain("Choose, or type it"),
            **_initial(blank.default),
        }
    typed = {"type": "plain_text_input", "action_id": VALUE}
    fits = 0 < len(blank.default) <= _MOST_TYPED
    return typed | ({"initial_value": blank.default} if fits else {})


def _host_input(hosts: Sequence[str], host: str) -> Block:
    if len(hosts) > _MOST_OPTIONS:
        select: Element = {"type": "external_select", "min_query_length": 0, **_initial(host)}
    else:
        select = _select(hosts, host)
    select |= {"action_id": HOST, "placeholder": _plain("Choose a host")}
    return _labelled(HOST_BLOCK, "Host", select) | {"dispatch_action": True}


def _because() -> Block:
    typed = {
        "type": "plain_text_input",
        "action_id": VALUE,
        "multiline": True,
        "max_length": _MOST_REASON,
        "placeholder": _plain("Whoever approves it reads this"),
    }
    return _labelled(BECAUSE, "Why", typed) | {"optional": True}


def _labelled(block: str, label: str, element: Element) -> Block:
    return {"type": "input", "block_id": block, "label": _plain(label), "element": element}


def _select(values: Sequence[str], initial: str) -> Element:
    found = [_option(value) for value in values[:_MOST_OPTIONS]]
    select: Element = {
        "type": "static_select",
        "action_id": VALUE,
        "placeholder": _plain("Choose"),
        "options": found,
    }
    # What is chosen from the start must be among what may be chosen.
    return select | (_initial(initial) if _option(initial) in found else {})


def _initial(value: str) -> Element:
    return {"initial_option": _option(value)} if _offerable(value) else {}


def _option(value: str) -> Element:
    return {"text": _plain(_YES_NO.get(value, value)), "value": value}


def _runbook(runbook: type[AnyRunbook]) -> Element:
    described = _plain(shortened(purpose(runbook), _MOST_OPTION))
    return {**_option(runbook.words), "description": described}


def _plain(text: str) -> Element:
    return {"type": "plain_text", "text": escape_to_one_line(text), "emoji": False}


log = logging.getLogger(__name__)

# A trigger lives three seconds.
_TRIGGER_SECONDS = 2.5
# How long somebody who looks for an option waits for a host that was not read ahead.
# What is chosen in a form and kept in it, by field.
_TOLD = "told-"
_LOOK_SECONDS = 1.5
# How long what Slack did not take waits before it is tried once more.
_AGAIN_SECONDS = 1.0
# Slack's words for a form that was closed meanwhile, or drawn anew for a later choice.
_DRAWN_ELSEWHERE = frozenset({"not_found", "hash_conflict"})
_DOOR = "slack"
_MOST_FOUND = 10
_WORD = re.compile(r"[a-z0-9][a-z0-9-]*")
_ADDRESS = re.compile(r"[0-9a-f]*[.:][0-9a-f.:]+")

Errors = dict[str, str]


class Asking:
    """Raises what bot.slack.actions answers in words."""

    def __init__(
        self,
        workflow: Workflow,
        database: Database,
        policies: Policies,
        offering: FormOptions,
        client: AsyncWebClient,
    ) -> None:
        self._workflow, self._database, self._policies = workflow, database, policies
        self._offering, self._client = offering, client

    # --- opening ---

    async def open(self, blank: Blank, *, trigger: str, person: str, at: str) -> bool:
        """Open a form; False if nobody sees it whole. at: C…, where it was typed."""
        about = {"channel": at} | ({"again": str(blank.again)} if blank.again else {})

        def filled() -> View:
            hosts = list(self._offering.hosts(blank.runbook, person=person, door=_DOOR))
            return self._form(blank.runbook, hosts, person, about)

        return await self._opened(trigger, filled)

    async def about_hosts(self, said: str, *, trigger: str, person: str, at: str) -> bool:
        """Offer what may be asked for about the hosts that a message names, or about any.

        False if nobody sees it whole.
        """
        return await self._opened(trigger, lambda: self._choice(said, person, at))

    async def _opened(self, trigger: str, filled: Callable[[], View]) -> bool:
        try:
            async with asyncio.timeout(_TRIGGER_SECONDS):
                answer = await self._client.views_open(trigger_id=trigger, view=loading())
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            log.warning("no form could be opened: %s", trouble)
            return False
        opened: Mapping[str, str] = answer.get("view") or {}
        name = opened.get("id", "")
        try:
            view = await threads.answered(filled)
        except Exception:
            said = "This form could not be filled in. Close it: Keyturn tells you why."
            await self._draw(name, "", notice("Keyturn", said))
            raise
        return await self._draw(name, "", view)

    async def _draw(self, view_id: str, view_hash: str, view: View) -> bool:
        """Draw a form anew, trying twice; False if it stays as it was though somebody sees it."""
        for wait in (_AGAIN_SECONDS, 0.0):
            try:
                await self._client.views_update(view_id=view_id, hash=view_hash or None, view=view)
            except SlackApiError as refused:
                log.warning("a form was not brought up to date: %s", error_of(refused))
                if not is_away(refused):
                    return error_of(refused) in _DRAWN_ELSEWHERE
            except (SlackClientError, ClientError, TimeoutError) as trouble:
                log.warning("a form was not brought up to date: %s", type(trouble).__name__)
            else:
                return True
            await asyncio.sleep(wait)
        return False

    # --- while it is filled in ---

    async def chosen(self, shown: Shown, *, person: str) -> None:
        """Draw the form for the host that was chosen, and read ahead what that lists."""
        host = shown.values.get(HOST_BLOCK, "")
        if shown.callback != FORM:
            view = await threads.answered(self._chooser, shown, host, person)
            await self._draw(shown.id, shown.hash, view)
            return
        runbook = _asking_runbook(shown.about.get("words", ""))
        host = host or shown.about.get("host", "")
        values = _told(runbook, shown)
        kept = {f"{_TOLD}{name}": value for name, value in values.items()}
        about = {**shown.about, **kept}

        def filled() -> View:
            hosts = list(self._offering.hosts(runbook, person=person, door=_DOOR))
            return self._form(runbook, hosts, person, about, host)

        await self._draw(shown.id, shown.hash, await threads.answered(filled))
        await self._look(runbook, host, person, values)

    async def options(self, shown: Shown, *, person: str) -> Sequence[Any]:
        """Return what may be chosen for what was typed; from memory, or after a short look."""
        runbook = load_catalogue().get(shown.about.get("words", ""))
        if shown.block == HOST_BLOCK:
            hosts = await threads.answered(self._hosts, runbook, person)
            return options(hosts, shown.typed, free=False)
        blanks = request_form.list_form_fields(runbook) if runbook else []
        blank = next((blank for blank in blanks if blank.name == shown.block), None)
        if runbook is None or blank is None:
            return []
        host = shown.values.get(HOST_BLOCK) or shown.about.get("host", "")
        values: Sequence[str] = ()
        if host:
            told = _told(runbook, shown)
            await self._look(runbook, host, person, told)
            values = await threads.answered(
                self._offering.values,
                runbook,
                blank,
                host=host,
                person=person,
                door=_DOOR,
                given=told,
            )
        return options(values, shown.typed, free=True)

    async def _look(
        self, runbook: type[AnyRunbook], host: str, person: str, given: Mapping[str, str]
    ) -> None:
        look = asyncio.to_thread(
            self._offering.look, runbook, host=host, person=person, door=_DOOR, given=given
        )
        with suppress(TimeoutError):
            # The thread goes on without us, and is heard the next time.
            async with asyncio.timeout(_LOOK_SECONDS):
                await look

    # --- handing it in ---

    def next(self, shown: Shown, *, person: str) -> View | Errors:
        """Return the form for what was chosen, or what is wrong with the choice."""
        host = shown.values.get(HOST_BLOCK, "")
        block = f"{WHAT_BLOCK}-{host}"
        chosen = shown.values.get(block, "")
        if not chosen:
            return {HOST_BLOCK: "Choose a host on which you may ask for something."}
        runbook = _asking_runbook(chosen)
        hosts = list(self._offering.hosts(runbook, person=person, door=_DOOR))
        if host not in hosts:
            return {block: f"You may not ask for {runbook.words} on {host}."}
        return self._form(runbook, hosts, person, shown.about, host)

    def submit(self, shown: Shown, *, person: str) -> Errors:
        """Ask for what the form says, once. Returns what is wrong, by block; nothing if asked."""
        runbook = _asking_runbook(shown.about.get("words", ""))
        reason = shown.values.get(BECAUSE, "")
        names = [blank.name for blank in request_form.list_form_fields(runbook)]
        try:
            fold_text(reason)
            given = {name: shown.values[name] for name in names if name in shown.values}
            request = request_form.parse_values(runbook, given)
        except InvisibleCharacterError as unclean:
            return {BECAUSE: f"This {unclean}."}
        except InvalidValues as misfit:
            return {
                name if name in names else HOST_BLOCK: what.partition(" It is typed")[0]
                for name, what in misfit.problems.items()
            }
        origin = Origin(_DOOR, shown.about.get("channel", ""), shown.account.user)
        return self._once(
            shown,
            lambda: self._workflow.ask(request, person=person, origin=origin, reason=reason),
        )

    def _once(self, shown: Shown, ask: Callable[[], Run]) -> Errors:
        """Ask, unless this very form was handed in before; what was refused may be again."""
        key = f"slack form {shown.id}"
        with self._database.transaction() as tx:
            if not dedup.remember_first(tx, key):
                return {HOST_BLOCK: "This form was handed in already: look at /keyturn runs."}
        try:
            run = ask()
        except (NotUnderstood, NotAllowed, TooLate, InvalidRequest) as no:
            self._again(key)
            return {HOST_BLOCK: sentence(str(no))}
        except Exception:
            self._again(key)
            raise
        if not run.over:
            return {}
        self._again(key)
        return {HOST_BLOCK if shown.values.get(BECAUSE) else BECAUSE: run.summary}

    def _again(self, key: str) -> None:
        with self._database.transaction() as tx:
            dedup.forget_key(tx, key)

    # --- what stands in it ---

    def _form(
        self,
        runbook: type[AnyRunbook],
        hosts: Sequence[str],
        person: str,
        about: Mapping[str, str],
        host: str = "",
    ) -> View:
        if not hosts:
            said = f"The policy lets you ask for {runbook.words} on no host."
            return notice(runbook.words, said, "/keyturn help lists what you may ask for.")
        policy = self._policies.current()
        over = self._asked_again(policy, person, about)
        given: Mapping[str, str] = resubmit.resubmit_values(over) if over else {}
        wanted = host or given.get("host", "")
        host = wanted if wanted in hosts else hosts[0] if len(hosts) == 1 else ""
        tags = {
            blank.tag for blank in request_form.list_form_fields(runbook) if blank.kind == "host"
        }
        others = {
            tag: [found.name for found in policy.inventory.list_tagged(tag or None)]
            for tag in tags
        }
        told = list(self._outlook(policy, runbook, host, person)) if host else []
        told += [_all_of(over)] if over and over.hosts else []
        return form(Sheet(runbook, hosts, about, host, told, others, given))

    def _asked_again(self, policy: Policy, person: str, about: Mapping[str, str]) -> Run | None:
        """Return the run whose values stand in a form from the start."""
        number = about.get("again")
        if not number:
            return None
        with self._database.reading(policy.sight(person)) as tx:
            return runs.get_run(tx, int(number))

    def _outlook(
        self, policy: Policy, runbook: type[AnyRunbook], host: str, person: str
    ) -> Sequence[str]:
        with self._database.reading(policy.sight(person)) as tx:
            meant = PreviewQuestion(runbook, (host,))
            return preview_request(tx, policy, meant, person=person, door=_DOOR).sentences()

    def _choice(self, said: str, person: str, at: str) -> View:
        policy = self._policies.current()
        found = named_in(said, policy)[:_MOST_FOUND]
        hosts = found or [host.name for host in policy.inventory]
        about = {"channel": at, "hosts": " ".join(found)}
        return self._offered(hosts, found[0] if found else "", person, about)

    def _chooser(self, shown: Shown, host: str, person: str) -> View:
        policy = self._policies.current()
        known = [name for name in shown.about.get("hosts", "").split() if name]
        hosts = known or [one.name for one in policy.inventory]
        return self._offered(hosts, host if host in hosts else "", person, shown.about)

    def _offered(
        self, hosts: Sequence[str], host: str, person: str, about: Mapping[str, str]
    ) -> View:
        may: list[type[AnyRunbook]] = []
        if host:
            may = [one for one in load_catalogue().values() if self._may(one, host, person)]
        groups = [
            ("Look", [one for one in may if get_kind(one) == "check"]),
            ("Change", [one for one in may if get_kind(one) == "change"]),
        ]
        return chooser(hosts, host, groups, about)

    def _may(self, runbook: type[AnyRunbook], host: str, person: str) -> bool:
        return self._offering.may(runbook, host=host, person=person, door=_DOOR)

    def _hosts(self, runbook: type[AnyRunbook] | None, person: str) -> Sequence[str]:
        if runbook is None:
            return [host.name for host in self._policies.current().inventory]
        return list(self._offering.hosts(runbook, person=person, door=_DOOR))


def _told(runbook: type[AnyRunbook], shown: Shown) -> dict[str, str]:
    """Return what is filled in of the fields that say where the host looks for others.

    Slack says it when one of them is chosen, and not while somebody looks for options: until the
    next choice it is kept in the form.
    """
    names = {name for blank in request_form.list_form_fields(runbook) for name in blank.within}
    kept = {name: shown.about.get(f"{_TOLD}{name}", "") for name in names}
    found = {name: shown.values.get(name, kept[name]) for name in names}
    return {name: value for name, value in found.items() if value}


def named_in(said: str, policy: Policy) -> list[str]:
    """Return the hosts that a text names, by name or address, in the order of the text."""
    text = said.lower()
    addresses = {host.address: host.name for host in policy.inventory}
    shared = [host.address for host in policy.inventory]
    meant = [
        (found.start(), name)
        for found in _WORD.finditer(text)
        if (name := found[0].strip("-")) in policy.inventory.hosts
    ]
    meant += [
        (found.start(), addresses[address])
        for found in _ADDRESS.finditer(text)
        # Behind one address there may be several, told apart by their ports.
        if shared.count(address := found[0].strip(".:")) == 1
    ]
    return list(dict.fromkeys(name for _, name in sorted(meant)))


def _all_of(run: Run) -> str:
    """Say how it is asked again of several hosts: a form has one."""
    values = resubmit.resubmit_values(run)
    typed = shlex.join([*run.words.split(), *(f"{name}={values[name]}" for name in values)])
    return f"Run {run.id} was for {values['host']}: for all of them, type {COMMAND} {typed}"


def _asking_runbook(wanted: str) -> type[AnyRunbook]:
    found = load_catalogue().get(wanted)
    if found is None:
        raise NotUnderstood(
            f"There is no runbook {quote_text(wanted)} any more: type /keyturn help."
        )
    return found
