"""Ephemeral answers, which only the person who typed the command sees. Pure."""

from collections.abc import Mapping, Sequence

from bot.model.request_form import InvalidValuesError, format_usage, list_form_fields
from bot.model.run import Decision, Run, State, format_approvers, name_requester
from bot.model.run_states import get_run_display
from bot.model.text import align_rows
from bot.slack.aliases import COMMAND
from bot.slack.blocks import (
    Block,
    Element,
    Inline,
    Message,
    actions,
    bold,
    bullet_list,
    code,
    format_notification,
    link,
    paragraph,
    preformatted,
    rich_text,
    rich_text_section,
    shorten_text,
    text_with_code,
)
from bot.slack.buttons import build_chooser_button, build_form_button, fits_button
from runbooks import AnyRunbook

# Before a check: the answer goes to a place that only the requester reads.
PRIVATE_CHECK_WORD = "privately"
_MAX_BUTTONS = 25
_FIND_BLOCK = actions("find", build_chooser_button("Find a runbook"))

_COMMAND_HELP = (
    ("help", "what you can do, by purpose and by host; help commands lists all commands"),
    ("help WORDS", "the details of one runbook, of a subject such as zfs, or of a command"),
    ("privately WORDS HOST…", "a check that only you see in chat; log and web pages record it"),
    ("runs [HOST] [TEXT]", "the newest runs, on a host, or with a text such as 203.0.113.9"),
    ("changed 1h|02:00 [±30m] [HOST]", "what changed in the last hour, or around 02:00"),
    ("run N", "show a run"),
    (
        "plan WORDS HOST…",
        "show what a change would do, and who approves it; request it from there",
    ),
    ("approve N PLAN", "approve a run; PLAN is the ten characters in its Details"),
    ("deny N REASON", "deny a request before anything is sent"),
    ("question N TEXT", "ask the requester of a pending run a question"),
    ("answer N TEXT", "answer the question about your request"),
    ("approve N PLAN at TIME", "approve it, to start no earlier than then"),
    ("hold N because …", "hold an approved run before it starts: it needs its approvals again"),
    ("reassign N PERSON because …", "ask another approver to decide a pending run"),
    ("withdraw N", "withdraw your own request"),
    ("stop N", "stop a run before its next step"),
    ("stop all because …", "send nothing more to any host until another person resumes"),
    ("resume because …", "resume after stop all; not by the person who stopped"),
    ("ban PERSON because …", "ban a person immediately; unban lifts the ban"),
    ("undo N", "request the undo of a run; undo person NAME since 2h: of all that a person did"),
    ("again N", "request a run again, in a form with its values"),
    ("accept N PLAN", "accept an approver's counter-proposal to your request"),
    ("counter N field=value", "propose other values; the requester accepts or withdraws"),
    (
        "delegate to PERSON until TIME",
        "let a person decide on your behalf; alone, list delegations",
    ),
    (
        "grant PERSON WORDS HOSTS N an hour until TIME",
        "approve in advance; alone, list grants",
    ),
    ("can-i WORDS HOST…", "whether you may, who must approve, and how long that usually takes"),
    ("handover", "what is open where you are on duty, or where you are an owner"),
    ("who [HOST|AREA|@PERSON]", "owners of hosts and areas, and the roles of people"),
    ("break-glass WORDS because …", "in an emergency: run without approvals; notifies everyone"),
    ("review N FINDINGS", "review another person's break-glass"),
    ("web", "a personal link that signs you in to the web pages"),
)


# Synonyms of the commands above.
_COMMAND_SYNONYMS = {
    "grants": "grant",
    "delegations": "delegate",
    "unban": "ban",
}


def render_command_help(word: str, added: Sequence[tuple[str, str]] = ()) -> Message | None:
    """Explain a command such as `approve`; return None if *word* is not a command.

    added: the help of features' commands.
    """
    name = _COMMAND_SYNONYMS.get(word.lower(), word.lower())
    entries = [
        _render_command(usage, purpose)
        for usage, purpose in (*_COMMAND_HELP, *added)
        if usage.split()[0] == name or usage == word.lower()
    ]
    if not entries:
        return None
    title = f"Usage of {word.lower()}"
    return Message(
        format_notification(title),
        [rich_text(rich_text_section(bold(title)), bullet_list(*entries))],
    )


