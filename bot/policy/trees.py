"""The fault trees of a policy: the files trees/NAME.yaml, and `redundant:` of the inventory."""

from collections.abc import Iterator, Mapping, Sequence

from pydantic import ValidationError

from bot.model.request_form import (
    RequestSyntaxError,
    find_runbook,
    format_request,
    parse_request,
    split_words,
)
from bot.policy.problem import NoPolicyError, PolicyProblem
from bot.policy.yaml_file import YamlFile
from bot.redundancy.analysis import TreeAnalysis
from bot.redundancy.fault_tree import FaultTree, TreeError, build_pair
from bot.redundancy.tree_file import TreeModel, link_tree
from connectors.inventory import Inventory
from runbooks import Check

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


def build_trees(files: Mapping[str, YamlFile], inventory: Inventory) -> dict[str, TreeAnalysis]:
    """Return the analysis of each tree of a policy, by name. Raises NoPolicyError.

    Those are the trees of files, and one for each group of hosts that the inventory calls
    redundant.
    """
    trees = parse_trees(files)
    analyses = {name: TreeAnalysis(build_pair(names)) for name, names in _name_pairs(inventory)}
    for name, tree in trees.items():
        _check_events(files[name], tree, inventory)
        try:
            analyses[name] = TreeAnalysis(tree)
        except TreeError as error:
            raise NoPolicyError(files[name].build_problem(str(error), ("top",))) from None
    return dict(sorted(analyses.items()))


def _name_pairs(inventory: Inventory) -> Iterator[tuple[str, Sequence[str]]]:
    for names in inventory.redundant:
        yield build_pair(names).name, names


def _check_events(file: YamlFile, tree: FaultTree, inventory: Inventory) -> None:
    """Raise NoPolicyError if an event names a host or a check that does not exist."""
    for event in tree.events.values():
        place = ("events", event.name)
        if event.leg is not None and event.leg.host not in inventory.hosts:
            problem = f"event {event.name}: {event.leg.host} is not in the inventory"
            raise NoPolicyError(file.build_problem(problem, (*place, "leg")))
        problem = _find_check_problem(event.check, inventory) if event.check else ""
        if problem:
            raise NoPolicyError(
                file.build_problem(f"event {event.name}: {problem}", (*place, "check"))
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
