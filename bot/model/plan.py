"""The plan that people approve, resolved for its hosts, and its one text. Pure.

People sign the document, which has a line for each section with its SHA-256. A section holds the
steps that follow one another on one host. The SHA-256 of the document is the digest of the plan.
"""

import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import groupby

from pydantic import TypeAdapter

from bot.model.canonical import Canonical
from bot.model.plan_text import (
    Line,
    PlanTextError,
    TextReader,
    check_rewritten,
    list_lines,
    write_command,
    write_lines,
    write_optional,
    write_text,
    write_time,
)
from bot.model.schedule import Overlap, ScheduleError, ScheduleTiming, parse_cron
from bot.model.tickets import TicketAnswer
from bot.model.times import SECOND
from connectors.command import Command
from connectors.probation import get_armed_seconds
from runbooks import Leg

_DOCUMENT, _SECTION = "keyturn-plan", "keyturn-section"
_VERSION = "1"


@dataclass(frozen=True)
class PlannedStep:
    """One command exactly as it is sent to its host, with its undo."""

    title: str
    host: str
    fingerprint: str
    """The host key that the host must present."""
    command: Command
    undo: Command | None
    """None if *no_undo_reason* says why there is none."""
    no_undo_reason: str = ""
    before: str = ""
    after: str = ""
    undo_title: str = ""
    """The title of the undo step; "" for `Undo:` and the title."""

    @property
    def work(self) -> "PlannedStep":
        """The step without what can change by itself: its titles, and the words of its undo."""
        undo = None if self.undo is None else self.command
        return replace(self, title="", undo_title="", undo=undo)


@dataclass(frozen=True)
class PlanSection:
    """The steps that follow one another on one host."""

    host: str
    fingerprint: str
    steps: Sequence[PlannedStep]
    part: str = ""
    """Of a sequence, the label of the change that the steps belong to."""

    @cached_property
    def text(self) -> str:
        return write_section(self.steps)

    @cached_property
    def digest(self) -> str:
        """64 hex digits: the SHA-256 of the text."""
        return _hash_text(self.text)


@dataclass(frozen=True)
class RemainingWork:
    """The remaining steps. Without steps, the host is as requested."""

    current_state: str
    steps: Sequence[PlannedStep]
    notes: Sequence[str] = ()
    takes_down: Sequence[Leg] = ()
    ticket: TicketAnswer | None = None
    """What the ticket system says now of the ticket that the request names."""


