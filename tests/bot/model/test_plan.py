"""The document of a plan covers all that people approve, and there is one way to write it."""

import hashlib
import re
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.model.plan import PlannedStep, ResolvedPlan, parse_plan, parse_section
from bot.model.plan_text import PlanTextError
from bot.model.schedule import Overlap, ScheduleTiming, parse_cron
from bot.model.tickets import TicketAnswer
from bot.model.times import SECOND
from connectors.command import (
    ApiCall,
    Command,
    Hint,
    Shell,
    SnmpSet,
    SwitchLines,
    enter_with_timer,
)

STEP = PlannedStep(
    title="Forget 203.0.113.9",
    host="lb1",
    fingerprint="SHA256:abc",
    command=Shell(
        ("socat", "stdio", "/run/s"), stdin="clear table http key 203.0.113.9\n", error_pattern="x"
    ),
    undo=Shell(("socat",), stdin="set table http key 203.0.113.9 data.gpc0 57\n"),
    before="marked",
    after="free",
)
PROPOSAL = ResolvedPlan(
    runbook="abusers clear",
    runbook_version="v1",
    values={"host": "lb1", "address": "203.0.113.9"},
    requested_by="dora",
    expires_at=1_800_000_000_000_000,
    policy_version="p1",
    current_state="203.0.113.9 is marked",
    steps=(STEP,),
    notes=("its rate is high",),
    installation="keyturn.example.com",
    run=7,
    reason="a customer is locked out",
    not_before=1_799_999_000_000_000,
    nonce="5f",
    rules=("requests",),
)
TIMING = ScheduleTiming("nightly", parse_cron("0 3 * * *", "UTC"))
TICKET = TicketAnswer("CHG1", "scheduled", True, SECOND, 2 * SECOND, ("lb1",))
# What people read and what may move by itself: shown, but not what they approve.
MAY_MOVE = {"current_state", "notes"}
# The document holds whole seconds.
TIMES = {"expires_at", "not_before", "starts_at", "ends_at", "schedule_lifetime"}
TOLD = {"notify_when", "channel"}
SHELL_MAY_MOVE = {"hints", "root", "note", "marker", "enrolled_argv", "begun_status"}


def _change_field(of: Any, name: str) -> Any:
    value = getattr(of, name)
    return value + SECOND if name in TIMES else _change_value(value)


def _change_value(value: Any) -> Any:
    match value:
        case str():
            return value + "2"
        case bool():
            return not value
        case int():
            return value + 1
        case None:
            return 7
        case tuple() if value and isinstance(value[0], str):
            return (*value, "more")
        case tuple():
            return () if value else ("lb1",)
        case dict():
            return {"host": "lb1", "address": "203.0.113.10"}
        case _:
            raise AssertionError(value)


def _list_mutations() -> list[tuple[str, ResolvedPlan]]:
    mutations = [
        (
            field.name,
            replace(PROPOSAL, **{field.name: _change_field(PROPOSAL, field.name)}),
        )
        for field in fields(PROPOSAL)
        if field.name not in MAY_MOVE | {"timing", "ticket", "part_steps"}
    ]
    for field in fields(STEP):
        value = getattr(STEP, field.name)
        if field.name in MAY_MOVE or is_dataclass(value) or field.name == "no_undo_reason":
            continue
        step = replace(STEP, **{field.name: _change_value(value)})
        mutations.append((f"step {field.name}", replace(PROPOSAL, steps=(step,))))
    assert isinstance(STEP.command, Shell)
    for field in fields(STEP.command):
        if field.name not in SHELL_MAY_MOVE:
            command = replace(
                STEP.command, **{field.name: _change_value(getattr(STEP.command, field.name))}
            )
            step = replace(STEP, command=command)
            mutations.append((f"command {field.name}", replace(PROPOSAL, steps=(step,))))
    mutations += [(f"{n} steps", replace(PROPOSAL, steps=(STEP,) * n)) for n in (0, 2)]
    irreversible = replace(STEP, undo=None, no_undo_reason="gone for good")
    mutations.append(("no undo", replace(PROPOSAL, steps=(irreversible,))))
    lines = replace(STEP, command=SwitchLines(("interface Gi1/0/1", "shutdown")))
    mutations.append(("lines of a switch", replace(PROPOSAL, steps=(lines,))))
    mutations.append(
        ("another host too", replace(PROPOSAL, steps=(STEP, replace(STEP, host="lb2"))))
    )
    mutations.append(("parts", replace(PROPOSAL, part_steps={"01 lb1 abusers clear": 1})))
    mutations.append(("timing", replace(PROPOSAL, timing=TIMING)))
    mutations.append(("ticket", replace(PROPOSAL, ticket=TICKET)))
    return mutations


