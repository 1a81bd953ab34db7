"""`keyturn tree …`: check, draw and analyse the fault trees of services."""

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bot.cli.context import (
    FAILED,
    NOT_FOUND,
    NOT_UNDERSTOOD,
    CommandEnvironment,
    exit_on_errors,
    exit_with_error,
    open_service,
    pass_environment_only,
    wants_json,
)
from bot.cli.options import acting_person_option, pass_environment, reason_option
from bot.cli.sections import CommandGroup
from bot.cli.terminal import print_json, print_result, write_output

if TYPE_CHECKING:
    from bot.redundancy.analysis import TreeAnalysis
    from bot.redundancy.fault_tree import FaultTree

Command = TypeVar("Command", bound=Callable[..., None])
_PATH_TYPE = click.Path(path_type=Path)
_FILE_TYPE = click.Path(path_type=Path, exists=True, dir_okay=False)


def _take_tree(command: Command) -> Command:
    """Add NAME and --file to a command."""
    file_help = "A tree in YAML or Open-PSA XML, instead of one of the policy."
    option = click.option("--file", "file", type=_FILE_TYPE, help=file_help)
    return click.argument("name", required=False, default="")(option(command))


@click.group("tree", cls=CommandGroup)
def tree_commands() -> None:
    """Show what must fail together before a service is down.

    Fault trees are the files trees/NAME.yaml of the policy directory; `redundant: [lb1, lb2]` in
    the inventory is a tree too.
    """


@tree_commands.command("check")
@_take_tree
@pass_environment_only
def check_trees(environment: CommandEnvironment, *, name: str, file: Path | None) -> None:
    """Check one tree, or all trees of the policy.

    For example: keyturn tree check shop
    """
    from bot.model.text import format_count
    from bot.redundancy.analysis import TreeAnalysis

    for tree in _load_trees(environment, name, file).values():
        with exit_on_errors():
            analysis = TreeAnalysis(tree)
        counts = analysis.cut_sets.count_by_order()
        singles = analysis.single_points
        click.echo(
            f"{tree.name}: valid, {format_count(len(tree.gates), 'gate')}, "
            f"{format_count(len(analysis.events), 'event')}, "
            f"{format_count(sum(counts.values()), 'minimal cut set')}, "
            f"{format_count(len(singles), 'single point')} of failure"
            + (f" ({', '.join(singles)})" if singles else "")
        )


@tree_commands.command("draw")
@_take_tree
@click.option("--svg", type=_PATH_TYPE, help="Write a picture to this file; - is standard output.")
@pass_environment_only
def draw_tree(
    environment: CommandEnvironment, *, name: str, file: Path | None, svg: Path | None
) -> None:
    """Draw a tree as an outline, or as a picture.

    For example: keyturn tree draw shop --svg shop.svg
    """
    from bot.model.text import escape_to_one_line
    from bot.redundancy import drawing
    from bot.redundancy.outline import outline_tree

    tree = _load_tree(environment, name, file)
    if svg is None:
        for line in outline_tree(tree):
            click.echo(escape_to_one_line(str(line)))
        return
    write_output(svg, drawing.draw_tree_file(tree))


@tree_commands.command("analyse")
@_take_tree
@pass_environment
def analyse_tree(environment: CommandEnvironment, *, name: str, file: Path | None) -> None:
    """Show single points of failure, cut sets, probability and importance of a tree.

    For example: keyturn tree analyse shop --json
    """
    analysis = _analyse(environment, name, file)
    if wants_json():
        print_json(_analysis_to_data(analysis), indent=2)
        return
    counts = analysis.cut_sets.count_by_order()
    click.echo(f"{analysis.tree.name}: {analysis.tree.get_title(analysis.tree.top)}")
    click.echo(f"single points of failure: {', '.join(analysis.single_points) or 'none'}")
    sizes = ", ".join(f"{count} of size {size}" for size, count in counts.items())
    click.echo(f"minimal cut sets:         {sum(counts.values())}{f' ({sizes})' if sizes else ''}")
    if analysis.missing_probabilities:
        listed = ", ".join(analysis.missing_probabilities)
        click.echo(f"probability:              unknown: give p of {listed}")
        return
    click.echo(f"probability:              {analysis.probability:.6g}")
    if analysis.outages_per_year is not None:
        click.echo(f"outages a year:           {analysis.outages_per_year:.3g}")
    _print_importance(analysis)


