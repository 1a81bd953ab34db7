"""Hostile text of people, hosts and files stays text on every page."""

import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from markupsafe import Markup

from bot.audit import change_log, events
from bot.audit.event_type import UnknownEvent
from bot.db import live_output, runs
from bot.db.database import Transaction
from bot.db.live_output import NewestLines
from bot.db.run_progress import RunProgressPart
from bot.model.plan import PlannedStep, ResolvedPlan
from bot.model.run import Decision, RequestOrigin, State, StepRecord, StepState
from bot.web import fanout_chart, templating
from connectors.command import Shell, SwitchLines
from runbooks import Report, Table
from tests.bot.features.tables import collect
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import add_sample_runs
from tests.campaigns import CHAOS
from tests.events import build_event

_ACTING = {"Cc", "Cf", "Cs", "Zl", "Zp"}

HOSTILE = {
    "a script": "<script>alert(1)</script>",
    "a picture": "<img src=x onerror=alert(1)>",
    "a broken attribute": '" onmouseover="alert(1)" x=\'',
    "a broken attribute with single quotes": "' onmouseover='alert(1)",
    "the end of a pre": "</code></pre></div><h1>Approved by Olga Owner</h1><pre>",
    "the end of a title": "</title><script>alert(1)</script>",
    "the end of a text area": "</textarea><svg onload=alert(1)>",
    "a comment": "<!-- <b>",
    "an entity": "&lt;b&gt; &#60;b&#62;",
    "a template": "{{ 7*7 }} {% include '/etc/passwd' %} ${7*7}",
    "htmx": '<div hx-get="https://evil.example" hx-trigger="load">',
    "a colour": "\x1b[31mred\x1b[0m",
    "a title of a terminal": "\x1b]0;owned\x07",
    "a link of a terminal": "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "a C1 control": "\x9b31mred\x85next",
    "text that runs backwards": "\u202etxt.exe\u202c \u2066\u2069\u200f\u061c",
    "nothing to see": "a\u200b\u200d\ufeff\u00adb",
    "other line ends": "a\u2028b\u2029c\rd",
    "a backspace": "rm -rf /\b\b\b\b\b\b\b\bls",
    "a link": "javascript:alert(1)",
}
# One of each: a tag, the end of an attribute and of a title, a template, what a terminal acts on,
# what is not seen, what parts lines, and an address. `make chaos` tries all.
SAMPLE = (
    *("a script", "a broken attribute", "the end of a title", "a template"),
    *("a colour", "text that runs backwards", "other line ends", "a link"),
)
TRIED = [*HOSTILE] if CHAOS else SAMPLE


def _plant(tx: Transaction, text: str) -> int:
    """Put *text* into every field of a run that was denied, failed and finished all at once."""
    odd = text.replace("\0", "")
    run = runs.add_run(
        tx,
        runs.NewRun(
            runbook=odd[:80],
            kind="change",
            values={"host": odd, odd: odd},
            host=odd[:64],
            area=odd[:64],
            requested_by=odd[:64],
            origin=RequestOrigin(odd, odd, odd),
            reason=odd,
            request=odd,
        ),
    )
    step = PlannedStep(odd, odd, odd, _shell(odd), SwitchLines(_shell(odd).words), "", odd, odd)
    last = replace(step, command=Shell(("true",)), undo=None, no_undo_reason=odd)
    proposal = ResolvedPlan(odd, odd, run.values, odd, tx.now, odd, odd, (step, last), (odd,))
    shown = runs.amend_run(
        tx,
        run,
        plan=proposal,
        digest=odd[:64],
        expires_at=tx.now,
        report=Report(odd, False, (odd,), Table((odd, odd), ((odd, odd),))),
        policy_notes=(odd,),
        approver_groups=("owners",),
        required_approvals=1,
    )
    waiting = runs.move_run(tx, shown, State.PENDING)
    runs.add_decision(tx, Decision(run.id, odd[:64], True, odd[:64], tx.now, odd))
    runs.add_decision(tx, Decision(run.id, "olga", False, odd[:64], tx.now, odd))
    for n, state in ((1, StepState.SUCCEEDED), (2, StepState.FAILED)):
        runs.record_intent(tx, run.id, n)
        runs.record_outcome(tx, StepRecord(run.id, n, state, 0, tx.now, 1, odd, odd))
    unknown = UnknownEvent(kind=odd[:32], facts={"summary": odd, "list": [odd], odd: {odd: odd}})
    for event in (*(build_event(each, odd) for each in events.EVENT_TYPES), unknown):
        change_log.append_entry(tx, event, run=run.id, person=odd[:64], host=odd[:64])
    runs.move_run(tx, waiting, State.DENIED, ended_at=tx.now, summary=odd)
    return run.id


def _shell(text: str) -> Shell:
    """Return a command with what of the text a command may hold at all."""
    seen = "".join(c for c in text if unicodedata.category(c) not in _ACTING)
    return Shell(("echo", seen), stdin=seen)


def _unseen(html: str) -> set[str]:
    return {c for c in html if unicodedata.category(c) in _ACTING} - {"\n", "\t"}


@pytest.mark.parametrize("kind", TRIED)
def test_hostile_text_in_a_run_stays_text_on_every_page(site: Site, kind: str) -> None:
    text = HOSTILE[kind]
    with site.database.transaction() as tx:
        number = _plant(tx, text)
        live_output.store_lines(tx, [NewestLines(number, 1, 1, text)])
    browser = site.browser("olga")
    same = f"/runs/compare?a={number}&b={number}"
    paths = ["/", "/runs", f"/runs/{number}", f"/runs/{number}/live", same, "/changelog"]
    paths += ["/changes?within=1+day", "/hosts", "/hosts/lb1"]
    # Of what features add, every page that is there without further records of theirs.
    paths += [
        path.format(number=number, name="lb1")
        for (method, path), (_, status) in collect("PAGES").items()
        if (method, status) == ("GET", 200)
    ]
    for path in paths:
        answer = browser.get(path)
        assert answer.status_code == 200, path
        assert Page(answer.text).strange == [], path
        assert _unseen(answer.text) == set(), path


