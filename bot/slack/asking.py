"""Asking by form: opens one, offers what may be chosen in it, and takes it in."""

import asyncio
import logging
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from aiohttp import ClientError
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot import again, forms
from bot.foresight import foresee
from bot.forms import Misfit, NotUnderstood
from bot.offering import Offering
from bot.outlook import Question
from bot.policy import Policy
from bot.run import Origin, Run
from bot.slack import form, threads
from bot.slack.answers import COMMAND
from bot.slack.commands import Blank
from bot.slack.form import BECAUSE, FORM, HOST_BLOCK, WHAT_BLOCK, Sheet, View
from bot.slack.payloads import Shown
from bot.slack.sentences import sentence
from bot.slack.voice import error_of, is_away
from bot.store import runs, seen
from bot.store.database import Database
from bot.text import fold_text
from bot.workflow import NotYours, TooLate, Unfit, Workflow
from bot.workflow.parts import Policies
from connectors.command import UncleanText, quote_text
from runbooks import AnyRunbook, catalogue
from runbooks._catalogue import kind

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
    """Raises what bot.slack.listeners answers in words."""

    def __init__(
        self,
        workflow: Workflow,
        database: Database,
        policies: Policies,
        offering: Offering,
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
                answer = await self._client.views_open(trigger_id=trigger, view=form.loading())
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            log.warning("no form could be opened: %s", trouble)
            return False
        opened: Mapping[str, str] = answer.get("view") or {}
        name = opened.get("id", "")
        try:
            view = await threads.answered(filled)
        except Exception:
            said = "This form could not be filled in. Close it: Keyturn tells you why."
            await self._draw(name, "", form.notice("Keyturn", said))
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
        runbook = _runbook(shown.about.get("words", ""))
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
        runbook = catalogue().get(shown.about.get("words", ""))
        if shown.block == HOST_BLOCK:
            hosts = await threads.answered(self._hosts, runbook, person)
            return form.options(hosts, shown.typed, free=False)
        blanks = forms.blanks(runbook) if runbook else []
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
        return form.options(values, shown.typed, free=True)

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
        runbook = _runbook(chosen)
        hosts = list(self._offering.hosts(runbook, person=person, door=_DOOR))
        if host not in hosts:
            return {block: f"You may not ask for {runbook.words} on {host}."}
        return self._form(runbook, hosts, person, shown.about, host)

    def submit(self, shown: Shown, *, person: str) -> Errors:
        """Ask for what the form says, once. Returns what is wrong, by block; nothing if asked."""
        runbook = _runbook(shown.about.get("words", ""))
        reason = shown.values.get(BECAUSE, "")
        names = [blank.name for blank in forms.blanks(runbook)]
        try:
            fold_text(reason)
            given = {name: shown.values[name] for name in names if name in shown.values}
            request = forms.from_values(runbook, given)
        except UncleanText as unclean:
            return {BECAUSE: f"This {unclean}."}
        except Misfit as misfit:
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
            if not seen.first_time(tx, key):
                return {HOST_BLOCK: "This form was handed in already: look at /keyturn runs."}
        try:
            run = ask()
        except (NotUnderstood, NotYours, TooLate, Unfit) as no:
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
            seen.forget(tx, key)

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
            return form.notice(runbook.words, said, "/keyturn help lists what you may ask for.")
        policy = self._policies.current()
        over = self._asked_again(policy, person, about)
        given: Mapping[str, str] = again.values(over) if over else {}
        wanted = host or given.get("host", "")
        host = wanted if wanted in hosts else hosts[0] if len(hosts) == 1 else ""
        tags = {blank.tag for blank in forms.blanks(runbook) if blank.kind == "host"}
        others = {
            tag: [found.name for found in policy.inventory.tagged(tag or None)] for tag in tags
        }
        told = list(self._outlook(policy, runbook, host, person)) if host else []
        told += [_all_of(over)] if over and over.hosts else []
        return form.form(Sheet(runbook, hosts, about, host, told, others, given))

    def _asked_again(self, policy: Policy, person: str, about: Mapping[str, str]) -> Run | None:
        """Return the run whose values stand in a form from the start."""
        number = about.get("again")
        if not number:
            return None
        with self._database.reading(policy.sight(person)) as tx:
            return runs.get(tx, int(number))

    def _outlook(
        self, policy: Policy, runbook: type[AnyRunbook], host: str, person: str
    ) -> Sequence[str]:
        with self._database.reading(policy.sight(person)) as tx:
            meant = Question(runbook, (host,))
            return foresee(tx, policy, meant, person=person, door=_DOOR).sentences()

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
            may = [one for one in catalogue().values() if self._may(one, host, person)]
        groups = [
            ("Look", [one for one in may if kind(one) == "check"]),
            ("Change", [one for one in may if kind(one) == "change"]),
        ]
        return form.chooser(hosts, host, groups, about)

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
    names = {name for blank in forms.blanks(runbook) for name in blank.within}
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
    values = again.values(run)
    typed = shlex.join([*run.words.split(), *(f"{name}={values[name]}" for name in values)])
    return f"Run {run.id} was for {values['host']}: for all of them, type {COMMAND} {typed}"


def _runbook(wanted: str) -> type[AnyRunbook]:
    found = catalogue().get(wanted)
    if found is None:
        raise NotUnderstood(
            f"There is no runbook {quote_text(wanted)} any more: type /keyturn help."
        )
    return found