@dataclass(frozen=True)
class ResolvedPlan:
    """Everything that an approval covers."""

    runbook: str
    runbook_version: str
    values: Mapping[str, str]
    requested_by: str
    expires_at: int
    """The last time to start, in microseconds since 1970."""
    policy_version: str
    current_state: str
    steps: Sequence[PlannedStep]
    notes: Sequence[str] = ()
    """They may refer to runs, see bot/model/references.py."""
    undo_of: int | None = None
    """The run that this one undoes."""
    timing: ScheduleTiming | None = None
    """The times of a schedule; its steps are those of a run at the time of planning."""
    host_keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """For a schedule, the key that each host must present, by host."""
    schedule_lifetime: int = 0
    """How long the approval of a schedule is valid, in microseconds."""
    takes_down: Sequence[str] = ()
    """What may be down while it runs: hosts, or parts of them such as lb1/haproxy."""
    guard_override: str = ""
    """The cut set that it may take down all the same, such as `shop: lb1, lb2`."""
    ticket: TicketAnswer | None = None
    """What the ticket system said of the change ticket; None if the request names none."""
    part_steps: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of a sequence, how many of the steps belong to each change, by its label."""
    policy_result: str = ""
    """A digest of what the policy says of the request and its hosts; depends on the plan."""
    rules: Sequence[str] = ()
    """The names of the policy's rules that apply."""
    installation: str = ""
    """The name of the installation, by which people know it."""
    run: int = 0
    reason: str = ""
    """Why it is requested."""
    not_before: int = 0
    """When it was planned, in microseconds since 1970."""
    nonce: str = ""
    """Random: no two plans have the same."""

    @property
    def legs(self) -> Sequence[Leg]:
        """What may be down while it runs."""
        return [Leg.parse(text) for text in self.takes_down]

    @cached_property
    def sections(self) -> Sequence[PlanSection]:
        """The steps, by what follows one another on one host."""
        return [
            PlanSection(host, fingerprint, tuple(steps), part)
            for part, steps_of_part in self._iterate_parts()
            for (host, fingerprint), steps in groupby(
                steps_of_part, lambda step: (step.host, step.fingerprint)
            )
        ]

    def find_section(self, step_number: int) -> tuple[PlanSection, int]:
        """Return the section of a step of a plan without parts, and the step's number there."""
        for section in self.sections:
            if step_number <= len(section.steps):
                return section, step_number
            step_number -= len(section.steps)
        raise ValueError("the plan has no such step")

    def _iterate_parts(self) -> Iterator[tuple[str, Sequence[PlannedStep]]]:
        if not self.part_steps:
            yield "", self.steps
        for label in sorted(self.part_steps):
            yield label, self.list_steps_of_part(label)

    @cached_property
    def document(self) -> str:
        """The text of everything that must not change between approval and start.

        Raises PlanTextError if it holds a character that people cannot see.
        """
        return write_lines(_write_document(self))

    @cached_property
    def digest(self) -> str:
        """64 hex digits: the SHA-256 of the document."""
        return _hash_text(self.document)

    def has_digest(self, digest: str) -> bool:
        """Return whether this is the digest of the plan, which may have been altered."""
        try:
            return self.digest == digest
        except PlanTextError:
            return False

    def adopt_issue(self, approved: "ResolvedPlan") -> "ResolvedPlan":
        """Return this plan as a copy of the approved one, if its steps still are the same.

        What the approved plan was issued with is kept, and so are the titles and the words of the
        undo of each step, which can contain counters.
        """
        steps = self.steps
        if len(steps) == len(approved.steps):
            steps = tuple(map(_adopt_undo, steps, approved.steps))
        return replace(
            self,
            steps=steps,
            expires_at=approved.expires_at,
            policy_version=approved.policy_version,
            policy_result=approved.policy_result,
            rules=approved.rules,
            installation=approved.installation,
            run=approved.run,
            reason=approved.reason,
            not_before=approved.not_before,
            nonce=approved.nonce,
        )

    @cached_property
    def steps_by_host(self) -> Mapping[str, Sequence[PlannedStep]]:
        """The steps of each host, in order."""
        by_host: dict[str, list[PlannedStep]] = {}
        for step in self.steps:
            by_host.setdefault(step.host, []).append(step)
        return by_host

    def list_steps_of_part(self, label: str) -> Sequence[PlannedStep]:
        """Return the steps of one change of a sequence."""
        before = sum(count for other, count in self.part_steps.items() if other < label)
        return self.steps[before : before + self.part_steps.get(label, 0)]

    @property
    def log_facts(self) -> dict[str, Canonical]:
        """What the change log records: the lines of document and sections, and what is shown."""
        return {
            "document": list_lines(self.document),
            "sections": [list_lines(section.text) for section in self.sections],
            "current_state": self.current_state,
            "notes": self.notes,
        }

    @cached_property
    def is_reversible(self) -> bool:
        return all(step.undo is not None for step in self.steps)

    def to_json(self) -> str:
        return _PLAN_ADAPTER.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> "ResolvedPlan":
        return _parse_plan(text)


_PLAN_ADAPTER = TypeAdapter(ResolvedPlan)


# The plan of a request for many hosts is long and is parsed before each host. The cache key is the
# whole text, so a changed text is never mistaken for an earlier one.
@lru_cache(32)
def _parse_plan(text: str) -> ResolvedPlan:
    return _PLAN_ADAPTER.validate_json(text)


def _adopt_undo(step: PlannedStep, approved: PlannedStep) -> PlannedStep:
    """Return a step with the titles and the undo of the approved one, if it has an undo."""
    has_both = step.undo is not None and approved.undo is not None
    return replace(
        step,
        title=approved.title,
        undo_title=approved.undo_title,
        undo=approved.undo if has_both else step.undo,
    )


def write_section(steps: Sequence[PlannedStep]) -> str:
    """Return the text of steps on one host. Raises PlanTextError."""
    return write_lines(_write_steps(steps))


