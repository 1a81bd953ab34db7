"""Cards and results in every state, with hostile text escaped."""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.db.break_glass import BreakGlass
from bot.model.agents import AgentOrigin
from bot.model.approvals import ApprovalRequirements
from bot.model.run import RequestOrigin, State, StepRecord, StepState
from bot.model.text import escape_to_one_line
from bot.model.waiting import Waiting, WaitingFor
from bot.queries.open_probation import OpenProbation
from bot.slack import run_message
from bot.slack.blocks import Message, escape_mrkdwn, preformatted
from bot.slack.home import HomeContent, render_home
from bot.slack.notifications import build_reminders
from bot.slack.replies import render_run_list
from bot.slack.run_facts import Approver, SlackRunView, UsedGrant
from bot.slack.run_forms import render_details, render_plan_view
from bot.slack.run_message import (
    align_table,
    render_card,
    render_decided,
    render_ended,
    render_follow_up,
    render_result,
)
from connectors.command import Shell
from runbooks import Report, Table
from tests.bot.slack.json_walk import list_mentions, list_texts, walk_objects
from tests.bot.slack.sample_views import (
    ASKED,
    MINUTE,
    PAGE,
    build_approval,
    build_check,
    build_children,
    build_plan,
    build_report,
    build_run,
    build_run_view,
    build_run_view_of_each_state,
    build_step,
    replace_facts,
)
from tests.bot.slack.web_api import iterate_buttons
from tests.slack_emulator.blockkit import faults_of_blocks, faults_of_view
from tests.slack_emulator.mrkdwn import Names, to_html, with_emoji

RUN_VIEWS = build_run_view_of_each_state()


def words(message: Message) -> str:
    return " ".join(list_texts(message.blocks))


def buttons(message: Message) -> list[str]:
    actions = [block for block in message.blocks if block["type"] == "actions"]
    elements = [one for block in actions for one in block["elements"]]
    return [name for element in elements for name, _ in iterate_buttons(element)]


@pytest.mark.parametrize(
    ("well", "text"), [(True, "Finished: "), (False, "Finished, needs attention: ")]
)
def test_follow_up_message_shows_the_report_and_whether_it_needs_attention(well: bool, text: str):
    run = replace(build_run(State.SUCCEEDED), report=Report("scrubbed", healthy=well))
    message = render_follow_up(build_run_view(run))
    assert text in words(message)
    assert message.text == f"Run 12 · {text}abusers clear lb1 203.0.113.9 – scrubbed"


def test_sample_cards_cover_every_run_state():
    assert set(RUN_VIEWS) == {state.value for state in State}


@pytest.mark.parametrize("run_view", RUN_VIEWS.values(), ids=RUN_VIEWS.keys())
def test_every_card_and_result_is_valid_block_kit(run_view: SlackRunView):
    for message in (
        render_card(run_view),
        render_result(run_view),
        render_card(run_view, buttons=False),
    ):
        assert faults_of_blocks(list(message.blocks), surface="message") == []
        assert message.text


LABELS = {
    State.PLANNING: "Planning",
    State.PLANNED: "Planned",
    State.PENDING: "Needs approval",
    State.QUEUED: "Queued",
    State.STARTING: "Starting",
    State.RUNNING: "Running",
    State.SUCCEEDED: "Succeeded",
    State.FAILED: "Failed",
    State.UNKNOWN: "Unknown outcome",
    State.NO_CHANGES: "No changes",
    State.REFUSED: "Refused",
    State.DENIED: "Denied",
    State.EXPIRED: "Expired",
    State.WITHDRAWN: "Withdrawn",
    State.COUNTER_PROPOSED: "Counter-proposal",
    State.SUPERSEDED: "Superseded",
    State.STALE: "Stale",
    State.STOPPED: "Stopped",
}


@pytest.mark.parametrize("state", State)
def test_card_title_and_notification_begin_with_number_and_state(state: State):
    message = render_card(RUN_VIEWS[state.value])
    heading = f"Run 12 · {LABELS[state]}: abusers clear lb1 203.0.113.9"
    assert message.text.startswith(f"{heading} (the edge)")
    colour, first = message.blocks[0]["text"]["text"].split(" ", 1)
    assert first == heading
    assert colour in "⚪🔵🟡🟢🟠🔴"


