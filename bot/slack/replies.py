"""Answers to commands that only the person who typed them sees. Pure."""

from collections.abc import Mapping, Sequence

from bot.model.request_form import InvalidValues, format_usage, list_form_fields
from bot.model.run import Run, Vote, format_approvers
from bot.slack.aliases import COMMAND
from bot.slack.blocks import (
    Element,
    Message,
    actions,
    bold,
    bullets,
    button,
    code,
    line,
    link,
    notification,
    preformatted,
    rich,
    shortened,
    words,
)
from runbooks import AnyRunbook

# Before a check: it is answered where only the requester reads it.
PRIVATELY = "privately"
# Opens the form of the runbook that its value names.
ASK = "ask"
_MOST_BUTTONS = 25
_MOST_RUNBOOKS = 60

_ALSO = (
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
_SAME = {"grants": "grant", "delegations": "delegate", "freezes": "freeze", "unban": "ban"}


def builtin(word: str) -> Message | None:
    """Explain a word about runs or people, such as `approve`; None if it is none of these."""
    known = _SAME.get(word.lower(), word.lower())
    found = [
        (typed, does)
        for typed, does in _ALSO
        if typed.split()[0] == known or typed == word.lower()
    ]
    if not found:
        return None
    entries = [[code(f"{COMMAND} {typed}"), words(f" – {does}")] for typed, does in found]
    title = f"How to type {word.lower()}"
    return Message(notification(title), [rich(line(bold(title)), bullets(*entries))])


def is_private(text: str) -> bool:
    """Return whether a check is to be answered to its requester alone."""
    return text.lower().split(maxsplit=1)[:1] == [PRIVATELY]


def usage_of(word: str) -> str:
    """Return how a command about one run is typed: `/keyturn approve N PLAN`."""
    known = (typed for typed, _ in _ALSO if typed.startswith(f"{word} N"))
    return f"{COMMAND} {next(known, f'{word} N')}"


def reply_text(text: str) -> Message:
    """Say one thing in plain words."""
    return Message(notification(text), [rich(line(words(shortened(text, 2900))))])


def way_in(url: str) -> Message:
    """Hand somebody their own way in to the web pages."""
    told = line(link(url, "Sign in to the web pages"), words(" – once, within ten minutes."))
    return Message("Your link to the web pages", [rich(told)])


def to_the_glass(number: int, url: str) -> Message:
    """Hand somebody their way to where the glass is broken."""
    told = line(
        words(f"Run {number} is asked for. To break its glass, "),
        link(url, "go to its page"),
        words(" – the link works once, within ten minutes – and show your second factor there."),
    )
    return Message(f"Break the glass of run {number} on its page", [rich(told)])


def overview(runbooks: Sequence[type[AnyRunbook]]) -> Message:
    """List what this person may ask for."""
    if runbooks:
        asked = [_entry(runbook) for runbook in runbooks[:_MOST_RUNBOOKS]]
        parts = [line(bold("You may ask for")), bullets(*asked)]
    else:
        parts = [line(bold("You may ask for nothing: there is no host for it, or no rule."))]
    also = [[code(f"{COMMAND} {typed}"), words(f" – {does}")] for typed, does in _ALSO]
    because = [words("End with "), code("because …"), words(" to say why; approvers read it.")]
    parts += [line(bold("And")), bullets(*also), line(*because)]
    return Message("What Keyturn does for you", [rich(*parts)])


def family(beginning: str, runbooks: Sequence[type[AnyRunbook]]) -> Message:
    """List the runbooks whose words begin so, each with a button that opens its form."""
    buttons = [
        button(one.words, action=f"{ASK}-{n}", value=one.words, label=f"Fill in {one.words}")
        for n, one in enumerate(runbooks[:_MOST_BUTTONS])
    ]
    title = f"What begins with {beginning}"
    listed = rich(line(bold(title)), bullets(*map(_entry, runbooks)))
    return Message(notification(title), [listed, actions("family", *buttons)])


def about(runbook: type[AnyRunbook]) -> Message:
    """Show how one runbook is typed, and what belongs into it."""
    fields = [
        [code(blank.name), words(f" – {_hint(blank.hint, blank.choices)}")]
        for blank in list_form_fields(runbook)
    ]
    example = f"{COMMAND} {runbook.words} {runbook.example}".rstrip()
    parts: list[Element] = [
        line(bold(purpose(runbook))),
        line(code(f"{COMMAND} {format_usage(runbook)}")),
        bullets(*fields),
        line(words("For example "), code(example)),
    ]
    if runbook.undo:
        parts.append(line(words(f"Its undo {runbook.undo}.")))
    fill = button(
        "Fill in a form", action=f"{ASK}-0", value=runbook.words, label=f"Fill in {runbook.words}"
    )
    return Message(
        notification(f"How to type {runbook.words}"), [rich(*parts), actions("fill", fill)]
    )


def misfit(runbook: type[AnyRunbook], problem: InvalidValues) -> Message:
    """Name every value that does not fit at once."""
    wrong = [[code(name), words(f" {what}")] for name, what in problem.problems.items()]
    parts = [line(bold("Nothing was asked:")), bullets(*wrong)]
    return Message(
        notification(f"Nothing was asked: {problem}"),
        [rich(*parts), *about(runbook).blocks],
    )


def listing(
    found: Sequence[Run],
    votes: Mapping[int, Sequence[Vote]],
    *,
    now: int,
    names: Mapping[str, str],
    above: str = "",
) -> Message:
    """List runs, the newest first. names: of people. above: what is to be read before them."""
    if not found:
        return reply_text(above or "No run fits.")
    rows = [
        (
            f"{run.id}",
            run.standing,
            _ago(now - run.asked),
            names.get(run.asked_by, run.asked_by),
            run.title + format_approvers(votes.get(run.id, ()), names),
        )
        for run in found
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    text = "\n".join(shortened(row, 200) for row in lines)
    return Message(
        "The newest run" if len(found) == 1 else f"The newest {len(found)} runs",
        [
            *([rich(line(bold(above)))] if above else []),
            rich(preformatted(text), line(words("All of one: "), code(f"{COMMAND} run N"))),
        ],
    )


def purpose(runbook: type[AnyRunbook]) -> str:
    return (runbook.__doc__ or runbook.words).strip().splitlines()[0]


def _entry(runbook: type[AnyRunbook]) -> list[Element]:
    return [code(f"{COMMAND} {format_usage(runbook)}"), words(f" – {purpose(runbook)}")]


def _hint(hint: str, choices: Sequence[str]) -> str:
    offered = f"one of {', '.join(choices)}" if choices else ""
    return ": ".join(part for part in (hint, offered) if part) or "a value"


def _ago(microseconds: int) -> str:
    minutes = microseconds // 60_000_000
    if minutes < 1:
        return "just now"
    if minutes < 120:
        return f"{minutes} min ago"
    return f"{minutes // 60} h ago" if minutes < 48 * 60 else f"{minutes // 1440} days ago"
