"""Rows of the two long tables: drawn here, since templates would take most of a page's time.

Whatever stands in a row is made visible and escaped by `shown`, as in a template.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from markupsafe import Markup

from bot.audit.change_log import Entry
from bot.db.search import ListedRun
from bot.model import times
from bot.model.run import Run, Vote
from bot.web.run_timeline import facts, plainly
from bot.web.shown import to_shown_text

# Says what a person is called, or draws that.
Draw = Callable[[str], str]
# A fact that is longer is folded away, and one that is as long as a hash is shortened.
_LONG, _HASH, _SHORT = 160, 64, 12
# So many rows are kept, and none of an entry that says more than this: some megabytes in all.
_ROWS, _LITTLE = 1024, 4_000
_NOBODY = (
    '<td role="cell" data-label="Approved by" class="kt-none">'
    '<span class="text-secondary" aria-label="nobody">–</span></td>'
)
_NO_FACT: tuple[object, ...] = ("", None, [], {})
_NO_RUN = '<span class="text-secondary" aria-label="none">–</span>'
_NOT_STARTED = '<span class="text-secondary" aria-label="not started">–</span>'


def time(at: int) -> Markup:
    """Draw a moment; the browser's script writes it in the reader's own zone."""
    said = times.format_utc(at)
    iso = f"{said[:10]}T{said[11:19]}Z"
    return Markup(f'<time datetime="{iso}" title="{said}" data-moment>{said}</time>')  # noqa: S704 - digits of ours


def took(run: Run | ListedRun, now: int) -> str:
    """Say how long a run took, or takes so far."""
    if run.started is None:
        return Markup(_NOT_STARTED)  # noqa: S704 - ours
    if run.ended is None:
        return f"{times.format_span(now - run.started)} so far"
    return times.format_span(run.ended - run.started)


def of_runs(
    runs: Iterable[Run | ListedRun],
    votes: Mapping[int, Sequence[Vote]],
    name: Draw,
    state: Draw,
    *,
    now: int,
    with_host: bool,
) -> Markup:
    """Draw a row of each run. name: what a person is called. state: draws its badge."""

    def drawn(run: Run | ListedRun) -> str:
        keys = _keys([vote for vote in votes.get(run.id, ()) if vote.yes], name)
        goes_on = run.started and run.ended is None
        if goes_on or run.hosts or isinstance(run, Run):
            return _run_drawn(run, name(run.asked_by), keys, state, with_host, now)
        return _of_run(run, name(run.asked_by), keys, state, with_host)

    return Markup("".join(map(drawn, runs)))  # noqa: S704 - each part is shown, or ours


def of_entries(entries: Iterable[Entry], name: Draw, *, with_run: bool) -> Markup:
    """Draw a row of each entry of the change log, with its facts. name: as above."""
    rows = [
        (_of_entry if len(str(entry.body)) <= _LITTLE else _entry_drawn)(
            entry, name(entry.person), with_run
        )
        for entry in entries
    ]
    return Markup("".join(rows))  # noqa: S704 - each part is shown, or ours


def _run_drawn(
    run: Run | ListedRun,
    name: str,
    keys: str,
    state: Draw,
    with_host: bool,  # noqa: FBT001 - a key
    now: int = 0,
) -> str:
    waits = "" if run.started else " kt-none"
    return (
        f'<tr role="row">\n<td role="cell" class="kt-what"><a href="/runs/{run.id}" '
        f'class="kt-title">{to_shown_text(run.title)}</a>'
        f'<span class="kt-number">run {run.id}</span>'
        f'</td>\n<td role="cell">{state(run.standing)}</td>\n{_host(run) if with_host else ""}'
        f'<td role="cell" data-label="Asked by">{_who(run.asked_by, name)}</td>\n{keys}\n'
        f'<td role="cell" data-label="When" class="text-nowrap">{time(run.asked)}</td>\n'
        f'<td role="cell" data-label="Took" class="text-nowrap{waits}">'
        f"{to_shown_text(took(run, now))}</td>\n</tr>\n"
    )


def _entry_drawn(entry: Entry, name: str, with_run: bool) -> str:  # noqa: FBT001 - a key
    person = (
        _who(entry.person, name) if entry.person else '<span class="text-secondary">Keyturn</span>'
    )
    digest = to_shown_text(entry.hash)
    return (
        f'<tr role="row" id="entry-{entry.seq}">\n<td role="cell" class="text-secondary" '
        f'data-label="No.">{entry.seq}</td>\n<td role="cell" class="kt-what"><strong>'
        f"{to_shown_text(entry.kind)}</strong></td>\n"
        f'<td role="cell" data-label="Who">{person}</td>\n'
        f"{_run(entry.run) if with_run else ''}"
        f'<td role="cell" data-label="When" class="text-nowrap">{time(entry.at)}</td>\n'
        f'<td role="cell" data-label="Hash"><code title="{digest}">{digest[:_SHORT]}</code>'
        f'</td>\n<td role="cell" class="kt-wide">{_told(facts(entry))}</td>\n</tr>\n'
    )


# Pages show the newest again and again, and most of them are over: each row is drawn once of all
# that stands in it. Not of many hosts, which is long, and not of what goes on: it takes longer.
_of_run = lru_cache(_ROWS)(_run_drawn)
_of_entry = lru_cache(_ROWS)(_entry_drawn)


# The same people again and again.
@lru_cache(4096)
def _who(person: str, name: str) -> str:
    return f'<span title="{to_shown_text(person)}">{to_shown_text(name)}</span>'


def _host(run: Run | ListedRun) -> str:
    host = to_shown_text(run.host)
    drawn = f'<a class="kt-mono" href="/hosts/{host}">{host}</a>'
    if run.hosts:
        drawn = (
            f'<span title="{to_shown_text(", ".join(run.hosts))}">{len(run.hosts)} hosts</span>'
        )
    return f'<td role="cell" data-label="Host">{drawn}</td>\n'


def _keys(keys: Sequence[Vote], name: Draw) -> str:
    """Draw who approved, and in whose stead."""
    if not keys:
        return _NOBODY

    def who(person: str) -> str:
        return _who(person, name(person))

    drawn = ", ".join(
        f"{who(vote.person)} for {who(vote.instead_of)}" if vote.instead_of else who(vote.person)
        for vote in keys
    )
    return f'<td role="cell" data-label="Approved by">\n{drawn}\n</td>'


def _run(number: int | None) -> str:
    drawn = f'<a href="/runs/{number}">run {number}</a>' if number else _NO_RUN
    return f'<td role="cell" data-label="Run" class="text-nowrap">{drawn}</td>\n'


def _told(facts: Mapping[str, object]) -> str:
    drawn = [
        _fact(to_shown_text(name), plainly(fact))
        for name, fact in facts.items()
        if fact not in _NO_FACT
    ]
    return f'<dl class="kt-facts">\n{"".join(drawn)}</dl>\n'


def _fact(name: str, text: str) -> str:
    said = to_shown_text(text)
    if len(text) > _LONG or "\n" in text:
        said = (
            f"<details><summary>{len(text)} characters</summary>"
            f'<pre tabindex="0" aria-label="{name}">{said}</pre></details>'
        )
    elif len(text) == _HASH and " " not in text:
        said = f'<code title="{said}">{to_shown_text(text[:_SHORT])}</code>'
    return f"<div><dt>{name}</dt><dd>{said}</dd></div>\n"