PENDING = ["approve", "deny", "question", "approve-later", "reassign", "withdraw", "commands"]
BUTTONS = {
    State.PLANNED: ["withdraw", "commands"],
    State.PENDING: PENDING,
    State.COUNTER_PROPOSED: ["accept", "withdraw", "commands"],
    State.QUEUED: ["withdraw", "stop", "watch", "commands"],
    State.STARTING: ["stop", "watch", "commands"],
    State.RUNNING: ["stop", "watch", "commands"],
    State.SUCCEEDED: ["undo", "commands"],
    State.STALE: ["replan", "again", "commands"],
    State.EXPIRED: ["replan", "again", "commands"],
    State.UNKNOWN: ["watch", "commands"],
    State.SUPERSEDED: ["commands"],
    State.PLANNING: [],
    State.NO_CHANGES: [],
}


@pytest.mark.parametrize("state", State)
def test_card_has_the_buttons_of_its_state(state: State):
    message = render_card(RUN_VIEWS[state.value])
    assert buttons(message) == BUTTONS.get(state, ["again", "commands"])


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.SUCCEEDED])
def test_card_hides_commands_behind_a_button_after_the_decision(state: State):
    run_view = RUN_VIEWS[state.value]
    shown = words(render_card(run_view))
    assert "Forget 203.0.113.9" in shown
    assert "haproxyctl" not in shown
    commands = " ".join(list_texts(render_details(run_view)["blocks"]))
    assert "haproxyctl clear table http key 203.0.113.9" in commands
    assert "haproxyctl set table http key 203.0.113.9" in commands
    assert faults_of_view(render_details(run_view)) == []


def test_card_of_a_check_with_problems_is_orange():
    check = build_check(build_report())
    assert (
        render_card(build_run_view(check))
        .blocks[0]["text"]["text"]
        .startswith("🟠 Run 12 · Needs attention")
    )
    assert (
        render_card(RUN_VIEWS["succeeded"])
        .blocks[0]["text"]["text"]
        .startswith("🟢 Run 12 · Succeeded")
    )


def test_card_of_a_fan_out_counts_hosts_read_and_done():
    hosts = ("lb1", "lb2", "lb3")
    planning = build_run(State.PLANNING, hosts=hosts)
    reading = build_run_view(planning, children=build_children(planning, ended=1))
    assert "1 of 3 hosts read" in words(render_card(reading))
    moving = build_run(State.RUNNING, hosts=hosts)
    running = build_run_view(moving, children=build_children(moving, ended=2))
    assert "2 of 3 hosts done" in words(render_card(running))


def test_card_of_a_fan_out_lists_its_hosts_in_a_table_those_that_failed_first():
    hosts = tuple(f"lb{n}" for n in range(1, 41))
    moving = build_run(State.RUNNING, hosts=hosts, host="lb*", started_at=ASKED)
    children = [*build_children(moving, ended=30, running=5)]
    children[7] = replace(children[7], state=State.FAILED, summary="no such *table*\x1b")
    card = render_card(build_run_view(moving, children=children))
    [shown] = [block for block in card.blocks if block["type"] == "table"]
    rows = [[cell["text"] for cell in row] for row in shown["rows"]]
    assert rows[:3] == [
        ["Host", "State", "Result"],
        ["lb8", "🔴 Failed", r"no such *table*\x1b"],
        ["lb31", "🔵 Running", "–"],
    ]
    assert rows[-1][0] == "and 25 more"
    assert faults_of_blocks(list(card.blocks), surface="message") == []
    pending = render_card(build_run_view(replace(moving, state=State.PENDING), children=children))
    assert "table" not in [block["type"] for block in pending.blocks]


def test_card_of_a_run_on_hold_names_the_freeze():
    freeze = Waiting(WaitingFor.FREEZE, "sale", "the edge", 1796104800000000)
    held = build_run(State.QUEUED, waiting=freeze)
    message = render_card(build_run_view(held))
    assert message.blocks[0]["text"]["text"].startswith("🟡 Run 12 · On hold: abusers clear")
    [status] = [one for one in message.blocks if "he edge is frozen until" in str(one)]
    [date] = [part for part in walk_objects(status) if part.get("type") == "date"]
    assert (date["timestamp"], date["fallback"]) == (1796104800, "2026-12-01 06:00 UTC")


