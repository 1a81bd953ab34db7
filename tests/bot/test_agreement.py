"""What every source shows of a run agrees with its view: state, approvals, times, actions."""

import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.audit import change_log, events
from bot.cli.formatting import format_run_details
from bot.db import break_glass, runs
from bot.db.database import Transaction
from bot.db.runs import NoSuchRun
from bot.execution.gate import record_waiting
from bot.features.mcp.results import RunResult
from bot.features.notices.mail_server import MailServer
from bot.features.notices.sender import NoticeSender, render_digest
from bot.model.run import RequestTerms, State
from bot.model.run_states import describe_outcome, starts_later
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.model.times import format_deadline, format_iso
from bot.model.waiting import Waiting, WaitingFor
from bot.queries import timeline
from bot.queries.run_view import RunView, Viewer, build_run_view
from bot.slack.replies import render_run_list
from bot.slack.run_facts import SlackRunViewBuilder
from bot.slack.run_message import render_card, render_decided, render_result
from bot.web import compare
from tests.bot.api.conftest import HERE, create_api_harness
from tests.bot.duties import add_calendar
from tests.bot.harness import WEB, Harness, open_harness
from tests.bot.restricted_view import restricted_rules
from tests.bot.slack.json_walk import list_mentions, list_texts, walk_objects
from tests.bot.web.conftest import create_site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import (
    add_ended_run,
    add_pending_run,
    add_planned_run,
    add_requested_run,
    add_sample_runs,
    approve,
)
from tests.policies import TEAM
from tests.slack_emulator.blockkit import faults_of_blocks
from tests.toy import SetSwitch, ShowSwitches

# Dora requested most, and may view the web servers only. Olga and Adam own the edge, and Stan
# decides on behalf of Adam. All but Dora administrate, and view everything.
VIEWERS = ("dora", "olga", "adam", "stan")
NIGHTLY = ScheduleTiming("nightly", parse_cron("0 3 * * *", "Europe/Amsterdam"))
_HOUR = 3_600_000_000
# The form of each action on the page. The others are offered where they make sense.
FORMS = {
    "approve": "approve",
    "deny": "deny",
    "accept": "accept",
    "submit": "request",
    "resolve": "resolve",
    "undo": "undo",
    "ask": "question",
    "answer": "answer",
    "reassign": "reassign",
    "review": "review",
}
COMMANDS = {"approve": "approve", "submit": "submit", "accept": "accept", "review": "review"}
FREEZE = (
    'freezes: [{name: fair, areas: [web], from: "1999-01-01 00:00", until: "2199-01-01 00:00"}]'
)
# A zone whose times are not those of UTC at any hour of the year.
ZONE = "Asia/Kolkata"


@dataclass
class Shown:
    """What one person is shown of one run."""

    view: RunView
    api: Mapping[str, Any]
    html: str
    page: Page
    card: str
    mentions: list[str]
    card_times: list[int]
    """In seconds since 1970. Slack shows them in the zone of each reader."""

    @property
    def actions(self) -> set[str]:
        return {*self.view.allowed_actions.names}


@dataclass(frozen=True)
class RecordingServer(MailServer):
    """A mail server that keeps what it is given: recipient, subject and text."""

    sent: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])

    def send(self, recipient: str, subject: str, text: str, *, message_id: str) -> None:  # noqa: ARG002
        self.sent.append((recipient, subject, text))


@dataclass
class Gallery:
    harness: Harness
    numbers: list[int]
    mail: Sequence[tuple[str, str, str]]
    """Recipient, subject and text."""


def _add_runs_through_the_service(harness: Harness) -> None:
    service = harness.service
    lamp = SetSwitch(host="lb1", name="lamp", value="on")
    edited = harness.request(lamp)
    service.propose_values(
        edited.id, person="olga", changed_values={"value": "dim"}, reason="too bright"
    )
    asked = harness.request(lamp, reason="a customer")
    service.ask_question(asked.id, person="adam", text="which one?")
    service.reassign_run(asked.id, person="adam", assignee="olga", reason="yours")
    harness.approve(harness.request(SetSwitch(host="web1", name="lamp", value="on")))
    for value, approves in (("on", True), ("dim", False)):
        both = [SetSwitch(host=host, name="lamp", value=value) for host in ("lb1", "lb2")]
        run = service.request_on_hosts(both, RequestTerms("dora", WEB), host_pattern="lb*")
        harness.run_queued_work()
        if approves:
            harness.approve(harness.get_run(run.id))
    lamps = [SetSwitch(host=host, name="fan", value="on") for host in ("lb1", "lb2")]
    service.request_on_hosts(lamps, RequestTerms("dora", WEB, plan_only=True), host_pattern="lb*")
    for host in ("lb1", "web1"):
        service.request_on_hosts(
            [ShowSwitches(host=host)], RequestTerms("dora", WEB, timing=NIGHTLY), host_pattern=""
        )
    harness.run_queued_work()