def _write_steps(steps: Sequence[PlannedStep]) -> Iterator[Line]:
    yield _SECTION, _VERSION
    for step in steps:
        yield "step", step.title
        yield from write_text("before", step.before)
        yield from write_text("after", step.after)
        yield from write_command(step.command, words="do")
        if step.undo is None:
            yield "no-undo", step.no_undo_reason
        else:
            yield from write_command(step.undo, words="undo", prefix="undo-")
        yield from write_optional("undo-title", step.undo_title)
        yield from write_optional("probation", get_armed_seconds(step.command))


def parse_section(text: str, *, host: str, fingerprint: str) -> Sequence[PlannedStep]:
    """Return the steps of a section. Raises PlanTextError for what the writer never writes."""
    try:
        steps = [*_read_steps(TextReader(text), host, fingerprint)]
    except ValueError as error:
        raise PlanTextError(f"this is not the text of a section: {error}") from None
    check_rewritten(text, write_section(steps), "section")
    return steps


def _read_steps(reader: TextReader, host: str, fingerprint: str) -> Iterator[PlannedStep]:
    reader.take(_SECTION)
    while reader.has("step"):
        title = reader.take("step")
        before, after = reader.take_text("before"), reader.take_text("after")
        command = reader.take_command(words="do")
        is_final = reader.has("no-undo")
        yield PlannedStep(
            title=title,
            host=host,
            fingerprint=fingerprint,
            command=command,
            no_undo_reason=reader.take_optional("no-undo"),
            undo=None if is_final else reader.take_command(words="undo", prefix="undo-"),
            before=before,
            after=after,
            undo_title=reader.take_optional("undo-title"),
        )
        reader.take_optional("probation")


def _write_document(plan: ResolvedPlan) -> Iterator[Line]:
    yield _DOCUMENT, _VERSION
    yield "installation", plan.installation
    yield "run", str(plan.run)
    yield "requested-by", plan.requested_by
    yield "reason", plan.reason
    yield "runbook", plan.runbook
    yield "runbook-version", plan.runbook_version
    for name, value in sorted(plan.values.items()):
        yield "field", name
        yield from write_text("value", value)
    yield from write_optional("undo-of", plan.undo_of)
    yield "policy", plan.policy_version
    yield "policy-result", plan.policy_result
    yield from (("rule", name) for name in plan.rules)
    yield write_time("not-before", plan.not_before)
    yield write_time("expires", plan.expires_at)
    yield "nonce", plan.nonce
    yield from _write_timing(plan)
    yield from (("takes-down", leg) for leg in plan.takes_down)
    yield from write_optional("may-take-down", plan.guard_override)
    yield from _write_ticket(plan.ticket) if plan.ticket else ()
    yield from _write_sections(plan)