def test_card_of_a_change_on_probation_says_when_its_host_restores_what_was():
    until = OpenProbation("lb1", "csf", "1-1", ASKED + 3 * MINUTE)
    [block] = [
        one
        for one in render_card(replace_facts(RUN_VIEWS["running"], open_probation=until)).blocks
        if "On probation" in str(one)
    ]
    assert "On probation: lb1 restores what was at" in " ".join(list_texts(block))
    [date] = [part for part in walk_objects(block) if part.get("type") == "date"]
    assert date["timestamp"] == (ASKED + 3 * MINUTE) // 60_000_000 * 60


def test_freeze_without_an_end_in_slack_s_calendar_is_shown_in_utc():
    freeze = Waiting(WaitingFor.FREEZE, "sale", "the edge", 32_472_144_000_000_000)
    message = render_card(build_run_view(build_run(State.QUEUED, waiting=freeze)))
    assert "2999-01-01 00:00 UTC" in words(message)
    assert faults_of_blocks(list(message.blocks), surface="message") == []


def test_approval_card_shows_reason_plan_and_deadline_and_details_the_rest():
    run = build_run()
    shown = words(render_card(build_run_view(run)))
    for expected in (
        "requested by Dora Developer",
        "a customer called",
        "203.0.113.9 is marked since 09:12",
        "haproxyctl clear table http key 203.0.113.9",
        "marked",
        "not marked",
        "It may be marked again at once.",
        "0 of 1 approval from the owners of the edge",
        "can be undone",
        "<!date^1700028800^",
    ):
        assert expected in shown
    undo = "haproxyctl set table http key 203.0.113.9"
    assert undo in words(render_card(build_run_view(run), buttons=False))
    details = " ".join(list_texts(render_details(build_run_view(run))["blocks"]))
    for expected in ("haproxyctl set table http key 203.0.113.9", f"plan {run.digest[:10]}"):
        assert expected not in shown
        assert expected in details


def test_card_shows_the_person_an_agent_acts_for_and_that_it_wrote_the_reason():
    origin = RequestOrigin("mcp", agent=AgentOrigin("adam", "dora", "client 1"))
    run = build_run(requested_by="agent:triage-bot", origin=origin)
    shown = words(render_card(build_run_view(run, requester="")))
    assert "requested by triage-bot for Dora Developer" in shown
    assert "as an agent" in shown
    assert "Reason written by an agent" in shown
    assert "Reason written" not in words(render_card(build_run_view()))
    listed = render_run_list([run], {}, now=0, person_names={"dora": "Dora Developer"})
    assert "triage-bot for Dora Developer" in words(listed)


LINKS: Sequence[tuple[str, Sequence[str]]] = (
    # What is typed, and the addresses in it that are links.
    (
        "see https://tickets.example.com/browse/OPS-7?x=1#top.",
        ["https://tickets.example.com/browse/OPS-7?x=1#top"],
    ),
    (
        "(http://wiki.example.com/a_b/), https://x.example:8443",
        ["http://wiki.example.com/a_b/", "https://x.example:8443"],
    ),
    (
        "<https://evil.example|https://lb1.example.com>",
        ["https://evil.example", "https://lb1.example.com"],
    ),
    ("https://lb1.example.com@evil.example/ https://a:b@evil.example", []),
    ("javascript:alert(1) ftp://x.example slack://open file:///etc/passwd //x.example", []),
    ("https://bücher.example https://.\u202eexample", []),
    ("https://…", []),
)


@pytest.mark.parametrize(("reason", "urls"), LINKS)
def test_addresses_in_a_reason_are_links_that_show_where_they_lead(
    reason: str, urls: Sequence[str]
):
    message = render_card(build_run_view(build_run(reason=reason)))
    links = [part for part in walk_objects(message.blocks) if part.get("type") == "link"]
    assert [one["url"] for one in links] == [*urls]
    assert all(one["text"] == one["url"] for one in links)
    assert escape_to_one_line(reason) in "".join(list_texts(message.blocks))
    assert faults_of_blocks(list(message.blocks), surface="message") == []