def _add_runs_of_other_states(harness: Harness) -> None:
    with harness.database.transaction() as tx:
        add_planned_run(tx)
        approved = approve(tx, add_pending_run(tx, add_requested_run(tx, host="web1")))
        runs.move_run(tx, approved, State.STARTING)
        for state in (State.REFUSED, State.EXPIRED, State.WITHDRAWN, State.SUPERSEDED):
            add_ended_run(tx, add_pending_run(tx, add_requested_run(tx)), state, "It is over")
        stopped = add_pending_run(tx, add_requested_run(tx, host="web1"), state=State.QUEUED)
        add_ended_run(tx, stopped, State.STOPPED, "Olga Owner stopped it")
        add_pending_run(tx, add_requested_run(tx, host="web1"), needed=2)


def _add_runs_without_approval(harness: Harness) -> None:
    """Add two runs with break-glass, one of them reviewed, and one that a rule permitted."""
    for value, findings in (("on", ""), ("dim", "the shop was dark, and it helped")):
        run = harness.request(SetSwitch(host="lb1", name="fan", value=value), "adam")
        with harness.database.transaction() as tx:
            until = tx.now + _HOUR
            break_glass.request_break_glass(tx, run=run.id, person="adam", reason="all is dark")
            break_glass.activate_break_glass(tx, run.id, until=until, factor="")
            used = events.BreakGlassActivated(
                digest=run.digest, reason="all is dark", until=until, factor=""
            )
            change_log.append_entry(tx, used, run=run.id, person="adam")
        if findings:
            harness.service.break_glass.review_break_glass(
                run.id, person="olga", findings=findings
            )
    permitted = harness.request(SetSwitch(host="web1", name="fan", value="on"))
    with harness.database.transaction() as tx:
        break_glass.record_start_to_review(tx, run=permitted.id, person="dora", reason="")
        required = events.ReviewRequired(digest=permitted.digest)
        change_log.append_entry(tx, required, run=permitted.id, person="dora")


def _add_runs_that_wait(harness: Harness) -> None:
    """Freeze the web servers, and add runs that wait for that, for a worker and for a lock."""
    (harness.policies.path / "freezes.yaml").write_text(FREEZE)
    lamp = SetSwitch(host="web1", name="lamp", value="dim")
    harness.request(lamp, plan_only=True)
    harness.request(lamp)
    held = harness.approve(harness.request(SetSwitch(host="web1", name="lamp", value="bright")))
    assert held.waiting
    later = harness.request(SetSwitch(host="lb1", name="lamp", value="dim"))
    with harness.database.reading() as tx:
        start_at = tx.now + 5 * _HOUR
    harness.service.approve_run(later.id, person="olga", digest=later.digest, start_at=start_at)
    harness.run_queued_work()
    assert starts_later(harness.get_run(later.id))
    with harness.database.transaction() as tx:
        for waiting in (
            Waiting(WaitingFor.WORKER, "here", time=tx.now - _HOUR),
            Waiting(WaitingFor.LOCK, "lb1", run=1),
        ):
            run = approve(tx, add_pending_run(tx, add_requested_run(tx, host="lb2")))
            record_waiting(tx, run, waiting)


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Generator[Gallery]:
    """Runs in every state, of which some people may view a part."""
    directory = tmp_path_factory.mktemp("harness")
    with open_harness(directory, rules=restricted_rules()) as harness:
        harness.fleet.hosts |= {host: {"lamp": "off", "fan": "off"} for host in ("lb1", "web1")}
        add_calendar(harness.policies.path)
        server = RecordingServer("localhost", 0, "keyturn@example.com")
        sender = NoticeSender(server, harness.policies, harness.database, base_url=HERE)
        # Notices are of entries that follow the first look.
        sender.send_due_notices()
        with harness.database.reading() as tx:
            ends_at = tx.now + 10 * _HOUR
        harness.service.delegations.create_delegation(
            delegator="adam", delegate="stan", ends_at=ends_at, area="edge", source="web"
        )
        _add_runs_through_the_service(harness)
        add_sample_runs(harness.database)
        _add_runs_of_other_states(harness)
        _add_runs_without_approval(harness)
        _add_runs_that_wait(harness)
        with harness.database.reading() as tx:
            numbers = [*range(1, max(run.id for run in runs.list_runs(tx, range(1, 100))) + 1)]
        sender.send_due_notices()
        yield Gallery(harness, numbers, server.sent)


