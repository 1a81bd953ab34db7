"""`keyturn tree …`: check, draw and analyse the fault trees of services."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bot.cli.context import (
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
    from bot.policy.fault_tree import FaultTree
    from bot.policy.tree_analysis import TreeAnalysis

Command = TypeVar("Command", bound=Callable[..., None])
_PICTURE_TYPE = click.Path(path_type=Path, dir_okay=False, writable=True)
_FILE_TYPE = click.Path(path_type=Path, exists=True, dir_okay=False)


def _take_tree(command: Command) -> Command:
    """Add NAME and --file to a command."""
    file_help = "A file with a tree, instead of one of the policy."
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
    from bot.policy.tree_analysis import TreeAnalysis

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
@click.option(
    "--svg", type=_PICTURE_TYPE, help="Write a picture to this file; - is standard output."
)
@pass_environment_only
def draw_tree(
    environment: CommandEnvironment, *, name: str, file: Path | None, svg: Path | None
) -> None:
    """Draw a tree as an outline, or as a picture.

    For example: keyturn tree draw shop --svg shop.svg
    """
    from bot.features.redundancy import drawing
    from bot.features.redundancy.drawing import outline_tree
    from bot.model.text import escape_to_one_line

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
    """Show the single points of failure of a tree, and count its minimal cut sets.

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


@tree_commands.command("claims")
@pass_environment
def list_claims(environment: CommandEnvironment) -> None:
    """List the events that runs may bring about, with the run and since when.

    For example: keyturn tree claims
    """
    from bot.features.redundancy import rows
    from bot.model.times import format_timestamp

    with environment.open_database() as database, database.reading() as tx:
        claims = rows.list_claims(tx)
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
    from bot.features.redundancy.claims import LegActions
    from bot.model.text import format_count

    with open_service(environment, person) as service:
        count = service.bind(LegActions).release_leg(name, event, person=person, reason=reason)
    if not count:
        exit_with_error(f"no run claims {event} of {name}: see keyturn tree claims", NOT_FOUND)
    print_result({"released": count}, [f"Released {format_count(count, 'claim')} on {event}."])


def _analyse(environment: CommandEnvironment, name: str, file: Path | None) -> "TreeAnalysis":
    from bot.policy.tree_analysis import TreeAnalysis

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
        exit_with_error("; ".join(map(str, policy.tree_problems)), NOT_UNDERSTOOD)
    if not trees:
        exit_with_error("the policy has no fault trees: add trees/NAME.yaml", NOT_FOUND)
    if not name:
        return trees
    if name not in trees:
        exit_with_error(f"the policy has no tree {name}; it has: {', '.join(trees)}", NOT_FOUND)
    return {name: trees[name]}


def _load_file(file: Path) -> "FaultTree":
    """Read a tree, with the trees beside it that it names."""
    from bot.policy import NoPolicyError
    from bot.policy.trees import parse_trees
    from bot.policy.yaml_file import YamlFile

    beside = [one for one in sorted(file.parent.glob("*.yaml")) if one != file]
    try:
        mine = {file.stem: YamlFile(file.name, _read(file))}
        others = {one.stem: YamlFile(one.name, _read(one)) for one in beside}
        return parse_trees(mine, others)[file.stem]
    except NoPolicyError as error:
        exit_with_error(str(error), NOT_UNDERSTOOD)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        exit_with_error(f"{file} is not UTF-8 text: save it as UTF-8", NOT_UNDERSTOOD)
    except OSError as error:
        exit_with_error(f"{file}: {error.strerror}", NOT_UNDERSTOOD)


def _analysis_to_data(analysis: "TreeAnalysis") -> dict[str, Any]:
    counts = analysis.cut_sets.count_by_order()
    return {
        "tree": analysis.tree.name,
        "minimal_cut_sets": sum(counts.values()),
        "by_order": {str(size): count for size, count in counts.items()},
        "single_points": list(analysis.single_points),
    }