@tree_commands.command("cuts")
@_take_tree
@click.option("--order", type=click.IntRange(1), help="Only sets of at most this many events.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@pass_environment
def list_cut_sets(
    environment: CommandEnvironment, *, name: str, file: Path | None, order: int | None, limit: int
) -> None:
    """List the minimal cut sets of a tree: what must fail together, the smallest sets first.

    For example: keyturn tree cuts shop --order 2
    """
    from itertools import islice

    analysis = _analyse(environment, name, file)
    cut_sets = [*islice(analysis.iterate_cut_sets(order), limit)]
    if wants_json():
        print_json(cut_sets, indent=2)
        return
    for names in cut_sets:
        click.echo(", ".join(names))
    counts = analysis.cut_sets.count_by_order()
    rest = sum(n for size, n in counts.items() if order is None or size <= order) - len(cut_sets)
    if rest:
        click.echo(f"and {rest:,} more: use --limit or --order", err=True)


@tree_commands.command("import")
@click.argument("file", type=_FILE_TYPE)
@click.option("--top", default="", help="The gate to begin at, where the file has several.")
def import_tree(*, file: Path, top: str) -> None:
    """Print an Open-PSA file as YAML for the policy directory.

    For example: keyturn tree import plant.xml > policy/trees/plant.yaml
    """
    from ruamel.yaml import YAML

    from bot.redundancy.fault_tree import TreeError
    from bot.redundancy.open_psa import parse_open_psa
    from bot.redundancy.tree_file import format_tree

    try:
        tree = parse_open_psa(_read(file), top=top)
    except TreeError as error:
        exit_with_error(f"{file}: {error}", FAILED)
    yaml = YAML()
    yaml.default_flow_style = None
    yaml.width = 110
    yaml.dump(format_tree(tree), sys.stdout)


@tree_commands.command("export")
@_take_tree
@pass_environment_only
def export_tree(environment: CommandEnvironment, *, name: str, file: Path | None) -> None:
    """Print a tree as Open-PSA XML, which other tools read.

    For example: keyturn tree export shop > shop.xml
    """
    from bot.redundancy.open_psa import format_open_psa

    click.echo(format_open_psa(_load_tree(environment, name, file)), nl=False)


@tree_commands.command("claims")
@pass_environment
def list_claims(environment: CommandEnvironment) -> None:
    """List the events that runs may bring about, with the run and since when.

    For example: keyturn tree claims
    """
    from bot.db import redundancy
    from bot.model.times import format_timestamp

    with environment.open_database() as database, database.reading() as tx:
        claims = redundancy.list_claims(tx)
    lines = [
        f"{one.tree}: {one.event}  run {one.run}, since {format_timestamp(one.claimed_at)}"
        for one in claims
    ]
    print_result({"claims": [vars(one) for one in claims]}, lines, empty_message="No claims.")


@tree_commands.command("release")
@click.argument("name")
@click.argument("event")
@acting_person_option
@reason_option(required=True)
@pass_environment
def release_leg(
    environment: CommandEnvironment, *, name: str, event: str, person: str, reason: str
) -> None:
    """Give the claims on an event back by hand, such as after its check was removed.

    For example: keyturn tree release shop lb1 --as adam --reason "replaced by lb3"
    """
    from bot.model.text import format_count

    with open_service(environment) as service:
        count = service.release_leg(name, event, person=person, reason=reason)
    if not count:
        exit_with_error(f"no run claims {event} of {name}: see keyturn tree claims", NOT_FOUND)
    print_result({"released": count}, [f"Released {format_count(count, 'claim')} on {event}."])


def _analyse(environment: CommandEnvironment, name: str, file: Path | None) -> "TreeAnalysis":
    from bot.redundancy.analysis import TreeAnalysis

    tree = _load_tree(environment, name, file)
    with exit_on_errors():
        return TreeAnalysis(tree)


def _load_tree(environment: CommandEnvironment, name: str, file: Path | None) -> "FaultTree":
    """Return the tree that is meant; without NAME the only one there is."""
    trees = _load_trees(environment, name, file)
    if len(trees) > 1:
        exit_with_error(f"name one of the trees: {', '.join(trees)}", NOT_UNDERSTOOD)
    return next(iter(trees.values()))


def _load_trees(
    environment: CommandEnvironment, name: str, file: Path | None
) -> "Mapping[str, FaultTree]":
    from bot.policy.loader import load_policy

    if file is not None:
        if name:
            exit_with_error("give NAME or --file, not both", NOT_UNDERSTOOD)
        tree = _load_file(file)
        return {tree.name: tree}
    with exit_on_errors():
        policy = load_policy(environment.settings.policy)
    trees = {name: analysis.tree for name, analysis in policy.trees.items()}
    if policy.tree_problems and name not in trees:
        exit_with_error("; ".join(map(str, policy.tree_problems)), FAILED)
    if not trees:
        exit_with_error("the policy has no fault trees: add trees/NAME.yaml", NOT_FOUND)
    if not name:
        return trees
    if name not in trees:
        exit_with_error(f"the policy has no tree {name}; it has: {', '.join(trees)}", NOT_FOUND)
    return {name: trees[name]}


def _load_file(file: Path) -> "FaultTree":
    """Read a tree, with the trees beside it that it names."""
    from bot.policy.trees import parse_trees
    from bot.policy.yaml_file import YamlFile
    from bot.redundancy.fault_tree import TreeError
    from bot.redundancy.open_psa import parse_open_psa

    text = _read(file)
    if text.lstrip().startswith("<"):
        try:
            return parse_open_psa(text)
        except TreeError as error:
            exit_with_error(f"{file}: {error}", FAILED)
    beside = [one for one in sorted(file.parent.glob("*.yaml")) if one != file]
    with exit_on_errors():
        mine = {file.stem: YamlFile(file.name, text)}
        others = {one.stem: YamlFile(one.name, _read(one)) for one in beside}
        return parse_trees(mine, others)[file.stem]


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        exit_with_error(f"{file} is not UTF-8", FAILED)
    except OSError as error:
        exit_with_error(f"{file}: {error.strerror}", FAILED)


def _analysis_to_data(analysis: "TreeAnalysis") -> dict[str, Any]:
    counts = analysis.cut_sets.count_by_order()
    importance = [
        {
            name: value if name == "event" or math.isfinite(value) else None
            for name, value in vars(one).items()
        }
        for one in analysis.list_importance()
    ]
    return {
        "tree": analysis.tree.name,
        "probability": analysis.probability,
        "rare_event_sum": analysis.rare_event_sum,
        "outages_per_year": analysis.outages_per_year,
        "minimal_cut_sets": sum(counts.values()),
        "by_order": {str(size): count for size, count in counts.items()},
        "single_points": list(analysis.single_points),
        "missing_probabilities": list(analysis.missing_probabilities),
        "importance": importance,
    }


def _print_importance(analysis: "TreeAnalysis") -> None:
    columns = ("Birnbaum", "criticality", "diagnosis", "RAW", "RRW")
    width = max(len(event.name) for event in analysis.events)
    click.echo(f"\n{'event':{width}}  " + "  ".join(f"{name:>11}" for name in columns))
    for one in analysis.list_importance():
        values = (
            one.birnbaum,
            one.criticality,
            one.diagnosis,
            one.achievement_worth,
            one.reduction_worth,
        )
        click.echo(f"{one.event:{width}}  " + "  ".join(f"{value:>11.4g}" for value in values))