def _list_ticket_mutations() -> list[tuple[str, TicketAnswer]]:
    return [
        (field.name, replace(TICKET, **{field.name: _change_field(TICKET, field.name)}))
        for field in fields(TICKET)
    ]


def _list_timing_mutations() -> list[tuple[str, ScheduleTiming]]:
    mutations = [
        (field.name, replace(TIMING, **{field.name: _change_value(getattr(TIMING, field.name))}))
        for field in fields(TIMING)
        if field.name not in {"cron_expression", "overlap"} | TOLD
    ]
    mutations.append(("overlap", replace(TIMING, overlap=Overlap.QUEUE)))
    mutations.append(("cron", replace(TIMING, cron_expression=parse_cron("0 4 * * *", "UTC"))))
    mutations.append(
        ("zone", replace(TIMING, cron_expression=parse_cron("0 3 * * *", "Asia/Tokyo")))
    )
    return mutations


@pytest.mark.parametrize(
    "changed", [pytest.param(one, id=name) for name, one in _list_mutations()]
)
def test_plan_digest_changes_with_every_field_of_the_plan(changed: ResolvedPlan):
    assert changed.digest != PROPOSAL.digest


@pytest.mark.parametrize(
    "changed", [pytest.param(one, id=name) for name, one in _list_ticket_mutations()]
)
def test_plan_digest_changes_with_every_field_of_the_ticket(changed: TicketAnswer):
    assert replace(PROPOSAL, ticket=changed).digest != replace(PROPOSAL, ticket=TICKET).digest


@pytest.mark.parametrize(
    "changed", [pytest.param(one, id=name) for name, one in _list_timing_mutations()]
)
def test_plan_digest_changes_with_every_field_of_the_schedule_timing(changed: ScheduleTiming):
    assert replace(PROPOSAL, timing=changed).digest != replace(PROPOSAL, timing=TIMING).digest


@pytest.mark.parametrize(
    "changed",
    [
        replace(PROPOSAL, current_state="57 connections"),
        replace(PROPOSAL, notes=()),
        replace(
            PROPOSAL,
            steps=(replace(STEP, command=replace(STEP.command, hints=(Hint("a", "b"),))),),
        ),
    ],
)
def test_plan_digest_ignores_current_state_notes_and_hints(changed: ResolvedPlan):
    assert changed.digest == PROPOSAL.digest


def test_plan_digest_survives_storage_as_json():
    again = ResolvedPlan.from_json(PROPOSAL.to_json())
    assert again.digest == PROPOSAL.digest
    assert list(again.steps) == [STEP]


@pytest.mark.parametrize(
    ("changed", "is_same"),
    [
        (replace(STEP, undo=Shell(("socat",), stdin="set … 58\n")), True),
        (replace(STEP, title="Let 203.0.113.9 in", undo_title="Mark it"), True),
        (replace(STEP, undo=None, no_undo_reason="gone for good"), False),
        (replace(STEP, before="blocked"), False),
        (replace(STEP, fingerprint="SHA256:abd"), False),
        (replace(STEP, command=Shell(("socat",))), False),
    ],
)
def test_fresh_plan_has_the_approved_digest_only_when_its_work_is_the_same(
    changed: PlannedStep, is_same: bool
):
    fresh = replace(PROPOSAL, steps=(changed,), nonce="", reason="", run=0, rules=())
    assert (fresh.adopt_issue(PROPOSAL).digest == PROPOSAL.digest) is is_same


