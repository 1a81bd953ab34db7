"""Answers to commands that only the person who typed them sees. Pure."""

from collections.abc import Mapping, Sequence

from bot.model.request_form import InvalidValuesError, format_usage, list_form_fields
from bot.model.run import Decision, Run, format_approvers
from bot.slack.aliases import COMMAND
from bot.slack.blocks import (
    Element,
    Message,
    actions,
    bold,
    bullet_list,
    button,
    code,
    format_notification,
    link,
    preformatted,
    rich_text,
    rich_text_section,
    shorten_text,
    text_element,
)
from runbooks import AnyRunbook

# Before a check: it is answered where only the requester reads it.
PRIVATE_CHECK_WORD = "privately"
# Opens the form of the runbook that its value names.
FORM_ACTION = "ask"
_MAX_BUTTONS = 25
_MAX_RUNBOOKS = 60

_COMMAND_HELP = (
    ("help WORDS", "what may be asked for, or all about one of them"),
    ("privately WORDS HOST…", "a check that only you are shown; the log and the pages keep it"),
    ("runs [HOST] [WORDS]", "the newest runs, on a host, with words such as 203.0.113.9 in them"),
    ("changed 02:00 ±30m [HOST]", "what changed around then, on a host or on such as web*"),
    ("run N", "one run"),
    ("approve N PLAN", "turn the second key; PLAN is the ten digits on the card"),
    ("deny N REASON", "end a request before anything is sent"),
    ("withdraw N", "take your own request back"),
    ("stop N", "end a run before its next step"),
    ("stop all because …", "send nothing more to any host until somebody resumes"),
    ("resume because …", "let everything go on; not by who stopped it"),
    ("ban PERSON because …", "shut somebody out at once; unban takes it back"),
    ("undo N", "ask for a run to be taken back"),
    ("again N", "ask again for what a run had, in a form with its values"),
    ("accept N PLAN", "take over what an approver proposes in place of your request"),
    ("counter N field=value", "propose other values for a request; its asker accepts or not"),
    ("delegate to PERSON until TIME", "let somebody decide in your stead; alone, it lists"),
    ("grant PERSON WORDS HOSTS N an hour until TIME", "approve in advance; alone, it lists"),
    ("can-i WORDS HOST…", "whether you may, who would approve it, and how long that takes"),
    ("who [HOST|AREA|@PERSON]", "who has the final say where, and who you are"),
    ("freeze", "which freezes hold, and which come"),
    ("schedules", "what fires by the clock"),
    ("schedule …", "ask for one, look at it, or suspend, resume, end or take it"),
    ("break-glass WORDS because …", "in an emergency: without approvals, and everybody is told"),
    ("review N WORDS", "say what you found where somebody else broke the glass"),
    ("web", "a link to the web pages, for you alone"),
)


# Other words for what stands in the list above.
_COMMAND_SYNONYMS = {
    "grants": "grant",
    "delegations": "delegate",
    "freezes": "freeze",
    "unban": "ban",
}


def render_command_help(word: str) -> Message | None:
    """Explain a word about runs or people, such as `approve`; None if it is none of these."""
    known = _COMMAND_SYNONYMS.get(word.lower(), word.lower())
    found = [
        (typed, does)
        for typed, does in _COMMAND_HELP
        if typed.split()[0] == known or typed == word.lower()
    ]
    if not found:
        return None
    entries = [[code(f"{COMMAND} {typed}"), text_element(f" – {does}")] for typed, does in found]
    title = f"How to type {word.lower()}"
    return Message(
        format_notification(title),
        [rich_text(rich_text_section(bold(title)), bullet_list(*entries))],
    )


def is_private(text: str) -> bool:
    """Return whether a check is to be answered to its requester alone."""
    return text.lower().split(maxsplit=1)[:1] == [PRIVATE_CHECK_WORD]


def format_command_usage(word: str) -> str:
    """Return how a command about one run is typed: `/keyturn approve N PLAN`."""
    known = (typed for typed, _ in _COMMAND_HELP if typed.startswith(f"{word} N"))
    return f"{COMMAND} {next(known, f'{word} N')}"


def build_text_reply(text: str) -> Message:
    """Say one thing in plain words."""
    return Message(
        format_notification(text),
        [rich_text(rich_text_section(text_element(shorten_text(text, 2900))))],
    )


def render_sign_in_link(url: str) -> Message:
    """Hand somebody their own way in to the web pages."""
    told = rich_text_section(
        link(url, "Sign in to the web pages"), text_element(" – once, within ten minutes.")
    )
    return Message("Your link to the web pages", [rich_text(told)])


def render_break_glass_link(run_id: int, url: str) -> Message:
    """Hand somebody their way to where the glass is broken."""
    told = rich_text_section(
        text_element(f"Run {run_id} is asked for. To break its glass, "),
        link(url, "go to its page"),
        text_element(
            " – the link works once, within ten minutes – and show your second factor there."
        ),
    )
    return Message(f"Break the glass of run {run_id} on its page", [rich_text(told)])


