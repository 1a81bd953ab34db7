"""The changes of a host, reduced to what is left of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bot.db import runs, view_conditions
from bot.db.database import Transaction
from bot.model.lasting_values import get_key_name
from bot.model.run import Run, State
from runbooks import AnyRunbook


@dataclass(frozen=True)
class AdoptedValue:
    """A value that was set outside Keyturn, and that a person adopted."""

    key: str
    value: str
    person: str
    reason: str
    at: int
    """Microseconds since 1970."""
    run: int
    """The run that set the value before."""


@dataclass(frozen=True)
class ValueFact:
    """What a feature knows of a lasting value of a host."""

    adopted: AdoptedValue | None = None
    """The value that a person adopted instead of it."""
    doubt: str = ""
    """What is not known of it, as a sentence without its full stop."""


@dataclass
class FoldedRuns:
    """The changes of a host, reduced to what is left of them."""

    values: dict[str, list[Run]] = field(default_factory=dict[str, list[Run]])
    """The runs that set each key and were not undone, oldest first."""
    acts: dict[str, list[Run]] = field(default_factory=dict[str, list[Run]])
    """Other changes that were not undone, by their request."""
    unsure: dict[str, Run] = field(default_factory=dict[str, Run])
    """The last run of each key if it did not succeed."""
    hidden_keys: dict[str, list[Run]] = field(default_factory=dict[str, list[Run]])
    """Keys that are left out although earlier runs of them may be viewed, with these runs."""

    def hide_runs(self, viewable: Collection[int]) -> None:
        """Leave out runs that are not viewable, and keys that such a run has set last."""
        for key in [*self.values]:
            found = self.values[key]
            if not all(run.id in viewable for run in (*found[-1:], *self._list_unsure(key))):
                del self.values[key]
                self.unsure.pop(key, None)
                if shown := _list_in(found, viewable):
                    self.hidden_keys[key] = shown
        self.values = {key: _list_in(found, viewable) for key, found in self.values.items()}
        self.acts = {request: _list_in(found, viewable) for request, found in self.acts.items()}
        self.unsure = {key: run for key, run in self.unsure.items() if run.id in viewable}

    def _list_unsure(self, key: str) -> Sequence[Run]:
        return [self.unsure[key]] if key in self.unsure else []

    def get_last_runs(self) -> list[tuple[str, Run]]:
        """Return each key with the run whose value it has, in the order of these runs."""
        last = [(key, found[-1]) for key, found in self.values.items() if found]
        return sorted(last, key=lambda one: (one[1].started_at or 0, one[1].id))


def fold_runs(changes: Sequence[Run], runbooks: Mapping[str, type[AnyRunbook]]) -> FoldedRuns:
    """Reduce the changes of a host, oldest first, to what is left of them. Pure.

    An undo restores what was there before its run, also if that run was undone before.
    """
    folded = FoldedRuns()
    before: dict[int, list[Run]] = {}
    for run in changes:
        key = get_key_name(runbooks, run)
        if run.state is not State.SUCCEEDED:
            if key:
                folded.unsure[key] = run
            else:
                folded.acts.setdefault(run.title, []).append(run)
            continue
        folded.unsure.pop(key, None)
        same = (
            folded.values.setdefault(key, []) if key else folded.acts.setdefault(run.request, [])
        )
        if run.undo_of is None:
            before[run.id] = [*same]
            same.append(run)
        elif key:
            same[:] = before.get(run.undo_of, same)
        else:
            same[:] = [one for one in same if one.id != run.undo_of]
    return folded


def _list_in(found: Sequence[Run], viewable: Collection[int]) -> list[Run]:
    return [run for run in found if run.id in viewable]


def fold_host(tx: Transaction, runbooks: Mapping[str, type[AnyRunbook]], host: str) -> FoldedRuns:
    """Fold all runs on a host, then leave out what may not be viewed.

    To fold only those that may be viewed would yield values that are outdated.
    """
    changes = runs.list_changes_of_host(tx, host)
    folded = fold_runs(changes, runbooks)
    folded.hide_runs(view_conditions.list_viewable(tx, [run.id for run in changes]))
    return folded


def describe_left_out(tx: Transaction, hidden_keys: Iterable[str], name: str) -> str:
    """Return what a request leaves out, because *name*, who makes it, may not view some runs.

    "" for a person who may view everything.
    """
    if view_conditions.can_view_everything(tx):
        return ""
    keys = [f"{key}, which a run that {name} may not view has set last" for key in hidden_keys]
    return "; ".join([*keys, f"runs that {name} may not view"])