def is_private(text: str) -> bool:
    """Return whether only the requester gets the answer of a check."""
    return text.lower().split(maxsplit=1)[:1] == [PRIVATE_CHECK_WORD]


def format_command_usage(word: str) -> str:
    """Return the usage of a command about one run: `/keyturn approve N PLAN`."""
    usages = (usage for usage, _ in _COMMAND_HELP if usage.startswith(f"{word} N"))
    return f"{COMMAND} {next(usages, f'{word} N')}"


def build_text_reply(text: str) -> Message:
    """Return a message of one paragraph of plain text; what is between backticks is code."""
    return Message(
        format_notification(text),
        [paragraph(*text_with_code(shorten_text(text, 2900)))],
    )


def build_outcome_reply(run: Run) -> Message:
    """Return how a run has ended."""
    return build_text_reply(f"{run.title}: {run.summary}")


def build_reply_if_ended(run: Run) -> Message | None:
    """Return how a run has ended at once; None if not: its card shows how it continues."""
    return build_outcome_reply(run) if run.is_ended else None


def render_sign_in_link(url: str) -> Message:
    """Render a person's link to the web pages, which works once."""
    line = rich_text_section(
        link(url, "Sign in to the web pages"), " – works once, within ten minutes."
    )
    return Message("Your link to the web pages", [rich_text(line)])


def render_break_glass_link(run: Run, url: str) -> Message:
    """Render a person's link to the page where they confirm break-glass."""
    is_planning = run.state is State.PLANNING
    line = rich_text_section(
        f"Run {run.id} is {'being planned' if is_planning else 'waiting'}. To use break-glass, ",
        link(url, "open its page"),
        " – the link works once, within ten minutes – and confirm with your second factor.",
        " If it needs no approval, it starts by itself or from its page." if is_planning else "",
    )
    return Message(f"Confirm break-glass for run {run.id} on its page", [rich_text(line)])


def render_page_link(notice: str, url: str) -> Message:
    """Render a sentence, with a person's link to the page of the run that it is about."""
    line = rich_text_section(
        f"{notice}. ", link(url, "Open its page"), " – the link works once, within ten minutes."
    )
    return Message(format_notification(notice), [rich_text(line)])


def render_commands(added: Sequence[tuple[str, str]] = ()) -> Message:
    """List the commands. added: the help of features' commands."""
    commands = [_render_command(usage, purpose) for usage, purpose in (*_COMMAND_HELP, *added)]
    reason = ["Add ", code("because …"), " to give a reason, which approvers see."]
    parts = [
        rich_text_section(bold("Commands")),
        bullet_list(*commands),
        rich_text_section(*reason),
    ]
    return Message("Commands", [rich_text(*parts), _FIND_BLOCK])


def render_suggestion(typed: str, *, has_form: bool) -> Message:
    """Show the command for what a mention says, and a button that opens its form filled in."""
    command = f"{COMMAND} {typed}"
    line = rich_text_section("Nothing was requested. Type ", code(shorten_text(command, 2900)))
    notification = format_notification(f"Nothing was requested. Type {command}")
    if not has_form or not fits_button([typed]):
        return Message(notification, [rich_text(line)])
    return Message(notification, [rich_text(line), _render_form_button(typed)])


def render_runbook_family(prefix: str, runbooks: Sequence[type[AnyRunbook]]) -> Message:
    """List the runbooks that begin with *prefix*, each with a button that opens its form."""
    buttons = [
        build_form_button(one.words, one.words, n=n)
        for n, one in enumerate(runbooks[:_MAX_BUTTONS])
    ]
    title = f"Runbooks that begin with “{prefix}”"
    listed = rich_text(
        rich_text_section(bold(title)), bullet_list(*map(_render_runbook_entry, runbooks))
    )
    return Message(format_notification(title), [listed, actions("family", *buttons)])


