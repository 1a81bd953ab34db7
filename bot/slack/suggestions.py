"""Answers to requests in plain words: filled forms, and what to do about a host. Pure."""

import shlex
from collections.abc import Sequence

from bot.model.plain_request import Suggestion
from bot.model.request_form import list_form_fields
from bot.model.text import escape_to_one_line
from bot.policy import Policy
from bot.slack import replies
from bot.slack.aliases import COMMAND
from bot.slack.blocks import (
    Element,
    Inline,
    Message,
    actions,
    bold,
    bullet_list,
    code,
    format_notification,
    paragraph,
    rich_text,
    rich_text_section,
    shorten_text,
    text_with_code,
)
from bot.slack.buttons import (
    CommandButton,
    build_chooser_button,
    build_form_button,
    build_read_button,
    fits_button,
)

_FITS = "Nothing was requested yet."


def render_suggestions(
    found: Sequence[Suggestion], *, notice: str = "", reason: str = ""
) -> Message:
    """Render what a plain request can mean, with a button that opens each form filled in.

    notice: why it was not requested. reason: what was typed behind "because".
    """
    reason = escape_to_one_line(reason)
    typed = [_format_typed(one, reason) for one in found]
    if not fits_button(typed):
        typed = [_format_typed(one, "") for one in found]
    is_one = len(found) == 1
    buttons = [
        _build_button(one, text, n=n, is_one=is_one)
        for n, (one, text) in enumerate(zip(found, typed, strict=True))
    ]
    find = build_chooser_button("Find another", n=len(buttons))
    lines = [_describe(one, reason) for one in found]
    question = "Do you mean this?" if is_one else "Do you mean one of these?"
    parts: list[Element] = [
        rich_text_section(f"{notice or _FITS}\n", bold(question)),
        bullet_list(*lines),
    ]
    text = ", ".join(_format_command(one) for one in found)
    return Message(
        format_notification(f"{notice or _FITS} {question} {text}"),
        [rich_text(*parts), actions("suggestions", *buttons, find)],
    )


def _build_button(suggestion: Suggestion, typed: str, *, n: int, is_one: bool) -> Element:
    """Return the button that opens the form of a request; one on several hosts is a command."""
    if "," not in suggestion.values.get("host", ""):
        text = "Open form" if is_one else _label(suggestion)
        return build_form_button(text, typed, n=n, main=is_one)
    text = "Request" if is_one else _label(suggestion)
    built = CommandButton(shorten_text(text, 60), typed).build(n=n)
    return built | ({"style": "primary"} if is_one else {})


def render_withheld(suggestion: Suggestion, policy: Policy, *, notice: str = "") -> Message:
    """Render that the policy does not allow this person what fits, and who may know more."""
    host = suggestion.values.get("host", "")
    where = f" on {host}" if host else ""
    line = (
        f"{notice} {suggestion.runbook.words}{where} fits, but the policy does not allow you to "
        "request it."
    ).strip()
    owners = ""
    if host:
        names = ", ".join(map(policy.get_person_name, policy.get_area(host).owners))
        owners = f" Ask an owner of {policy.get_area(host).title}: {names}."
    can_i = f"can-i {suggestion.runbook.words} {host}".strip()
    buttons = [build_read_button("Who may", can_i, n=0)] if host else []
    buttons += [build_read_button("Who decides", f"who {host}".strip(), n=1)]
    return Message(
        format_notification(f"{line}{owners}"),
        [
            paragraph(f"{line}{owners}"),
            actions("withheld", *buttons, build_chooser_button("Find another")),
        ],
    )


def render_host(host: str, policy: Policy) -> Message:
    """Render what people do about a host."""
    tags = ", ".join(sorted(policy.inventory[host].tags)) or "no tags"
    return Message(
        f"{host}: choose what to do",
        [
            paragraph(bold(host), f" ({tags}) is in {policy.get_area(host).title}."),
            actions(
                f"host-{host}",
                build_chooser_button("Choose a check or change", host=host) | {"style": "primary"},
                build_read_button("What changed today", f"changed 24h {host}", n=0),
                build_read_button("Latest runs", f"runs {host}", n=1),
                build_read_button("Who decides", f"who {host}", n=2),
            ),
        ],
    )


def render_not_understood(notice: str) -> Message:
    """Render that no runbook fits, with the ways to find one."""
    text = f"{notice} Or name what you want to do, and where."
    return Message(
        format_notification(text),
        [
            paragraph(text),
            actions(
                "find",
                build_chooser_button("Find a runbook"),
                build_read_button("Help", "help", n=0),
            ),
        ],
    )


def _format_typed(suggestion: Suggestion, reason: str) -> str:
    typed = shlex.join(suggestion.list_words())
    return f"{typed} because {reason}" if reason else typed


def _label(suggestion: Suggestion) -> str:
    host = suggestion.values.get("host", "")
    return f"{suggestion.runbook.words} {host}".strip()


def _format_command(suggestion: Suggestion) -> str:
    """Return the request as people type it, with the names of fields that are missing."""
    words = suggestion.runbook.words.split()
    for form_field in list_form_fields(suggestion.runbook):
        value = suggestion.values.get(form_field.name, "")
        if form_field.required:
            words.append(shlex.quote(value) if value else form_field.name.upper())
        elif value:
            words.append(f"{form_field.name}={shlex.quote(value)}")
    return " ".join(words)


def _describe(suggestion: Suggestion, reason: str) -> list[Inline]:
    because = f" because {reason}" if reason else ""
    command = shorten_text(f"{COMMAND} {_format_command(suggestion)}{because}", 1000)
    purpose = replies.get_runbook_purpose(suggestion.runbook)
    return [code(command), *text_with_code(f" – {purpose}")]