@pytest.mark.parametrize("kind", TRIED)
def test_hostile_text_in_addresses_and_forms_stays_text(site: Site, kind: str) -> None:
    text = HOSTILE[kind]
    run = add_sample_runs(site.database)["pending"]
    browser = site.browser("olga")
    names = ("host", "person", "runbook", "state", "since", "until", "before", "done", "next")
    answers = [
        browser.get("/runs", params=dict.fromkeys(names, text)),
        browser.get("/changelog", params=dict.fromkeys((*names, "kind"), text)),
        browser.get("/changes", params=dict.fromkeys(("at", "within", "host"), text)),
        browser.get("/hosts", params=dict.fromkeys(("host", "tag", "area", "status"), text)),
        browser.get("/runbooks/form", params={"runbook": "uptime check", "host": text}),
        browser.post("/runbooks", data={"runbook": "uptime check", "field-host": text}),
        browser.post("/views", data={"name": text, "query": text}),
        browser.get(f"/runs/{run}", params={"done": text}),
        browser.get(f"/runs/{run}/live", params={"stamp": text}),
        browser.get("/sign-in/x", params={"next": text}),
        browser.post(f"/runs/{run}/approve", data={"digest": text, "reason": text}),
        browser.post(f"/runs/{run}/resolve", data={"outcome": text, "reason": text}),
        browser.get("/" + quote(text)),
    ]
    for answer in answers:
        assert answer.status_code < 500
        assert Page(answer.text).strange == []
        assert _unseen(answer.text) == set()


def test_person_name_with_markup_stays_text(site: Site) -> None:
    people = site.policy / "people.yaml"
    odd = people.read_text().replace("Dora Developer", "Dora <b>D</b> & “Co”")
    people.write_text(odd)
    number = add_sample_runs(site.database)["pending"]
    browser = site.browser("dora")
    for path in ("/", "/runs", f"/runs/{number}"):
        page = Page(browser.get(path).text)
        assert page.strange == []
        assert "Dora <b>D</b> & “Co”" in page.text


def test_terminal_escape_sequences_are_shown_escaped(site: Site) -> None:
    with site.database.transaction() as tx:
        number = _plant(tx, "\x1b[31mred\u202e")
    words = Page(site.browser("olga").get(f"/runs/{number}").text).text
    assert "\\x1b[31mred\\u202e" in words


def test_without_control_escaping_terminal_sequences_reach_the_page(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templating, "escape_control", str)
    with site.database.transaction() as tx:
        number = _plant(tx, HOSTILE["a colour"])
    assert "\x1b" in _unseen(site.browser("olga").get(f"/runs/{number}").text)


def test_without_html_escaping_hostile_markup_reaches_the_page(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templating, "make_visible", Markup)
    monkeypatch.setattr(templating, "load_templates", cache(templating.load_templates.__wrapped__))
    with site.database.transaction() as tx:
        number = _plant(tx, HOSTILE["a picture"])
    assert Page(site.browser("olga").get(f"/runs/{number}").text).strange != []


@pytest.mark.parametrize("exhibit", ["pending", "succeeded", "unknown", "checked", "running"])
def test_run_pages_have_valid_markup_unique_ids_and_labels(
    seen: tuple[Site, Mapping[str, int]], exhibit: str
) -> None:
    site, numbers = seen
    page = Page(site.browser("olga").get(f"/runs/{numbers[exhibit]}").text)
    assert page.strange == []
    assert len(page.ids) == len(set(page.ids))
    assert page.unlabelled == []


@pytest.mark.parametrize("path", ["/", "/runs", "/changelog", "/runs?host=gone1"])
@pytest.mark.parametrize("person", ["olga", ""])
def test_list_pages_have_valid_markup_unique_ids_and_labels(
    seen: tuple[Site, Mapping[str, int]], path: str, person: str
) -> None:
    page = Page(seen[0].browser(person).get(path).text)
    assert page.strange == []
    assert len(page.ids) == len(set(page.ids))
    assert page.unlabelled == []


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_streamed_host_summary_equals_the_summary_of_a_new_page(text: str):
    part = RunProgressPart(1, 1, "lb1", State.FAILED, 1, None, f"type `{text}`, {text}")
    [row] = fanout_chart.render_host_rows([part], State.RUNNING)
    page = templating.render_part(
        "run_hosts.html",
        run=SimpleNamespace(id=1, state=State.RUNNING, started_at=1, is_sequence=False),
        view=SimpleNamespace(children=[part]),
        fanout=fanout_chart.build_fanout_chart([part], replace(part, ended_at=2), now=3),
        hosts_phase="",
        streamed=False,
    )
    assert f"<span data-summary>{row['summary']}</span></td>" in page
    assert Page(str(row["summary"])).strange == []


def test_backticks_become_code_and_their_content_is_escaped():
    text = "ask `zfs scrub <b>`, or `\u202e`; a lone ` stays, as do `two\nlines`"
    assert templating.render_code(text) == (
        "ask <code>zfs scrub &lt;b&gt;</code>, or <code>\\u202e</code>; a lone ` stays, as do "
        "`two\nlines`"
    )
