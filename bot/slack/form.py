"""The forms: a runbook's fields as a modal, and the choice of one. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot.forms import Blank, blanks
from bot.slack.answers import COMMAND, purpose
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
from bot.visible import one_line
from runbooks import AnyRunbook

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
        return frozenset(name for blank in blanks(self.runbook) for name in blank.within)


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
        for blank in blanks(runbook)
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
    return 0 < len(value) <= _MOST_OPTION and one_line(value) == value


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


def _input(blank: Blank, sheet: Sheet) -> Block:
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


def _element(blank: Blank, sheet: Sheet) -> Element:
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
    return {"type": "plain_text", "text": one_line(text), "emoji": False}