def test_reason_of_an_agent_has_no_links():
    origin = RequestOrigin("mcp", agent=AgentOrigin("adam", "dora", "client 1"))
    run = build_run(reason="see https://evil.example/x", origin=origin)
    kinds = [part.get("type") for part in walk_objects(render_card(build_run_view(run)).blocks)]
    assert "link" not in kinds


def test_card_mentions_those_who_can_approve():
    assert list_mentions(render_card(build_run_view()).blocks) == ["U0ADAM", "U0OLGA"]


def test_card_does_not_mention_those_who_have_approved():
    run_view = build_run_view(build_run(required_approvals=2), decisions=[build_approval("olga")])
    message = render_card(run_view)
    assert list_mentions(message.blocks) == ["U0ADAM"]
    assert "1 of 2" in words(message)
    assert "Approved by Olga Owner" in words(message)


def test_card_mentions_five_approvers_and_counts_the_rest():
    crowd = [Approver(f"Owner {n}", f"U{n}") for n in range(20)]
    message = render_card(build_run_view(approvers=crowd))
    assert len(list_mentions(message.blocks)) == 5
    assert "and 15 more" in words(message)


def test_card_reports_that_no_one_can_approve():
    assert "no one can approve" in words(render_card(build_run_view(approvers=())))


@pytest.mark.parametrize(
    "proposal",
    [
        build_plan(build_step(command=Shell(("x" * 2600,)))),
        build_plan(*(build_step() for _ in range(13))),
        build_plan(*(build_step(command=Shell(("x" * 800,))) for _ in range(9))),
        build_plan(notes=("n" * 6000,)),
    ],
    ids=["a long command", "many steps", "long in all", "long notes"],
)
def test_plan_too_long_for_slack_has_no_approve_button_and_links_to_its_page(proposal: Any):
    message = render_card(build_run_view(build_run(proposal=proposal)))
    assert buttons(message) == [one for one in PENDING if not one.startswith("approve")]
    assert faults_of_blocks(list(message.blocks), surface="message") == []
    assert [
        part["url"] for part in walk_objects(message.blocks) if part.get("type") == "link"
    ] == [PAGE]