@pytest.fixture(scope="module", params=VIEWERS)
def viewer(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def shown(gallery: Gallery, viewer: str) -> Generator[Mapping[int, Shown]]:
    """All that a person may view, by number."""
    harness = gallery.harness
    program, browser = _open_program(harness, viewer), create_site(harness).browser(viewer)
    cards = SlackRunViewBuilder(harness.policies, team=TEAM, base_url=HERE)
    found: dict[int, Shown] = {}
    for number in gallery.numbers:
        view = _read_view(harness, viewer, number)
        answer = program.get(f"/runs/{number}")
        page = browser.get(f"/runs/{number}")
        assert (answer.status_code, page.status_code) == (
            (404, 404) if view is None else (200, 200)
        )
        if view is not None:
            with harness.database.reading() as tx:
                card = render_card(cards.build_slack_run_view(tx, number)).blocks
            text = " ".join(list_texts(card))
            parsed = Page(page.text)
            mentions, times = list_mentions(card), _list_card_times(card, text)
            found[number] = Shown(view, answer.json(), page.text, parsed, text, mentions, times)
    yield found
    program.close()
    browser.close()


def _list_card_times(card: object, text: str) -> list[int]:
    dates = [int(part["timestamp"]) for part in walk_objects(card) if part.get("type") == "date"]
    return [*dates, *map(int, re.findall(r"<!date\^(\d+)\^", text))]


def _open_program(harness: Harness, person: str) -> Any:
    return create_api_harness(harness).program(person)


def _read_view(harness: Harness, person: str, number: int) -> RunView | None:
    policy = harness.policies.get_policy()
    with harness.database.reading(policy.get_view_rights(person)) as tx:
        try:
            return build_run_view(tx, number, policy, Viewer(person))
        except NoSuchRun:
            return None


def test_runs_are_in_every_state_and_some_are_hidden(gallery: Gallery) -> None:
    views = [_read_view(gallery.harness, "olga", number) for number in gallery.numbers]
    assert {view.run.state for view in views if view} == set(State)
    assert None in [_read_view(gallery.harness, "dora", number) for number in gallery.numbers]


def test_state_and_label_agree(shown: Mapping[int, Shown], gallery: Gallery) -> None:
    for number, one in shown.items():
        label, run = one.view.display.label, one.view.run
        assert (one.api["state"], one.api["label"]) == (run.state, label), number
        assert f"{label}: {run.title}" in one.card, number
        # Every surface shows the result after the label: it does not repeat it.
        assert not describe_outcome(run).startswith(label), number
        assert f" {run.title} {label} " in one.page.text, number
        assert f"\n  {label}." in format_run_details(one.api), number
        with gallery.harness.database.reading() as tx:
            policy = gallery.harness.policies.get_policy()
            assert RunResult.from_view(tx, one.view, policy, "").label == label, number
            # Beside a run with another label, lest equal lines are folded.
            other = next(n for n, each in shown.items() if each.view.display.label != label)
            assert run.parent or _compare_label(tx, number, other) == label, number


def _compare_label(tx: Transaction, number: int, other: int) -> str:
    left, right = compare.find_runs_to_compare(tx, number, other, name_person=str)
    assert left
    return compare.compare_runs(left, right)[0].lines[0].right or ""


def test_messages_say_first_which_run_where_and_how_it_is(gallery: Gallery) -> None:
    """A notification shows the text or the first block: each has number, host and state."""
    cards = SlackRunViewBuilder(gallery.harness.policies, team=TEAM, base_url=HERE)
    seen: set[str] = set()
    for number in gallery.numbers:
        with gallery.harness.database.reading() as tx:
            view = cards.build_slack_run_view(tx, number)
        run, label = view.run, view.display.label
        where = {run.host, run.values.get("host", ""), *run.hosts} - {""}
        seen.add(label)
        for render in (render_card, render_decided, render_result):
            message = render(view)
            assert faults_of_blocks([*message.blocks], surface="message") == [], number
            assert len(message.text) <= 4000
            assert message.place == f"<{HERE}/runs/{number}|Open run {number}>"
            first = " ".join(list_texts(message.blocks[0]))
            state = "Decided" if render is render_decided and "Decided" in message.text else label
            for text in (message.text, first):
                read = text[:100]
                shown = label if text is first else state
                assert f"Run {number} · {shown}" in read, (number, read)
                assert any(
                    re.search(
                        rf"(?<!\S){re.escape(host)}(?!\S)",
                        read.replace(":", " ").replace(",", " "),
                    )
                    for host in where
                ), (number, read)
            rows = [block["elements"] for block in message.blocks if block["type"] == "actions"]
            assert len(rows) <= 1
            for row in rows:
                kinds = [one["type"] for one in row]
                assert kinds.count("button") <= 3, (number, kinds)
                assert kinds.count("overflow") == len(kinds) - kinds.count("button") <= 1
                assert sum(one.get("style") == "primary" for one in row) <= 1, number
                assert kinds.count("overflow") == 0 or len(row[-1]["options"]) in range(2, 6)
    assert len(seen) >= len(State)


def test_lists_show_the_label_of_each_run(
    shown: Mapping[int, Shown], gallery: Gallery, viewer: str
) -> None:
    harness = gallery.harness
    labels = {number: one.view.display.label for number, one in shown.items()}
    with _open_program(harness, viewer) as program:
        listed = program.get("/runs", params={"limit": 100}).json()["runs"]
        on_host = program.get("/runs", params={"limit": 100, "host": "lb1"}).json()["runs"]
    assert {run["id"]: run["label"] for run in [*listed, *on_host]}.items() <= labels.items()
    with create_site(harness).browser(viewer) as browser:
        lists = [browser.get(f"/runs{host}").text for host in ("", "?host=lb1", "?host=lb2")]
        rows = "".join(lists).split('<tr role="row">')
    for row in rows:
        if link := re.search(r'href="/runs/(\d+)" class="kt-title"', row):
            assert f"{labels[int(link[1])]}</span>" in row
    requests = [one.view.run for one in shown.values() if one.view.run.parent is None]
    text = " ".join(list_texts(render_run_list(requests, {}, now=0, person_names={}).blocks))
    for run in requests:
        assert re.search(rf"\b{run.id} +{labels[run.id]} ", text), run.id


def test_approvals_still_needed_and_approvers_agree(shown: Mapping[int, Shown]) -> None:
    pending = [one for one in shown.values() if one.view.run.state is State.PENDING]
    assert len(pending) > 2 or len(shown) < 10
    for one in pending:
        view, number = one.view, one.view.run.id
        ids = [person.id for person in view.approvers]
        delegates = [(each.id, owner.id) for each, owner in view.delegates]
        assert one.api["missing_approvals"] == view.missing_approvals
        assert one.api["approvals_from"] == view.approvals_from
        assert one.api["approvers"] == ids
        assert [tuple(each.values()) for each in one.api["delegates"]] == delegates
        names = [*ids, *(f"{each} on behalf of {owner}" for each, owner in delegates)]
        groups = f" of {view.approvals_from}" if view.approvals_from else ""
        asked = f"needs {view.missing_approvals}{groups}: {', '.join(names) or 'no one'}"
        assert asked in format_run_details(one.api), number
        if view.run.parent is None:
            people = f"Approvers: {', '.join(view.approver_names)}"
            no_one = "No one can approve this under the current policy."
            assert (people if view.approver_names else no_one) in one.page.text, number
            word = "approval" if view.missing_approvals == 1 else "approvals"
            source = f" from {view.approvals_from}" if view.approvals_from else ""
            needed = f"{view.missing_approvals} {word} needed{source}"
            assert needed in one.page.text, number
            of = view.run.required_approvals
            assert f"{view.given_approvals} of {of} approval" in one.card, number
            for each in [*view.approvers, *(delegate for delegate, _ in view.delegates)]:
                assert each.name in one.card or f"U0{each.id.upper()}" in one.mentions, number


def test_actions_agree(shown: Mapping[int, Shown]) -> None:
    for number, one in shown.items():
        assert set(one.api["actions"]) == one.actions, number
        forms = {form.removeprefix(f"/runs/{number}/") for form in one.page.forms}
        assert {name for name, form in FORMS.items() if form in forms} == (
            one.actions & set(FORMS)
        ), number
        text = format_run_details(one.api)
        typed = {name for name, verb in COMMANDS.items() if f"keyturn {verb} {number} " in text}
        assert typed == one.actions & set(COMMANDS), number


def test_what_waits_for_a_person_agrees(
    shown: Mapping[int, Shown], gallery: Gallery, viewer: str
) -> None:
    harness = gallery.harness
    awaited = {n for n, one in shown.items() if {"approve", "resolve", "sign"} & one.actions}
    with _open_program(harness, viewer) as program:
        assert {run["id"] for run in program.get("/pending").json()["runs"]} == awaited
    with create_site(harness).browser(viewer) as browser:
        home = Page(browser.get("/").text)
    listed = {int(n) for n in re.findall(r"(?:Review|Resolve|Sign) run (\d+)", home.text)}
    assert listed == awaited if len(awaited) <= 10 else listed < awaited
    cards = SlackRunViewBuilder(harness.policies, team=TEAM, base_url=HERE)
    with harness.database.reading() as tx:
        assert {run.id for run in cards.read_inbox(tx, viewer).runs} == awaited


def test_counter_proposal_has_the_reason_of_its_approver(shown: Mapping[int, Shown]) -> None:
    proposals = [one for one in shown.values() if one.view.run.state is State.COUNTER_PROPOSED]
    for one in proposals:
        assert one.view.counter_proposal
        assert "too bright" in one.card
        assert "“too bright”" in one.page.text
        assert "too bright" in format_run_details(one.api)
        change = {"field": "value", "requested": "on", "proposed": "dim"}
        assert change in one.api["counter_proposal"]["changes"]
        assert "value: on → dim" in one.page.text


def _list_known_times(view: RunView) -> Iterator[int | None]:
    """Yield every time that a surface may show of a run."""
    run, used, discussion = view.run, view.break_glass, view.discussion
    yield from (view.now, view.planned_at, run.requested_at, run.started_at, run.ended_at)
    yield from (run.expires_at, run.plan and run.plan.expires_at)
    yield from (run.waiting and run.waiting.time, view.lock and view.lock.since)
    yield view.counter_proposal and view.counter_proposal.proposed_at
    yield discussion.assignment and discussion.assignment.at
    yield from (one.decided_at for one in view.decisions)
    yield from (one.at for one in (*discussion.remarks, *view.entries))
    for step in view.step_records.values():
        yield from (step.sent_at, step.ended_at)
    if used is not None:
        yield from (used.activated_at, used.active_until, used.reviewed_at, used.review_due)


def _list_shown_times(view: RunView) -> Iterator[int | None]:
    """Yield the times that every surface shows: of the request, of a wait, of a review."""
    run = view.run
    yield run.requested_at
    if run.waiting:
        yield run.waiting.time
    if view.freeze_after_approval:
        yield _get_end_of_freeze()
    if view.break_glass is not None:
        yield view.break_glass.review_due


def _get_end_of_freeze() -> int:
    return int(datetime(2199, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000


def _to_seconds(times: Iterator[int | None]) -> set[int]:
    return {at // 1_000_000 for at in times if at is not None}


def _to_minutes(seconds: set[int]) -> set[int]:
    return {each // 60 for each in seconds}


@pytest.fixture
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """The terminal's zone is not UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", ZONE)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("local_zone")
def test_times_agree_and_are_in_the_zone_of_the_reader(shown: Mapping[int, Shown]) -> None:
    for number, one in shown.items():
        view = one.view
        known = _to_seconds(_list_known_times(view)) | {_get_end_of_freeze() // 1_000_000}
        wanted = _to_seconds(_list_shown_times(view))
        assert wanted <= known, number
        card, page = {*one.card_times}, _list_page_times(one.html)
        # The times of sentences are in whole minutes.
        assert _to_minutes(card) <= _to_minutes(known), number
        assert _to_minutes(wanted) <= _to_minutes(card), number
        assert "UTC" not in re.sub(r"<!date[^>]*>", "", one.card), number
        assert _to_minutes(wanted) <= _to_minutes(page), number
        typed = format_run_details(one.api)
        pattern = r"\d{4}-\d\d-\d\d \d\d:\d\d(?:Z| UTC|[+-]\d\d:\d\d)"
        found = re.findall(pattern, typed)
        assert {each[16:] for each in found} <= {"+05:30"}, number
        minutes = {int(datetime.fromisoformat(each).timestamp()) // 60 for each in found}
        assert _to_minutes(wanted) <= minutes <= _to_minutes(known), number
        waiting, review = one.api["waiting_for"], one.api["review"]
        answered = [one.api[name] for name in ("requested_at", "started_at", "ended_at")]
        answered += [waiting and waiting["time"], review and review["due_at"]]
        run, used = view.run, view.break_glass
        stored = [run.requested_at, run.started_at, run.ended_at]
        stored += [run.waiting and run.waiting.time, used and used.review_due]
        assert answered == [at and format_iso(at) for at in stored], number


def _list_page_times(html: str) -> set[int]:
    found = re.findall(r'<time datetime="([^"]+)"', html.split("<main")[1])
    return {int(datetime.fromisoformat(each).timestamp()) for each in found}


def test_emails_agree_with_the_run(
    shown: Mapping[int, Shown],
    gallery: Gallery,
    viewer: str,
) -> None:
    policy = gallery.harness.policies.get_policy()
    owned = {one.name for one in policy.organisation.areas.values() if viewer in one.owners}
    received = {
        int(text.rsplit("/", 1)[1]): (subject, text)
        for recipient, subject, text in gallery.mail
        if recipient == f"{viewer}@example.com" and "/runs/" in text
    }
    wanted = {
        number: used
        for number, one in shown.items()
        if (used := one.view.break_glass)
        and used.person != viewer
        and owned & {*one.view.run.areas}
    }
    assert received.keys() == wanted.keys()
    for number, used in wanted.items():
        run, (subject, text) = shown[number].view.run, received[number]
        deed = f"{policy.get_person_name(used.person)} {used.deed}"
        assert subject == f"{deed}: {run.title}"
        assert text.startswith(f"{subject}\n{used.reason}".rstrip())
        assert text.endswith(f"\n{shown[number].api['page']}\n")
        for words in (deed, used.reason, used.review):
            assert words in shown[number].card, number
            assert words in shown[number].page.text, number
        typed = format_run_details(shown[number].api)
        for words in (f"{used.person} {used.deed}", used.reason, used.review):
            assert words in typed, number
        assert (f"by {format_deadline(used.review_due or 0)}." in text) == bool(used.review_due)
        assert used.review in text


def test_reviews_that_are_due_agree(
    shown: Mapping[int, Shown], gallery: Gallery, viewer: str
) -> None:
    policy = gallery.harness.policies.get_policy()
    owned = {one.name for one in policy.organisation.areas.values() if viewer in one.owners}
    due = {n: one for n, one in shown.items() if (u := one.view.break_glass) and u.review_due}
    with _open_program(gallery.harness, viewer) as program:
        listed = program.get("/pending").json()["to_review"]
    reviewable = {n for n, one in due.items() if "review" in one.actions}
    assert {one["run"] for one in listed} == reviewable
    with gallery.harness.database.reading(policy.get_view_rights(viewer)) as tx:
        digest = render_digest(tx, policy, viewer)
    mine = {n for n, one in due.items() if owned & {*one.view.run.areas}}
    assert {int(n) for n in re.findall(r"- run (\d+): ", digest)} == mine


def test_pages_show_times_in_the_zone_of_the_reader_only(shown: Mapping[int, Shown]) -> None:
    """Scripts replace each time element by the local time: no other text holds a time in UTC."""
    for number, one in shown.items():
        main = one.html.split("<main")[1].split("</main>")[0]
        text = re.sub(r"<[^>]+>", " ", re.sub(r"<time.*?</time>", "", main))
        assert re.findall(r".{20}\d\d:\d\d(?::\d\d)? UTC", text) == [], number


def test_card_of_a_schedule_offers_neither_undo_nor_commands(shown: Mapping[int, Shown]) -> None:
    schedules = [one for one in shown.values() if one.view.run.timing and one.view.run.is_ended]
    assert schedules
    for one in schedules:
        assert "Undo" not in one.card
        assert "Details" not in one.card


def test_timeline_puts_changes_before_checks_and_leaves_out_unrequested_plans(
    tmp_path: Path,
) -> None:
    with open_harness(tmp_path) as harness:
        harness.fleet.hosts["lb2"]["lamp"] = "broken"
        changed = harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))
        looks = [ShowSwitches(host=host) for host in ("lb1", "lb2")]
        check = harness.service.request_on_hosts(
            looks, RequestTerms("dora", WEB), host_pattern="lb*"
        )
        harness.run_queued_work()
        lamp = SetSwitch(host="lb1", name="lamp", value="dim")
        plan = harness.request(lamp, plan_only=True)
        with harness.database.reading() as tx:
            found = timeline.build_timeline(tx, tx.now, span=_HOUR).events
        numbers = [one.run for one in found]
        assert numbers.index(changed.id) < numbers.index(check.id)
        assert plan.id not in numbers