def render_runbook_help(runbook: type[AnyRunbook], typed: str = "") -> Message:
    """Show the purpose, usage and fields of one runbook. typed: the request, for its form."""
    fields = [
        [
            code(form_field.name),
            *text_with_code(f" – {_format_hint(form_field.hint, form_field.choices)}"),
        ]
        for form_field in list_form_fields(runbook)
    ]
    example = f"{COMMAND} {runbook.words} {runbook.example}".rstrip()
    parts: list[Element] = [
        rich_text_section(bold(get_runbook_purpose(runbook).replace("`", ""))),
        rich_text_section(code(f"{COMMAND} {format_usage(runbook)}")),
        bullet_list(*fields),
        rich_text_section("Example: ", code(example)),
    ]
    if runbook.undo:
        parts.append(rich_text_section(*text_with_code(f"Undo {runbook.undo}.")))
    return Message(
        format_notification(f"Usage of {runbook.words}"),
        [rich_text(*parts), _render_form_button(typed or runbook.words)],
    )


def render_invalid_values(
    runbook: type[AnyRunbook], problem: InvalidValuesError, typed: str = ""
) -> Message:
    """List all invalid values, with the usage of the runbook and its form.

    typed: the request with the valid values, for the form.
    """
    problems = [[code(name), f" {text}"] for name, text in problem.problems.items()]
    parts = [rich_text_section(bold("Request not sent:")), bullet_list(*problems)]
    return Message(
        format_notification(f"Request not sent: {problem}"),
        [rich_text(*parts), *render_runbook_help(runbook, typed).blocks],
    )


def render_run_list(
    listed_runs: Sequence[Run],
    decisions: Mapping[int, Sequence[Decision]],
    *,
    now: int,
    person_names: Mapping[str, str],
    notice: str = "",
) -> Message:
    """List runs, the newest first. notice: a text above the list."""
    if not listed_runs:
        return build_text_reply(notice or "No run matches.")
    rows = [
        (
            f"{run.id}",
            get_run_display(run).label,
            _format_age(now - run.requested_at),
            name_requester(run, person_names),
            run.title + format_approvers(decisions.get(run.id, ()), person_names),
        )
        for run in listed_runs
    ]
    text = "\n".join(shorten_text(line, 200) for line in align_rows(rows))
    return Message(
        "The newest run" if len(listed_runs) == 1 else f"The newest {len(listed_runs)} runs",
        [
            *([paragraph(bold(notice))] if notice else []),
            rich_text(
                preformatted(text),
                rich_text_section("Details: ", code(f"{COMMAND} run N")),
            ),
        ],
    )


def get_runbook_purpose(runbook: type[AnyRunbook]) -> str:
    """Return the first line of the runbook's docstring."""
    return (runbook.__doc__ or runbook.words).strip().splitlines()[0]


def _render_command(usage: str, purpose: str) -> list[Inline]:
    return [code(f"{COMMAND} {usage}"), f" – {purpose}"]


def _render_form_button(typed: str) -> Block:
    """Render the button that opens the form of a request, with its values."""
    return actions("fill", build_form_button("Open form", typed))


def _render_runbook_entry(runbook: type[AnyRunbook]) -> list[Inline]:
    return [
        code(f"{COMMAND} {format_usage(runbook)}"),
        *text_with_code(f" – {get_runbook_purpose(runbook)}"),
    ]


def _format_hint(hint: str, choices: Sequence[str]) -> str:
    options = f"one of {', '.join(choices)}" if choices else ""
    return ": ".join(part for part in (hint, options) if part) or "a value"


def _format_age(microseconds: int) -> str:
    minutes = microseconds // 60_000_000
    if minutes < 1:
        return "just now"
    if minutes < 120:
        return f"{minutes} min ago"
    return f"{minutes // 60} h ago" if minutes < 48 * 60 else f"{minutes // 1440} days ago"