def test_without_the_length_check_a_plan_too_long_for_slack_can_be_approved(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(run_message, "can_show_plan", _always)
    proposal = build_plan(*(build_step(command=Shell(("x" * 800,))) for _ in range(9)))
    message = render_card(build_run_view(build_run(proposal=proposal)))
    assert buttons(message) == PENDING
    assert len(words(message)) > run_message._MAX_CHARACTERS  # pyright: ignore[reportPrivateUsage] - what it held to


def _always(_proposal: object) -> bool:
    return True


def test_plan_at_the_length_limit_is_shown_whole_with_approve_button():
    steps = [build_step(title=f"Step {n}", command=Shell((f"{n}" * 150,))) for n in range(10, 22)]
    message = render_card(build_run_view(build_run(proposal=build_plan(*steps, notes=()))))
    assert buttons(message) == PENDING
    for step in steps:
        assert str(step.command) in words(message)


def test_approve_button_of_an_irreversible_plan_asks_for_confirmation():
    proposal = build_plan(build_step(undo=None, no_undo_reason="the counters are gone"))
    message = render_card(build_run_view(build_run(proposal=proposal)))
    assert "Cannot be undone:  the counters are gone" in words(message)
    approve = message.blocks[-1]["elements"][0]
    assert approve["confirm"]["confirm"]["text"] == "Approve"
    text = "“Forget 203.0.113.9” cannot be undone: the counters are gone"
    assert approve["confirm"]["text"]["text"] == text


def test_button_value_holds_only_run_number_and_digest():
    run = build_run()
    values = [
        part["value"]
        for part in walk_objects(render_card(build_run_view(run)).blocks)
        if "value" in part
    ]
    plan = f"12:{run.digest[:10]}"
    assert values == [plan] * 3 + [f"{name}:{plan}" for name in PENDING[3:]]


def test_block_id_of_buttons_changes_with_the_run_version():
    one, other = (
        render_card(build_run_view(build_run(version=3))),
        render_card(build_run_view(build_run(version=4))),
    )
    assert one.blocks[-1]["block_id"] != other.blocks[-1]["block_id"]


def test_card_digest_is_equal_for_the_same_run_state():
    assert render_card(build_run_view()).digest == render_card(build_run_view()).digest
    assert (
        render_card(build_run_view()).digest
        != render_card(build_run_view(build_run(State.EXPIRED))).digest
    )


def test_denied_card_names_approver_and_reason_in_one_sentence():
    message = render_card(RUN_VIEWS["denied"])
    assert message.text.endswith("(the edge) – Olga Owner denied it: not today")
    assert "Olga Owner denied it: not today" in words(message)


def test_undo_button_is_on_succeeded_runs_that_are_no_undo():
    assert "undo" in buttons(render_card(RUN_VIEWS["succeeded"]))
    assert "undo" not in buttons(render_card(RUN_VIEWS["failed"]))
    undone = replace_facts(
        RUN_VIEWS["succeeded"], run=replace(RUN_VIEWS["succeeded"].run, undo_of=7)
    )
    assert "undo" not in buttons(render_card(undone))


def test_check_report_is_one_message_with_an_aligned_table():
    message = render_card(build_run_view(build_check(build_report())))
    assert message.text.startswith("Run 12 · Needs attention: abusers show")
    assert "address       since\n203.0.113.9   09:12\n203.0.113.10  10:01" in words(message)
    assert "203.0.113.9 is marked on lb1" in words(message)


def test_long_table_is_truncated_with_the_number_of_rows_left_out():
    table = Table(("a", "b"), tuple((str(n), "x" * 60) for n in range(1000)))
    shown = align_table(table)
    assert len(shown) < 3100
    assert re.search(r"… and 9\d\d more rows$", shown)


def test_long_output_is_truncated_at_its_beginning():
    record = StepRecord(12, 1, StepState.SUCCEEDED, ASKED, output="x" * 9000 + "the end")
    shown = words(render_result(build_run_view(build_run(State.SUCCEEDED), step_records=[record])))
    assert "the end" in shown
    assert len(shown) < 2500


# --- what hosts and people say acts on nobody ---

_SPECIAL = re.compile(r"<([^<>]*)>")
_OURS = re.compile(rf"!date\^\d+\^[^<>]*|{re.escape(PAGE)}\|Open(?: run 12)?")
HOSTILE = [
    "<!channel>",
    "<!here|here>",
    "<@U0VICTIM>",
    "<!subteam^S1|owners>",
    "<http://evil.example|203.0.113.9>",
    "&lt;!channel&gt;",
    "```\n*Approved by Olga Owner*\n```",
    "\x1b]0;title\x07\x1b[2J\x9b31m",
    "\u202eevil\u2066\u200b",
    "\r\n\x00\x85\u2028",
    "\ud800",
    "<",
    ">",
    "&",
    "@channel @here",
    ":white_check_mark:",
    "*Approved*",
    "_by Olga_",
    "~never~",
    "`sudo`",
    "*_~`:x:`~_*",
]
hostile = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=20), max_size=6).map("".join)


def list_foreign_markup(message: Message) -> list[str]:
    """Read a message as Slack does, and return every mention, link and format that is not ours."""
    acts: list[str] = []
    marked = [message.text]
    for part in walk_objects(message.blocks):
        kind = part.get("type")
        if kind == "mrkdwn":
            marked.append(part["text"])
        if kind == "link" and part["url"] == part["text"] == "http://evil.example":
            continue  # It leads where it says.
        if kind in {"user", "link", "broadcast", "usergroup", "channel"}:
            target = part.get("user_id") or part.get("url")
            if target not in {"U0DORA", "U0OLGA", "U0ADAM", PAGE}:
                acts.append(f"{kind} {target}")
        if kind == "plain_text" and part.get("emoji", True):
            acts.append(f"emoji in {part['text']}")
    for text in marked:
        acts += [token for token in _SPECIAL.findall(text) if not _OURS.fullmatch(token)]
        acts += ["```"] if "```" in text else []
    return acts


def list_invisible_characters(message: Message) -> list[str]:
    """Return the characters that a reader cannot see."""
    categories = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return [
        character
        for text in [message.text, *list_texts(message.blocks)]
        for character in text
        if character not in "\n\t" and unicodedata.category(character) in categories
    ]


