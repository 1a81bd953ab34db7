"""The pages of one job: more than one if it has many steps, or installs packages first."""

import copy
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bot.features.importing.drafts import (
    MOST_STEPS,
    Draft,
    Kind,
    NextPage,
    Origin,
    Outcome,
    Unclear,
    make_name,
    make_words,
    show_marks,
)
from bot.features.importing.shell import lines as shell_lines
from bot.features.importing.shell.lines import Meaning
from bot.features.importing.sources import as_list


@dataclass(frozen=True)
class Imported:
    """What became of one job, playbook or template."""

    name: str
    drafts: Sequence[Draft]
    outcomes: Sequence[Outcome]
    file: str = ""
    """The name of the file."""


@dataclass
class Pages:
    """Collects the steps of one job."""

    name: str
    sentence: str
    source: Path
    fields: dict[str, dict[str, Any]]
    drafts: list[Draft] = field(default_factory=list[Draft])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    refusals: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """When each of its pages is refused."""
    notes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What each of its pages asks or says."""
    endings: list[Callable[[Draft], object]] = field(
        default_factory=list[Callable[[Draft], object]]
    )
    """What is done with each of its pages when all steps are there."""
    items: dict[str, str] = field(default_factory=dict[str, str])
    """The lists of which a field has an item, where a request is for one of its items."""
    within: list[int] = field(default_factory=list[int])
    """The lines that include the file that is read."""
    _has_packages: bool | None = None
    """Whether the page is for packages; None as long as it is for either."""
    _prints: set[int] = field(default_factory=set[int])
    """The outcomes, by number, of commands that only print something."""

    def add_outcome(self, kind: Kind, origin: Origin, note: str = "") -> None:
        self._note(origin, Outcome(kind, origin.line, origin.title, show_marks(note)))

    def leave_out(self, origin: Origin, reason: str, *, is_setting: bool = False) -> None:
        found = Outcome(Kind.LEFT_OUT, origin.line, origin.title, show_marks(reason), is_setting)
        self._note(origin, found)

    def _note(self, origin: Origin, outcome: Outcome) -> None:
        file = "" if origin.file == self.source else origin.file.name
        place = (*self.within, outcome.line)
        self.outcomes.append(replace(outcome, file=file, place=place))

    def carry(
        self,
        origin: Origin,
        action: Callable[[Draft], object],
        *,
        is_package: bool | None = False,
    ) -> None:
        """Carry a step over into a page. Raises Unclear, and then leaves the page as it was.

        What packages bring can be read only once they are installed, so they have a page of their
        own. is_package: None for what belongs on a page of either kind.
        """
        draft = self._get_draft(is_package=is_package)
        before = _copy_parts(draft)
        try:
            action(draft)
        except Unclear:
            vars(draft).update(before)
            raise
        except NextPage:
            vars(draft).update(before)
            self._open()
            self.carry(origin, action, is_package=is_package)
            return
        # A request for an item of one list would ask for one of each.
        is_mixed = bool(before["steps"]) and len(self._list_lists(draft)) > 1
        if is_mixed or len(draft.steps) > MOST_STEPS:
            vars(draft).update(before)
            if not draft.steps:
                raise Unclear(f"it is more than {MOST_STEPS} steps")
            self._open()
            self.carry(origin, action, is_package=is_package)

    def carry_on(self, page: int, action: Callable[[Draft], object]) -> None:
        """Carry a step over to the end of a page, by its number from 1.

        Raises Unclear, and then leaves the page as it was.
        """
        draft = self.drafts[page - 1]
        before = _copy_parts(draft)
        try:
            action(draft)
            if len(draft.steps) > MOST_STEPS:
                raise Unclear(f"it would be more than {MOST_STEPS} steps")
        except Unclear:
            vars(draft).update(before)
            raise

    def ask(self, origin: Origin, reason: str, what: str) -> None:
        """Leave a step out, and ask in its place what does it."""
        self.carry(origin, lambda draft: shell_lines.ask_for_step(draft, origin, what))
        self.leave_out(origin, f"{reason}. The draft asks at this step which command does it")

    def carry_code(
        self,
        origin: Origin,
        code: str,
        *,
        root: bool = False,
        problems: Sequence[str] = (),
        shell: str = "",
        condition: str = "",
    ) -> None:
        """Carry lines of a shell over: as what they mean, or blind.

        problems: what a person has to change in them first. shell: the one that they were written
        for, if they are blind. condition: under which the tool ran them, which the draft asks for.
        """
        meanings: list[Meaning] | None = None
        notes: list[str] = []
        try:
            if not problems:
                meanings = shell_lines.understand_script(code)
            if meanings is not None:
                with self._all_or_none():
                    goes_on = shell_lines.goes_on(code)
                    self._carry_meanings(origin, meanings, condition, _GOES_ON * goes_on)
                return
        except Unclear as unclear:
            notes.append(str(unclear))
        problems = [*problems, *shell_lines.list_shell_problems(shell)]
        if condition:
            problems = [*problems, f"Ansible asked {condition}"]
        again = [one.service for one in meanings or () if one.service[0] in _AGAIN]
        hints = [f"For this alone, request: service {verb} HOST {name}" for verb, name in again]
        hint = show_marks(" ".join(hints[:1]))
        if re.search(r"\bsudo\b", code):
            problems = [*problems, "it calls sudo: give the step `root: true`, and take sudo out"]

        def carry(draft: Draft) -> None:
            shell_lines.carry_blind(draft, origin, code, root=root, hint=hint, problems=problems)

        try:
            self.carry(origin, carry)
        except Unclear as unclear:
            self.ask(origin, str(unclear), f"the lines at {origin.file.name}:{origin.line}")
            return
        self.add_outcome(Kind.BLIND, origin, "; ".join([*notes, *problems]))

    @contextmanager
    def _all_or_none(self) -> Generator[None]:
        """Leave the pages as they were if one of several steps is not carried over."""
        count, has_packages = len(self.drafts), self._has_packages
        last = self.drafts[-1] if self.drafts else None
        before = _copy_parts(last) if last else {}
        try:
            yield
        except Unclear:
            del self.drafts[count:]
            self._has_packages = has_packages
            if last:
                vars(last).update(before)
            raise

    def _carry_meanings(
        self, origin: Origin, meanings: Sequence[Meaning], condition: str, note: str
    ) -> None:
        for one in meanings:
            carry = one.carry
            if one.reads:
                self._carry_reading(origin, one.reads)
            elif carry is not None:
                self.carry(
                    origin,
                    lambda draft, carry=carry: draft.ask_condition(
                        condition, lambda: carry(draft, origin)
                    ),
                    is_package=one.is_package,
                )
        reasons = [one.left_out for one in meanings if one.left_out]
        if all(one.reads or one.left_out for one in meanings):
            self._prints.add(len(self.outcomes))
        if len(reasons) == len(meanings):
            self.leave_out(origin, reasons[0])
        else:
            self.add_outcome(Kind.TYPED, origin, note)

    def _carry_reading(self, origin: Origin, words: Sequence[str]) -> None:
        def add(draft: Draft) -> None:
            run = [draft.word(word) for word in words]
            reading = {"run": run, "as": "lines", "pattern": "(?P<line>.*)"}
            draft.checks.append(draft.add_reading("_".join(words[:2]), reading))

        self.carry(origin, add)

    def _get_draft(self, *, is_package: bool | None) -> Draft:
        is_other = is_package is not None and self._has_packages == (not is_package)
        if not self.drafts or (self.drafts[-1].steps and is_other):
            self._open()
        self._has_packages = self._has_packages if is_package is None else is_package
        return self.drafts[-1]

    def _list_lists(self, draft: Draft) -> list[str]:
        """Return the lists that a page has an item of."""
        return [*dict.fromkeys(self.items[name] for name in self.items if name in draft.used)]

    def _open(self) -> None:
        self._has_packages = None
        self.drafts.append(Draft("", self.sentence, self.source, self.fields))

    def finish(self, taken: set[str]) -> Imported:
        """Name the pages, unlike those that are taken, and return them."""
        drafts = [one for one in self.drafts if one.steps or one.checks]
        if any(one.steps for one in drafts):
            # A change reads its own state; what was only printed has no place in it.
            for at in self._prints:
                note = "it only prints, and a change has no place for that: make it a check"
                self.outcomes[at] = replace(self.outcomes[at], kind=Kind.LEFT_OUT, note=note)
            drafts = [one for one in drafts if one.steps]
            for one in drafts:
                for name in one.checks:
                    one.read.pop(name, None)
        for draft in drafts:
            for end in self.endings:
                end(draft)
            draft.question_conflicts()
            draft.refuse += [{key: draft.text(one[key]) for key in one} for one in self.refusals]
            draft.notes += [{key: draft.text(one[key]) for key in one} for one in self.notes]
        self._say_items(drafts)
        for number, draft in enumerate(drafts, start=1):
            words = make_words(self.name)[: 4 if len(drafts) == 1 else 3]
            parts = [*words, f"part{number}"] if len(drafts) > 1 else words
            draft.words = _make_free(" ".join(parts), taken)
            taken.add(draft.words)
        outcomes = sorted(self.outcomes, key=lambda one: one.place)
        return Imported(self.name, drafts, outcomes, self.source.name)

    def _say_items(self, drafts: Sequence[Draft]) -> None:
        """Say of lists that only an inventory has that a request is for one of their items."""
        for draft in drafts:
            draft.notes += [
                {"text": f"It is for one item of {name}. Ansible took all: request it for each."}
                for name in self._list_lists(draft)
            ]
        for name in dict.fromkeys(name for draft in drafts for name in self._list_lists(draft)):
            reason = "only an inventory has its items: a request is for one, so make it for each"
            self.leave_out(Origin(self.source, 1, name), reason, is_setting=True)


_AGAIN = ("restart", "reload")
_GOES_ON = "the shell went on after a line that failed; Keyturn stops there"


def _copy_parts(draft: Draft) -> dict[str, Any]:
    # All pages share the fields, and a later step may bring another one.
    parts = {name: part for name, part in vars(draft).items() if name != "fields"}
    return {name: copy.copy(part) for name, part in parts.items()}


def _make_free(words: str, taken: set[str]) -> str:
    number, free = 1, words
    version = "v" if words[-1:].isdigit() else ""  # the second part1 is not part 12
    while free in taken:
        number += 1
        free = f"{words}{version}{number}"
    return free


def make_fields(options: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the values that a job takes, from their names, texts, values and patterns."""
    fields: dict[str, dict[str, Any]] = {}
    for name, option in options:
        description = " ".join(str(option.get("description") or name).split())[:200]
        values = [*map(str, as_list(option.get("values")))]
        given: dict[str, Any] = {"type": "text"}
        if values and option.get("enforced"):
            given = {"type": "choice", "values": values}
        else:
            given["pattern"] = "TODO"
        given["description"] = description.replace("{", "(").replace("}", ")")
        fields[make_name(name)] = given
    return fields
