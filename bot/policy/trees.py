"""The fault trees of a policy: the files trees/NAME.yaml, and `redundant:` of the inventory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from pydantic import ValidationError

from bot.model.request_form import (
    RequestSyntaxError,
    find_runbook,
    format_request,
    parse_request,
    split_words,
)
from bot.policy.fault_tree import Event, FaultTree, TreeError, TreeModel, build_pair, link_tree
from bot.policy.problem import NoPolicyError, PolicyProblem
from bot.policy.tree_analysis import TreeAnalysis
from bot.policy.tree_condition import find_problem, parse_condition
from bot.policy.yaml_file import YamlFile
from connectors.inventory import Inventory
from runbooks import Check, Leg
from runbooks._catalogue import is_own

# What pydantic returns, by the type of its error, in words for people.
_MESSAGES = {
    "extra_forbidden": "is an unknown field: check the spelling",
    "missing": "is missing",
    "sequence_str": "must be a list in brackets, such as [one, other]",
    "string_pattern_mismatch": "must be a name without spaces, such as lb1 or lb1/haproxy",
}
_MAX_PROBLEMS = 5


def parse_trees(
    files: Mapping[str, YamlFile], others: Mapping[str, YamlFile] | None = None
) -> dict[str, FaultTree]:
    """Return the tree of each file, by name. Raises NoPolicyError with file and line.

    others: files that trees may name, of which no tree is returned.
    """
    all_files = {**(others or {}), **files}
    models = {name: _parse_model(file) for name, file in all_files.items()}
    trees: dict[str, FaultTree] = {}
    for name, file in files.items():
        try:
            trees[name] = link_tree(name, models)
        except TreeError as error:
            raise NoPolicyError(file.build_problem(str(error), error.where)) from None
    return trees


@dataclass(frozen=True)
class PolicyTrees:
    """The fault trees of a policy."""

    analyses: Mapping[str, TreeAnalysis]
    """By name: the trees of files, and one for each group of redundant hosts in the inventory."""
    problems: Sequence[PolicyProblem]
    """What is wrong with the files of other trees, which protect nothing."""


def build_trees(files: Mapping[str, YamlFile], inventory: Inventory) -> PolicyTrees:
    """Return the trees of a policy, and the problems of each file that has none."""
    models: dict[str, TreeModel] = {}
    analyses = {name: TreeAnalysis(build_pair(names)) for name, names in _name_pairs(inventory)}
    problems: list[PolicyProblem] = []
    for name, file in files.items():
        try:
            models[name] = _parse_model(file)
        except NoPolicyError as error:
            problems += error.problems
    for name in models:
        try:
            analyses[name] = _build_tree(name, files[name], models, inventory)
        except NoPolicyError as error:
            problems += error.problems
    return PolicyTrees(dict(sorted(analyses.items())), problems)


def _build_tree(
    name: str, file: YamlFile, models: Mapping[str, TreeModel], inventory: Inventory
) -> TreeAnalysis:
    try:
        tree = link_tree(name, models)
    except TreeError as error:
        raise NoPolicyError(file.build_problem(str(error), error.where)) from None
    for event in tree.events.values():
        _check_event(file, event, inventory)
    _check_shared_checks(file, tree)
    try:
        return TreeAnalysis(tree)
    except TreeError as error:
        raise NoPolicyError(file.build_problem(str(error), ("top",))) from None


def _name_pairs(inventory: Inventory) -> Iterator[tuple[str, Sequence[str]]]:
    for names in inventory.redundant:
        yield build_pair(names).name, names


def _check_event(file: YamlFile, event: Event, inventory: Inventory) -> None:
    """Raise NoPolicyError if nothing can be known of an event."""
    place = ("events", event.name)

    def refuse(problem: str, *field: str) -> NoReturn:
        raise NoPolicyError(file.build_problem(f"event {event.name}: {problem}", (*place, *field)))

    if event.leg is not None and event.leg.host not in inventory.hosts:
        refuse(f"{event.leg.host} is not in the inventory", "leg")
    if not event.check:
        if event.leg is None and not event.is_undeveloped:
            refuse(
                "has neither leg nor check, so nothing can be known of it: add one of them, or "
                "`undeveloped: true`, which counts as up"
            )
        if event.leg is not None and event.leg.part:
            refuse(
                f"a contact with {event.leg.host} says nothing about its part {event.leg.part}: "
                f"add a check, or use `leg: {event.leg.host}`",
                "leg",
            )
    elif problem := _find_check_problem(event.check, inventory):
        refuse(problem, "check")
    elif problem := _find_condition_problem(event):
        refuse(f"when: {problem}", "when")


def _check_shared_checks(file: YamlFile, tree: FaultTree) -> None:
    """Raise NoPolicyError if one result would be the failure of two events.

    With one leg down the service would count as down, and so would the leg that still stands.
    """
    events_by_source: dict[tuple[str, Leg | None], list[Event]] = {}
    for event in tree.list_events():
        if event.check or event.leg is not None:
            source = (event.check, None if event.check else event.leg)
            events_by_source.setdefault(source, []).append(event)
    for events in events_by_source.values():
        conditions = [parse_condition(one.when) if one.when else None for one in events]
        for n, event in enumerate(events):
            same = [m for m, one in enumerate(conditions) if m != n and one == conditions[n]]
            if same or (conditions[n] is None and len(events) > 1):
                other = events[same[0] if same else not n]
                problem = f"event {event.name}: {_describe_shared_check(event, other)}"
                raise NoPolicyError(file.build_problem(problem, ("events", event.name)))


def _describe_shared_check(event: Event, other: Event) -> str:
    if not event.check:
        return f"{other.name} is the same leg, {event.leg}: use one event in both places"
    lack = f"has the condition of {other.name}, `{event.when}`" if event.when else "has no `when:`"
    return (
        f"{lack}, so one result of `{event.check}` would be the failure of both: write for each "
        "which result means that it is down, such as `when: Link of eth0 != up`"
    )


def _find_check_problem(command: str, inventory: Inventory) -> str:
    """Return what is wrong with the command of a check; "" if nothing is."""
    try:
        kind, words = find_runbook(split_words(command))
        check = parse_request(kind, words)
    except RequestSyntaxError as error:
        return str(error)
    if not isinstance(check, Check):
        return f"{kind.words} is a change: name a check, which only reads"
    if check.target not in inventory.hosts:
        return f"{check.target} is not in the inventory"
    typed = format_request(check)
    return "" if typed == command else f"write the check as `{typed}`"


def _find_condition_problem(event: Event) -> str:
    """Return why no report of its check can meet an event's condition; "" if one can."""
    if not event.when:
        return ""
    kind, _ = find_runbook(split_words(event.check))
    condition = parse_condition(event.when)
    if not issubclass(kind, Check) or (not kind.columns and is_own(kind)):
        return ""
    if not kind.columns:
        return f"{kind.words} reports no table: leave it out"
    return find_problem(condition, kind.columns, kind.rows)