def _write_timing(plan: ResolvedPlan) -> Iterator[Line]:
    if plan.timing is not None:
        timing = plan.timing
        yield "schedule", timing.name
        yield "cron", timing.cron_expression.cron
        yield "zone", timing.cron_expression.zone
        yield "overlap", timing.overlap.value
        yield "catch-up", str(timing.catch_up)
        yield "spread", str(timing.spread_minutes)
        yield from write_optional("replaces", timing.replaces_schedule)
    yield from write_optional("lifetime", plan.schedule_lifetime // SECOND)
    yield from (("key-of", f"{host} {key}") for host, key in sorted(plan.host_keys.items()))


def _write_ticket(ticket: TicketAnswer) -> Iterator[Line]:
    yield "ticket", ticket.key
    yield "ticket-state", ticket.state
    yield from write_optional("ticket-approved", ticket.is_approved)
    yield from () if ticket.starts_at is None else (write_time("ticket-from", ticket.starts_at),)
    yield from () if ticket.ends_at is None else (write_time("ticket-until", ticket.ends_at),)
    if ticket.hosts is not None:
        yield "ticket-hosts", str(len(ticket.hosts))
        yield from (("ticket-host", host) for host in ticket.hosts)


def _write_sections(plan: ResolvedPlan) -> Iterator[Line]:
    sections = plan.sections
    if sum(len(section.steps) for section in sections) != len(plan.steps):
        raise PlanTextError("the plan cannot be signed: its parts do not hold all of its steps")
    for before, section in zip([None, *sections], sections, strict=False):
        if " " in section.host:
            raise PlanTextError("the plan cannot be signed: the name of a host holds a blank")
        if section.part and (before is None or before.part != section.part):
            yield "part", section.part
        yield "host", f"{section.host} {section.digest} {section.fingerprint}"


def parse_plan(document: str, sections: Sequence[str]) -> ResolvedPlan:
    """Return the plan of a document and its sections, in their order.

    It has no notes and no current state, which are not signed. Raises PlanTextError for what the
    writer never writes, and for a section that is not one of the document.
    """
    try:
        plan = _read_document(TextReader(document), sections)
    except (ValueError, ScheduleError) as error:
        raise PlanTextError(f"this is not the text of a plan: {error}") from None
    check_rewritten(document, plan.document, "plan")
    return plan


def _read_document(reader: TextReader, sections: Sequence[str]) -> ResolvedPlan:
    reader.take(_DOCUMENT)
    plan = ResolvedPlan(
        installation=reader.take("installation"),
        run=int(reader.take("run")),
        requested_by=reader.take("requested-by"),
        reason=reader.take("reason"),
        runbook=reader.take("runbook"),
        runbook_version=reader.take("runbook-version"),
        values=_read_values(reader),
        undo_of=int(reader.take("undo-of")) if reader.has("undo-of") else None,
        policy_version=reader.take("policy"),
        policy_result=reader.take("policy-result"),
        rules=reader.take_all("rule"),
        not_before=reader.take_time("not-before"),
        expires_at=reader.take_time("expires"),
        nonce=reader.take("nonce"),
        timing=_read_timing(reader),
        schedule_lifetime=reader.take_time("lifetime") if reader.has("lifetime") else 0,
        host_keys=dict(_split_words(text, 2) for text in reader.take_all("key-of")),
        takes_down=reader.take_all("takes-down"),
        guard_override=reader.take_optional("may-take-down"),
        ticket=_read_ticket(reader),
        current_state="",
        steps=(),
    )
    return _read_sections(reader, plan, sections)


def _split_words(text: str, count: int) -> list[str]:
    words = text.split(" ", count - 1)
    if len(words) != count:
        raise PlanTextError(f"“{text[:40]}” does not have {count} words")
    return words


def _read_values(reader: TextReader) -> dict[str, str]:
    values: dict[str, str] = {}
    while reader.has("field"):
        name = reader.take("field")
        values[name] = reader.take_text("value")
    return values


def _read_timing(reader: TextReader) -> ScheduleTiming | None:
    if not reader.has("schedule"):
        return None
    name = reader.take("schedule")
    cron, zone = reader.take("cron"), reader.take("zone")
    return ScheduleTiming(
        name,
        parse_cron(cron, zone),
        Overlap(reader.take("overlap")),
        int(reader.take("catch-up")),
        int(reader.take("spread")),
        replaces_schedule=int(reader.take("replaces")) if reader.has("replaces") else 0,
    )


def _read_ticket(reader: TextReader) -> TicketAnswer | None:
    if not reader.has("ticket"):
        return None
    return TicketAnswer(
        reader.take("ticket"),
        reader.take("ticket-state"),
        bool(reader.take_optional("ticket-approved")),
        reader.take_time("ticket-from") if reader.has("ticket-from") else None,
        reader.take_time("ticket-until") if reader.has("ticket-until") else None,
        _read_ticket_hosts(reader),
    )


def _read_ticket_hosts(reader: TextReader) -> tuple[str, ...] | None:
    if not reader.has("ticket-hosts"):
        return None
    reader.take("ticket-hosts")
    return reader.take_all("ticket-host")


def _read_sections(
    reader: TextReader, plan: ResolvedPlan, sections: Sequence[str]
) -> ResolvedPlan:
    steps: list[PlannedStep] = []
    part, counts = "", dict[str, int]()
    for text in sections:
        part = reader.take("part") if reader.has("part") else part
        host, _, fingerprint = _split_words(reader.take("host"), 3)
        found = parse_section(text, host=host, fingerprint=fingerprint)
        steps += found
        if part:
            counts[part] = counts.get(part, 0) + len(found)
    return replace(plan, steps=tuple(steps), part_steps=counts)


def create_nonce() -> str:
    return secrets.token_hex(16)


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