def render_overview(runbooks: Sequence[type[AnyRunbook]]) -> Message:
    """List what this person may ask for."""
    if runbooks:
        asked = [_render_runbook_entry(runbook) for runbook in runbooks[:_MAX_RUNBOOKS]]
        parts = [rich_text_section(bold("You may ask for")), bullet_list(*asked)]
    else:
        parts = [
            rich_text_section(
                bold("You may ask for nothing: there is no host for it, or no rule.")
            )
        ]
    also = [
        [code(f"{COMMAND} {typed}"), text_element(f" – {does}")] for typed, does in _COMMAND_HELP
    ]
    because = [
        text_element("End with "),
        code("because …"),
        text_element(" to say why; approvers read it."),
    ]
    parts += [rich_text_section(bold("And")), bullet_list(*also), rich_text_section(*because)]
    return Message("What Keyturn does for you", [rich_text(*parts)])


def render_runbook_family(prefix: str, runbooks: Sequence[type[AnyRunbook]]) -> Message:
    """List the runbooks whose words begin so, each with a button that opens its form."""
    buttons = [
        button(
            one.words, action=f"{FORM_ACTION}-{n}", value=one.words, label=f"Fill in {one.words}"
        )
        for n, one in enumerate(runbooks[:_MAX_BUTTONS])
    ]
    title = f"What begins with {prefix}"
    listed = rich_text(
        rich_text_section(bold(title)), bullet_list(*map(_render_runbook_entry, runbooks))
    )
    return Message(format_notification(title), [listed, actions("family", *buttons)])


def render_runbook_help(runbook: type[AnyRunbook]) -> Message:
    """Show how one runbook is typed, and what belongs into it."""
    fields = [
        [code(blank.name), text_element(f" – {_format_hint(blank.hint, blank.choices)}")]
        for blank in list_form_fields(runbook)
    ]
    example = f"{COMMAND} {runbook.words} {runbook.example}".rstrip()
    parts: list[Element] = [
        rich_text_section(bold(get_runbook_purpose(runbook))),
        rich_text_section(code(f"{COMMAND} {format_usage(runbook)}")),
        bullet_list(*fields),
        rich_text_section(text_element("For example "), code(example)),
    ]
    if runbook.undo:
        parts.append(rich_text_section(text_element(f"Its undo {runbook.undo}.")))
    fill = button(
        "Fill in a form",
        action=f"{FORM_ACTION}-0",
        value=runbook.words,
        label=f"Fill in {runbook.words}",
    )
    return Message(
        format_notification(f"How to type {runbook.words}"),
        [rich_text(*parts), actions("fill", fill)],
    )


def render_invalid_values(runbook: type[AnyRunbook], problem: InvalidValuesError) -> Message:
    """Name every value that does not fit at once."""
    wrong = [[code(name), text_element(f" {what}")] for name, what in problem.problems.items()]
    parts = [rich_text_section(bold("Nothing was asked:")), bullet_list(*wrong)]
    return Message(
        format_notification(f"Nothing was asked: {problem}"),
        [rich_text(*parts), *render_runbook_help(runbook).blocks],
    )


def render_run_list(
    listed_runs: Sequence[Run],
    votes: Mapping[int, Sequence[Decision]],
    *,
    now: int,
    person_names: Mapping[str, str],
    notice: str = "",
) -> Message:
    """List runs, the newest first. names: of people. above: what is to be read before them."""
    if not listed_runs:
        return build_text_reply(notice or "No run fits.")
    rows = [
        (
            f"{run.id}",
            run.status,
            _format_age(now - run.requested_at),
            person_names.get(run.requested_by, run.requested_by),
            run.title + format_approvers(votes.get(run.id, ()), person_names),
        )
        for run in listed_runs
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    text = "\n".join(shorten_text(row, 200) for row in lines)
    return Message(
        "The newest run" if len(listed_runs) == 1 else f"The newest {len(listed_runs)} runs",
        [
            *([rich_text(rich_text_section(bold(notice)))] if notice else []),
            rich_text(
                preformatted(text),
                rich_text_section(text_element("All of one: "), code(f"{COMMAND} run N")),
            ),
        ],
    )


def get_runbook_purpose(runbook: type[AnyRunbook]) -> str:
    return (runbook.__doc__ or runbook.words).strip().splitlines()[0]


def _render_runbook_entry(runbook: type[AnyRunbook]) -> list[Element]:
    return [
        code(f"{COMMAND} {format_usage(runbook)}"),
        text_element(f" – {get_runbook_purpose(runbook)}"),
    ]


def _format_hint(hint: str, choices: Sequence[str]) -> str:
    offered = f"one of {', '.join(choices)}" if choices else ""
    return ": ".join(part for part in (hint, offered) if part) or "a value"


def _format_age(microseconds: int) -> str:
    minutes = microseconds // 60_000_000
    if minutes < 1:
        return "just now"
    if minutes < 120:
        return f"{minutes} min ago"
    return f"{minutes // 60} h ago" if minutes < 48 * 60 else f"{minutes // 1440} days ago"