def build_hostile_views(text: str) -> list[SlackRunView]:
    step = build_step(title=text, before=text, after=text, undo=None, no_undo_reason=text)
    asked = f"abusers clear lb1 {text}"
    proposal = build_plan(step, current_state=text, notes=(text,))
    run = build_run(proposal=proposal, digest="ab" * 32, request=asked, reason=text, summary=text)
    record = StepRecord(12, 1, StepState.FAILED, ASKED, output=text, error=text)
    report = Report(text, healthy=False, findings=[text], table=Table((text,), ((text,),)))
    named = {
        "person_names": {"dora": text, "olga": text},
        "area_title": text,
        "approvals_from": text,
    }
    votes = [build_approval(reason=text)]
    return [
        build_run_view(run, decisions=votes, approvers=[Approver(text)], **named),
        build_run_view(
            replace(run, state=State.FAILED), step_records=[record], decisions=votes, **named
        ),
        build_run_view(build_check(report), **named),
    ]


@settings(max_examples=100)
@given(text=hostile, before=st.sampled_from(["", "run 1 · ", "“"]))
def test_escaped_text_of_people_and_hosts_is_not_formatted_as_mrkdwn(text: str, before: str):
    """The emulator's reader makes tags of formats, and pictures of emoji."""
    shown = to_html(f"{before}{escape_mrkdwn(text)}", Names())
    assert "<" not in shown
    assert with_emoji(shown) == shown


@pytest.mark.parametrize("text", [">x", "*Approved*", "_by Olga_", "~never~", "`x`", "```x```"])
def test_mrkdwn_renderer_of_the_test_formats_unescaped_text(text: str):
    assert "<" in to_html(text, Names())


@pytest.mark.parametrize("text", ["web_1.example at 02:00:30", "a*b", "~/x_y", "5 * 3", "lb*"])
def test_text_without_mrkdwn_is_not_changed_by_escaping(text: str):
    assert escape_mrkdwn(text).replace("\u2009", "") == text


def render_all_messages(run_view: SlackRunView) -> list[Message]:
    """Return its messages in channels, threads and direct ones, and the Home that lists it."""
    run = run_view.run
    seen = HomeContent(
        person="dora",
        now=run_view.view.now,
        person_names=run_view.person_names,
        base_url="",
        pending=[run_view],
        questions=[run_view] if run_view.discussion.remarks else [],
        to_sign=[run_view],
        to_resolve=[run],
        unrequested=[run_view],
        own_runs=[run],
        running=[run],
        recent_changes=[run],
    )
    rendered = [render_card(run_view), render_decided(run_view), render_result(run_view)]
    rendered.append(render_ended(run_view))
    rendered += build_reminders(run_view).values()
    return [*rendered, Message("", render_home(seen)["blocks"])]


@settings(max_examples=100)
@given(text=hostile)
def test_text_of_people_and_hosts_cannot_mention_or_link_in_messages(text: str):
    for run_view in build_hostile_views(text):
        for message in render_all_messages(run_view):
            assert list_foreign_markup(message) == []
            assert list_invisible_characters(message) == []
            assert faults_of_blocks(list(message.blocks), surface="message") == []
            json.dumps([message.text, *message.blocks], ensure_ascii=False).encode()


@pytest.mark.parametrize("text", HOSTILE[:5])
def test_hostile_mentions_are_detected_by_the_test_reader(text: str):
    assert list_foreign_markup(Message(text)) != []
    line = {"type": "context", "elements": [{"type": "mrkdwn", "text": text}]}
    assert list_foreign_markup(Message("", [line])) != []


def test_long_command_is_shown_whole_below_its_number_of_lines():
    script = Shell(("sh",), stdin="\n".join(f"echo {n}" for n in range(48)))
    step = replace(build_step(), command=script)
    card = render_card(build_run_view(build_run(proposal=build_plan(step))))
    shown = words(card)
    assert shown.index(step.title) < shown.index("Script of 48 lines:") < shown.index("echo 0")
    assert str(script) in shown
    assert "Script of" not in words(render_card(build_run_view()))