def test_document_names_each_section_with_its_hash_in_the_order_of_the_steps():
    other = replace(STEP, host="lb2")
    plan = replace(PROPOSAL, steps=(STEP, STEP, other, STEP))
    hashes = [hashlib.sha256(section.text.encode()).hexdigest() for section in plan.sections]
    hosts = [line for line in plan.document.splitlines() if line.startswith("host ")]
    assert hosts == [
        f"host lb1 {hashes[0]} SHA256:abc",
        f"host lb2 {hashes[1]} SHA256:abc",
        f"host lb1 {hashes[2]} SHA256:abc",
    ]
    assert hashes[1] == hashes[2]
    assert plan.digest == hashlib.sha256(plan.document.encode()).hexdigest()


@pytest.mark.parametrize(
    "step",
    [
        replace(STEP, title="two\nlines"),
        replace(STEP, before="\x1b[31mred"),
        replace(STEP, after="\u202etxt"),
        replace(STEP, host="lb1 lb2"),
        replace(STEP, command=SwitchLines(())),
    ],
)
def test_plan_is_refused_when_it_holds_what_people_cannot_see(step: PlannedStep):
    with pytest.raises(PlanTextError, match="cannot be signed"):
        _ = replace(PROPOSAL, steps=(step,)).digest


def test_example_of_the_documentation_has_the_hashes_that_it_shows():
    page = (Path(__file__).parents[3] / "docs" / "signed-plans.md").read_text()
    document, section = re.findall(r"(?ms)^```text\n(.*?)^```", page)
    plan = parse_plan(document, [section])
    assert f"Its SHA-256 is `{plan.digest}`" in page
    assert hashlib.sha256(document.encode()).hexdigest() == plan.digest
    assert f"host lb1 {hashlib.sha256(section.encode()).hexdigest()} SHA256:" in document


def test_reason_can_hold_the_joiners_that_ordinary_writing_needs():
    plan = replace(PROPOSAL, reason="می\u200cخواهم \U0001f468\u200d\U0001f469")
    assert _read_again(plan).reason == plan.reason


_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=12)
_TEXTS = st.lists(_TEXT, max_size=3).map("\n".join)
_WORD = st.from_regex(r"[a-z0-9:/+=-]{1,12}", fullmatch=True)
_NUMBER = st.integers(0, 10**10)
_TIME = _NUMBER.map(lambda seconds: seconds * SECOND)
_SHELLS = st.builds(
    Shell,
    st.lists(_TEXT, min_size=1, max_size=4).map(tuple),
    _TEXTS,
    error_pattern=_TEXT,
    deadline=_NUMBER,
    new_connection=st.booleans(),
)
_COMMANDS: st.SearchStrategy[Command] = st.one_of(
    _SHELLS,
    st.just(SwitchLines(("interface Gi1/0/1", "shutdown"))),
    st.just(enter_with_timer(3, "shutdown")),
    st.builds(
        ApiCall,
        st.just("/redfish/v1"),
        st.sampled_from(["GET", "POST", "PATCH"]),
        _TEXT,
        st.sampled_from(["", "/redfish"]),
        _TEXT,
        _NUMBER,
        _TEXT,
    ),
)
_STEPS = st.builds(
    PlannedStep, _TEXT, st.just("lb1"), _WORD, _COMMANDS, _COMMANDS, st.just(""), _TEXTS, _TEXTS
)
_FINAL_STEPS = st.builds(
    PlannedStep, _TEXT, st.just("lb2"), _WORD, _COMMANDS, st.none(), _TEXT, _TEXTS, _TEXTS, _TEXT
)
_PLANS = st.builds(
    ResolvedPlan,
    _TEXT,
    _TEXT,
    st.dictionaries(_TEXT, _TEXTS, max_size=3),
    _TEXT,
    _TIME,
    _TEXT,
    st.just(""),
    st.lists(_STEPS | _FINAL_STEPS, max_size=4).map(tuple),
    undo_of=st.none() | st.integers(1, 9),
    timing=st.none() | st.just(TIMING),
    host_keys=st.dictionaries(_WORD, _TEXT, max_size=2),
    schedule_lifetime=_TIME,
    takes_down=st.lists(_TEXT, max_size=2).map(tuple),
    guard_override=_TEXT,
    ticket=st.none()
    | st.builds(
        TicketAnswer,
        _TEXT,
        _TEXT,
        st.booleans(),
        st.none() | _TIME,
        st.none() | _TIME,
        st.none() | st.lists(_TEXT, max_size=2).map(tuple),
    ),
    policy_result=_TEXT,
    rules=st.lists(_TEXT, max_size=2).map(tuple),
    installation=_TEXT,
    run=_NUMBER,
    reason=_TEXT,
    not_before=_TIME,
    nonce=_TEXT,
)


