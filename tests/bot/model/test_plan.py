"""The plan digest covers everything that must not change between approval and start."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from bot.model.plan import PlannedStep, ResolvedPlan
from bot.model.schedule import Overlap, ScheduleTiming, parse_cron
from bot.model.tickets import TicketAnswer
from connectors.command import Hint, Shell, SwitchLines

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
)
TIMING = ScheduleTiming("nightly", parse_cron("0 3 * * *", "UTC"))
TICKET = TicketAnswer("CHG1", "scheduled", True, 1, 2, ("lb1",))
# What people read and what may move by itself: shown, but not what they approve.
MAY_MOVE = {"current_state", "notes", "title", "undo_title"}
TOLD = {"notify_when", "channel"}
SHELL_MAY_MOVE = {"hints", "root", "note", "marker"}


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
            replace(PROPOSAL, **{field.name: _change_value(getattr(PROPOSAL, field.name))}),
        )
        for field in fields(PROPOSAL)
        if field.name not in MAY_MOVE | {"timing", "ticket"}
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
    mutations.append(("timing", replace(PROPOSAL, timing=TIMING)))
    mutations.append(("ticket", replace(PROPOSAL, ticket=TICKET)))
    return mutations


def _list_ticket_mutations() -> list[tuple[str, TicketAnswer]]:
    return [
        (field.name, replace(TICKET, **{field.name: _change_value(getattr(TICKET, field.name))}))
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
        replace(PROPOSAL, steps=(replace(STEP, title="Let 203.0.113.9 in"),)),
        replace(PROPOSAL, steps=(replace(STEP, undo=Shell(("socat",), stdin="set … 58\n")),)),
        replace(
            PROPOSAL,
            steps=(replace(STEP, command=replace(STEP.command, hints=(Hint("a", "b"),))),),
        ),
    ],
)
def test_plan_digest_ignores_current_state_notes_titles_and_undo(changed: ResolvedPlan):
    assert changed.digest == PROPOSAL.digest


def test_plan_digest_survives_storage_as_json():
    again = ResolvedPlan.from_json(PROPOSAL.to_json())
    assert again.digest == PROPOSAL.digest
    assert list(again.steps) == [STEP]
