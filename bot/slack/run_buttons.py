"""The buttons of runs: what each is called, the form that it opens, and what it does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bot.model.run import RequestOrigin, Run
from bot.service import KeyturnService
from bot.slack.blocks import Element, button, overflow


@dataclass(frozen=True)
class Decision:
    """What a person decides about a run, by its button or by the form that the button opens."""

    run: int
    digest: str
    """The first digits of the plan that the button showed."""
    person: str
    origin: RequestOrigin
    text: str = ""
    """The reason, question or answer in the form."""
    assignee: str = ""
    start_at: int | None = None
    """The earliest start in the form, in microseconds since 1970."""


@dataclass(frozen=True)
class TextForm:
    """A form for the text of a decision."""

    title: str
    """Before the run."""
    label: str = "Reason"
    """Of the text."""
    seen_by: str = "The requester sees this"
    asks_assignee: bool = False
    """Whether an approver is chosen; the text is optional then."""
    asks_start: bool = False
    """Whether the earliest start is asked for."""


Decide = Callable[[KeyturnService, Decision], Run]


def _decide_nothing(_service: KeyturnService, of: Decision) -> Run:
    raise TypeError(f"a button that decides nothing was pressed to decide run {of.run}")


@dataclass(frozen=True)
class RunButton:
    """A button of a run: it decides at once or by a form, shows something, or acts on a plan."""

    id: str
    text: str
    decide: Decide = _decide_nothing
    form: TextForm | None = None
    spoken: str = "{text} run {run}: {title}"
    """For screen readers, since many messages have the same buttons."""

    def build(self, run: Run, *, text: str = "", value: str = "") -> Element:
        """Return the button of a run. text: instead of its own; value: instead of the plan."""
        shown = text or self.text
        spoken = self.spoken.format(text=shown.rstrip("…"), run=run.id, title=run.title)
        value = value or f"{run.id}:{run.short_digest}"
        return button(shown, action=self.id, value=value, label=spoken)

    def build_link(self, run: Run, *, url: str) -> Element:
        """Return the main button of a run, which opens a page in the browser."""
        return self.build(run) | {"url": url, "style": "primary"}


def _approve(service: KeyturnService, of: Decision) -> Run:
    return service.approve_run(
        of.run, person=of.person, digest=of.digest, reason=of.text, start_at=of.start_at
    )


def _hold(service: KeyturnService, of: Decision) -> Run:
    return service.hold_run(of.run, person=of.person, reason=of.text)


def _deny(service: KeyturnService, of: Decision) -> Run:
    return service.deny_run(of.run, person=of.person, reason=of.text)


def _ask(service: KeyturnService, of: Decision) -> Run:
    return service.ask_question(of.run, person=of.person, text=of.text)


def _answer(service: KeyturnService, of: Decision) -> Run:
    return service.answer_question(of.run, person=of.person, text=of.text)


def _reassign(service: KeyturnService, of: Decision) -> Run:
    return service.reassign_run(of.run, person=of.person, assignee=of.assignee, reason=of.text)


def _accept(service: KeyturnService, of: Decision) -> Run:
    return service.accept_proposal(of.run, person=of.person, digest=of.digest)


def _withdraw(service: KeyturnService, of: Decision) -> Run:
    return service.withdraw_run(of.run, person=of.person)


def _replan(service: KeyturnService, of: Decision) -> Run:
    return service.replan_run(of.run, person=of.person, origin=of.origin)


def _stop(service: KeyturnService, of: Decision) -> Run:
    return service.stop_run(of.run, person=of.person)


_ASK_FORM = TextForm(
    "Ask about", "Question", "The requester is notified, and the run stays pending"
)
_ANSWER_FORM = TextForm("Answer about", "Answer", "Approvers see this")
_REASSIGN_FORM = TextForm("Reassign", seen_by="The approver sees this", asks_assignee=True)

APPROVE = RunButton("approve", "Approve", _approve)
APPROVE_WITH_REASON = RunButton("approve-reason", "Approve…", _approve, TextForm("Approve"))
APPROVE_LATER = RunButton(
    "approve-later",
    "Approve, start at…",
    _approve,
    TextForm("Approve", asks_start=True),
    "Approve run {run} to start later: {title}",
)
# Of an approved run that starts later.
HOLD = RunButton("hold", "Hold", _hold)
DENY = RunButton("deny", "Deny…", _deny, TextForm("Deny"))
QUESTION = RunButton("question", "Ask…", _ask, _ASK_FORM, "Ask about run {run}: {title}")
ANSWER = RunButton(
    "answer", "Answer…", _answer, _ANSWER_FORM, "Answer the question about run {run}: {title}"
)
REASSIGN = RunButton("reassign", "Reassign…", _reassign, _REASSIGN_FORM)
ACCEPT = RunButton("accept", "Accept", _accept)
WITHDRAW = RunButton("withdraw", "Withdraw", _withdraw)
REPLAN = RunButton("replan", "Re-plan", _replan)
STOP = RunButton("stop", "Stop", _stop)
UNDO = RunButton("undo", "Undo…")
# The whole plan, how it is undone, and what identifies it in the change log.
DETAILS = RunButton("commands", "Details", spoken="{text} of run {run}: {title}")
# The person gets a direct message when the run ends.
WATCH = RunButton("watch", "Watch")
# Slack reports that it was pressed, and opens the page.
SIGN = RunButton("sign", "Sign…")
# Of a plan: it is opened, requested, or withdrawn.
REVIEW_PLAN = RunButton("review-plan", "Review plan", spoken="Review plan {run}")
SUBMIT = RunButton("submit", "Run now", spoken="{text}: {title}")
WITHDRAW_PLAN = RunButton("withdraw-plan", "Withdraw", spoken="Withdraw plan {run}")
# Opens the form of a failed or refused run, with its values: a request, no decision.
RESUBMIT = RunButton("again", "Request again", spoken="Request run {run} again: {title}")

_DECIDING = (
    *(APPROVE, APPROVE_WITH_REASON, APPROVE_LATER, HOLD, DENY, QUESTION, ANSWER),
    *(REASSIGN, ACCEPT, WITHDRAW, REPLAN, STOP),
)
# The menu beside the buttons of a card.
MENU = "more"
_IN_MENU = (APPROVE_LATER, QUESTION, REASSIGN, WITHDRAW, WATCH, DETAILS)
MENU_IDS = frozenset(one.id for one in _IN_MENU)


def build_menu(run: Run, *buttons: RunButton) -> Element:
    """Return what else can be done with a run, as a menu. Its values are those of buttons."""
    value = f"{run.id}:{run.short_digest}"
    return overflow(MENU, [(one.text, f"{one.id}:{value}") for one in buttons])


DECISIONS: Mapping[str, RunButton] = {one.id: one for one in _DECIDING}