def _read_again(plan: ResolvedPlan) -> ResolvedPlan:
    return parse_plan(plan.document, [section.text for section in plan.sections])


@given(_PLANS)
def test_document_and_sections_are_read_as_the_same_plan(plan: ResolvedPlan):
    assert _read_again(plan) == plan


@given(_PLANS)
def test_stored_plan_has_the_digest_that_was_shown(plan: ResolvedPlan):
    assert ResolvedPlan.from_json(plan.to_json()).digest == plan.digest


def test_stored_plan_of_every_kind_of_command_has_the_digest_that_was_shown():
    """Also of those that are stored as another kind, such as integers for SNMP."""
    for command in (SnmpSet(("1.3.6.1.4 i 2",)), SwitchLines(("shutdown",))):
        step = replace(STEP, command=command, undo=command)
        plan = replace(PROPOSAL, steps=(step,))
        assert ResolvedPlan.from_json(plan.to_json()).digest == plan.digest


def test_parts_of_a_sequence_are_read_as_the_same_plan():
    parts = {"01 lb1 abusers clear": 2, "02 lb2 abusers clear": 1, "03 lb1 abusers clear": 1}
    steps = (STEP, replace(STEP, host="nas1"), replace(STEP, host="lb2"), STEP)
    plan = replace(PROPOSAL, steps=steps, part_steps=parts)
    assert _read_again(plan) == replace(plan, current_state="", notes=())


_INPUT = "in clear table http key 203.0.113.9\nin\n"


@pytest.mark.parametrize(
    ("written", "damaged"),
    [
        pytest.param("deadline 30\nundo ", "deadline 030\nundo ", id="a leading zero"),
        pytest.param("after free\n", "after free\r\n", id="a carriage return"),
        pytest.param("after free\n", "after free\n\n", id="an empty line"),
        pytest.param("step ", "step\t", id="a tab"),
        pytest.param("\nin\n", "\nin \n", id="a blank after a key without text"),
        pytest.param("section 1", "section 2", id="another version"),
        pytest.param("fails-on", "fails-at", id="an unknown key"),
        pytest.param(_INPUT, "in\n", id="an input of nothing"),
        pytest.param("before marked\nafter free", "after free\nbefore marked", id="another order"),
        pytest.param("deadline 30\n", "deadline 30\nnew-connection no\n", id="a fact said twice"),
        pytest.param("after free\n", "after free\nprobation 90\n", id="a probation"),
    ],
)
def test_section_is_refused_when_the_writer_would_not_write_it(written: str, damaged: str):
    [section] = PROPOSAL.sections
    assert written in section.text
    with pytest.raises(PlanTextError):
        parse_section(
            section.text.replace(written, damaged, 1), host="lb1", fingerprint="SHA256:abc"
        )


@pytest.mark.parametrize("end", ["", "\n\n", "\nprobation 90\n", "\nstep \n"])
def test_section_is_refused_when_it_ends_otherwise(end: str):
    [section] = PROPOSAL.sections
    with pytest.raises(PlanTextError):
        parse_section(section.text[:-1] + end, host="lb1", fingerprint="SHA256:abc")


@given(st.data())
def test_document_is_refused_or_differs_when_a_byte_changes(data: st.DataObject):
    text = PROPOSAL.document
    place = data.draw(st.integers(0, len(text) - 1))
    character = data.draw(st.characters(codec="utf-8", exclude_characters=text[place]))
    changed = text[:place] + character + text[place + 1 :]
    try:
        plan = parse_plan(changed, [section.text for section in PROPOSAL.sections])
    except PlanTextError:
        return
    assert plan.document == changed


def test_document_is_refused_when_a_section_is_not_its_own():
    other = replace(STEP, after="marked")
    texts = [section.text for section in replace(PROPOSAL, steps=(other,)).sections]
    for sections in (texts, [], [*texts, *texts]):
        with pytest.raises(PlanTextError):
            parse_plan(PROPOSAL.document, sections)
