"""The first screen of chat: what this person can do, by purpose and by host."""

import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.db import search
from bot.db.database import Database
from bot.model import request_form
from bot.model.run import Run
from bot.model.text import format_count
from bot.policy import Policy
from bot.queries.suggestions import RequestableHosts, RequestableRunbooks
from bot.slack.aliases import COMMAND
from bot.slack.blocks import (
    Block,
    Inline,
    Message,
    actions,
    bold,
    bullet_list,
    code,
    paragraph,
    rich_text,
    rich_text_section,
)
from bot.slack.buttons import (
    build_chooser_button,
    build_form_button,
    build_read_button,
    fits_button,
)
from runbooks import load_catalogue

_MAX_PURPOSES, _MAX_HOSTS, _MAX_NAMED, _MAX_RECENT = 6, 5, 3, 3
_MAX_READ_RUNS = 15
_CACHE_SECONDS, _MAX_CACHED = 5.0, 500


@dataclass(frozen=True)
class HelpScreen:
    """What the first screen shows one person."""

    requestable: RequestableHosts
    recent: Sequence[Run] = ()
    """Their own requests, newest first."""

    @property
    def frequent_requests(self) -> Sequence[str]:
        """Their last request and the ones that they made most often, as typed."""
        usable = [run for run in self.recent if run.runbook in self.requestable]
        typed = [one for run in usable if (one := _format_typed_request(run))]
        often = [one for one, _ in Counter(typed).most_common()]
        return list(dict.fromkeys([*typed[:1], *often]))[:_MAX_RECENT]

    @property
    def purposes(self) -> Mapping[str, Sequence[str]]:
        """Runbooks by their first word, those of their own requests first."""
        groups: dict[str, list[str]] = {}
        used = [run.runbook for run in self.recent if run.runbook in self.requestable]
        tagged = sorted(self.requestable, key=lambda words: (len(self.requestable[words]), words))
        for words in (*used, *tagged):
            groups.setdefault(words.split()[0], [])
        for words in self.requestable:
            groups[words.split()[0]].append(words)
        return groups

    @property
    def hosts(self) -> Sequence[str]:
        """Hosts that the person may touch, those of their own requests first."""
        known = {host for hosts in self.requestable.values() for host in hosts}
        used = [run.host for run in self.recent if run.host in known]
        return list(dict.fromkeys([*used, *sorted(known)]))


class HelpScreens:
    """Reads and renders the first screen, at most once in some seconds for each person."""

    def __init__(self, database: Database, requestable: RequestableRunbooks) -> None:
        self._database, self._requestable = database, requestable
        self._cache: dict[tuple[str, bool], tuple[Policy, float, Message]] = {}

    def render(self, policy: Policy, person: str, *, is_welcome: bool = False) -> Message:
        """Render the first screen of a person. is_welcome: it is their first contact."""
        known = self._cache.get((person, is_welcome))
        if known and known[0] is policy and time.monotonic() < known[1]:
            return known[2]
        with self._database.reading(policy.get_view_rights(person)) as tx:
            wanted = search.RunFilter(person=person)
            recent = search.find_newest_runs(tx, wanted, most=_MAX_READ_RUNS)
            requestable = self._requestable.get_hosts(policy, person, now=tx.now)
        message = render_help_screen(HelpScreen(requestable, recent), is_welcome=is_welcome)
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[person, is_welcome] = policy, time.monotonic() + _CACHE_SECONDS, message
        return message


def _format_typed_request(run: Run) -> str:
    """Return the request of a run as it is typed; "" if it is not valid any more."""
    runbook = load_catalogue().get(run.runbook)
    values = {name: value for name, value in run.values.items() if value}
    try:
        request = request_form.parse_values(runbook, values) if runbook else None
    except request_form.RequestSyntaxError:
        return ""
    return shlex.join(request_form.list_request_words(request)) if request else ""


def render_help_screen(screen: HelpScreen, *, is_welcome: bool = False) -> Message:
    """Render what a person can do, with a button for each."""
    text = "Welcome to Keyturn" if is_welcome else "Keyturn help"
    if not screen.requestable:
        line = "You cannot request anything: no host or no rule allows it."
        return Message(text, [_render_intro(), paragraph(bold(line)), _render_rest(screen)])
    blocks = [_render_intro(), *_render_frequent(screen)]
    if not is_welcome:
        blocks += _render_purposes(screen)
    return Message(text, [*blocks, *_render_hosts(screen), _render_rest(screen), *_render_hints()])


def _render_intro() -> Block:
    return paragraph(
        bold("Keyturn checks and changes production hosts."),
        " Checks run at once. You see the plan of a change before you request it, and another "
        "person approves it. Every run is in the change log.",
    )


def _render_frequent(screen: HelpScreen) -> list[Block]:
    typed = screen.frequent_requests
    if not typed or not fits_button(typed):
        return []
    buttons = [build_form_button(one, one, n=n) for n, one in enumerate(typed)]
    return [paragraph(bold("Your last and most frequent requests")), actions("recent", *buttons)]


def _render_purposes(screen: HelpScreen) -> list[Block]:
    purposes = list(screen.purposes.items())
    shown = purposes[:_MAX_PURPOSES]
    lines = [_describe_purpose(first, words, screen) for first, words in shown]
    if left := len(purposes) - len(shown):
        lines.append([f"and {format_count(left, 'more subject')}: find them by a word"])
    buttons = [
        build_read_button(first, f"help {first}", n=n) for n, (first, _) in enumerate(shown)
    ]
    title = rich_text_section(bold("By purpose"))
    return [rich_text(title, bullet_list(*lines)), actions("purposes", *buttons)]


def _describe_purpose(first: str, words: Sequence[str], screen: HelpScreen) -> list[Inline]:
    """Describe `abusers: clear, mark, show on lb1 and lb2`."""
    named = ", ".join(one.removeprefix(f"{first} ") for one in words)
    hosts = list(dict.fromkeys(host for one in words for host in screen.requestable[one]))
    return [bold(first), f": {named} – on {_join_hosts(hosts)}"]


def _join_hosts(hosts: Sequence[str]) -> str:
    more = len(hosts) - _MAX_NAMED
    shown = ", ".join(hosts[:_MAX_NAMED])
    return f"{shown} and {format_count(more, 'more host')}" if more > 0 else shown


def _render_hosts(screen: HelpScreen) -> list[Block]:
    hosts = screen.hosts
    buttons = [
        build_chooser_button(host, host=host, n=n) for n, host in enumerate(hosts[:_MAX_HOSTS])
    ]
    more = len(hosts) - _MAX_HOSTS
    rest = f", and {format_count(more, 'more host')}" if more > 0 else ""
    return [paragraph(bold("By host"), rest), actions("hosts", *buttons)]


def _render_rest(screen: HelpScreen) -> Block:
    """Render the search of all runbooks, and what everyone may look at."""
    find = [build_chooser_button("Find a runbook")] if screen.requestable else []
    return actions(
        "rest",
        *find,
        build_read_button("What changed today", "changed 24h", n=0),
        build_read_button("Latest runs", "runs", n=1),
        build_read_button("Who decides", "who", n=2),
    )


def _render_hints() -> list[Block]:
    return [
        rich_text(
            rich_text_section(
                "Or type what you want, such as ",
                code(f"{COMMAND} unblock 203.0.113.9 on lb1 because …"),
                ": Keyturn answers with the form. ",
                code(f"{COMMAND} help commands"),
                " lists all commands.",
            )
        )
    ]