def _parse_model(file: YamlFile) -> TreeModel:
    try:
        return TreeModel.model_validate(file.parse_data())
    except ValidationError as error:
        problems: dict[PolicyProblem, None] = {}
        for found in error.errors():
            where = [part for part in found["loc"] if part != "[key]"]
            cause = found.get("ctx", {}).get("error")
            message = str(cause or _MESSAGES.get(found["type"]) or found["msg"])
            label = ".".join(map(str, where))
            text = f"{label}: {message}" if label else message
            problems[file.build_problem(text, where)] = None
        raise NoPolicyError(*[*problems][:_MAX_PROBLEMS]) from None


def parse_cut_set(trees: Mapping[str, TreeAnalysis], text: str) -> str:
    """Return a cut set as `format_cut_set` writes it. Raises ValueError in words for people."""
    name, colon, listed = text.partition(":")
    analysis = trees.get(name.strip())
    events = {event.strip() for event in listed.split(",") if event.strip()}
    if not colon or analysis is None or not events:
        known = ", ".join(trees) or "none"
        raise ValueError(
            f"write the cut set as the refusal does, such as `shop: lb1, lb2`; trees: {known}"
        )
    if analysis.find_cut_set(events, one_of=events) is None:
        raise ValueError(f"{', '.join(sorted(events))} is not a cut set of {analysis.tree.name}")
    return format_cut_set(analysis.tree.name, events)


def format_cut_set(tree: str, events: Iterable[str]) -> str:
    """Return a cut set as people type it: `shop: lb1, lb2`."""
    return f"{tree}: {', '.join(sorted(events))}"