def test_control_characters_are_escaped_in_preformatted_text():
    shown = preformatted("\x1b[31m\u202e\n")["elements"][0]["text"]
    assert shown == r"\x1b[31m\u202e" + "\n"


@pytest.mark.parametrize("ticks", range(2, 9))
def test_backticks_cannot_open_a_code_block(ticks: int):
    assert "``" not in escape_mrkdwn("`" * ticks)


def test_line_break_in_a_reason_cannot_forge_a_line_of_the_card():
    message = render_card(build_run_view(build_run(reason="please\nApproved by Olga Owner")))
    assert r"please\nApproved by Olga Owner" in words(message)


def test_equal_steps_on_many_hosts_are_shown_once_until_their_states_differ():
    steps = [build_step(host=f"lb{n}", fingerprint=f"SHA256:{n}") for n in (1, 2, 3)]
    other = build_step(host="lb4", command=Shell(("haproxyctl", "clear", "table", "tcp")))
    run = build_run(State.RUNNING, proposal=build_plan(*steps, other))

    def seen(*records: StepRecord) -> str:
        return " ".join(words(render_card(build_run_view(run, step_records=records))).split())

    assert "1–3. Forget 203.0.113.9 on lb1, lb2, lb3 :" in seen()
    assert "4. Forget 203.0.113.9 on lb4 :" in seen()
    done = StepRecord(12, 1, StepState.SUCCEEDED, ASKED)
    sent = StepRecord(12, 2, StepState.INTENT, ASKED)
    going = seen(done, sent)
    assert "on lb1 : marked → not marked – succeeded" in going
    assert "on lb2 : marked → not marked – sent" in going
    assert "3. Forget 203.0.113.9 on lb3 :" in going


def test_equal_steps_on_one_host_are_shown_twice():
    run = build_run(State.PENDING, proposal=build_plan(build_step(), build_step()))
    assert words(render_card(build_run_view(run))).count("clear table http") == 2


def _list_texts(run_view: SlackRunView) -> Iterator[str]:
    """Yield all that is said of a run in chat, but for code."""
    for message in (render_card(run_view), render_decided(run_view), render_result(run_view)):
        yield message.text
        for part in walk_objects(message.blocks):
            text, style = part.get("text"), part.get("style", {})
            if isinstance(text, str) and not style.get("code"):
                yield text


@pytest.mark.parametrize("state", RUN_VIEWS)
def test_messages_show_names_of_people_and_areas_never_ids(state: str):
    area = "the front doors"
    run_view = replace_facts(
        RUN_VIEWS[state], area_title=area, approvals_from=f"the owners of {area}"
    )
    granted = UsedGrant(3, "Olga Owner", uses_left=4, per_hour=5)
    pane = BreakGlass(
        12, "dora", "smoke", ASKED, ASKED, reviewed_at=ASKED, reviewer="olga", review="fine"
    )
    votes = [build_approval("adam", on_behalf_of="olga")]
    stead = replace_facts(run_view, decisions=votes, used_grant=granted, break_glass=pane)
    for view in (run_view, replace_facts(stead, run=replace(run_view.run, grant_id=3))):
        all_texts = list(_list_texts(view))
        assert any("Dora Developer" in text for text in all_texts)
        assert [text for text in all_texts if re.search(r"\b(dora|olga|adam|edge)\b", text)] == []


@pytest.mark.parametrize(("missing", "label"), [(0, "Run now"), (1, "Request approval")])
def test_form_of_a_plan_requests_approval_only_if_one_is_missing(missing: int, label: str):
    # The run needs one approval; a standing grant may replace it.
    planned = replace_facts(RUN_VIEWS["planned"], missing_approvals=missing)
    assert render_plan_view(planned, "C0OPS")["submit"]["text"] == label


def test_card_says_that_the_requester_signs_first() -> None:
    run = build_run(requirements=ApprovalRequirements(requires_signature=True))
    card = render_card(build_run_view(run, lacks_signed_request=True))
    texts = " ".join(list_texts(card.blocks))
    assert "First the requester signs this plan, on its page, or in a terminal by" in texts
    sign = card.blocks[-1]["elements"][0]
    assert (sign["text"]["text"], sign["style"]) == ("Sign…", "primary")
    assert sign["url"] == "https://keyturn.example.com/runs/12/sign"
