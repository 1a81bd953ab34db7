"""`/keyturn tree`: services with their margins, and one tree with what is down now."""

from collections.abc import Mapping, Sequence
from functools import partial

from bot.db.database import Database
from bot.features.redundancy.drawing import outline_tree
from bot.features.redundancy.status import TreeOverview, read_overview
from bot.model.errors import InvalidRequestError
from bot.model.text import format_count
from bot.policy import PolicyProblem
from bot.service import KeyturnService
from bot.slack.blocks import (
    Message,
    bold,
    bullet_list,
    format_notification,
    paragraph,
    preformatted,
    rich_text,
    rich_text_section,
)
from bot.slack.features import AnswerCommand, ChatWords
from bot.slack.parsing import TypedCommand
from connectors.visible_text import quote_text

# Slack shows a block of so many characters at most.
_MAX_OUTLINE = 2800


def _build_handlers(_: KeyturnService, database: Database) -> Mapping[str, AnswerCommand]:
    return {"tree": partial(_show_tree, database)}


WORDS = ChatWords(
    [("tree NAME", "what must fail together before a service is down, and what is down now")],
    _build_handlers,
)


def _show_tree(database: Database, command: TypedCommand) -> Message:
    name, trees = command.rest.strip(), command.policy.trees
    if name and name not in trees:
        known = ", ".join(trees) or "none"
        raise InvalidRequestError(f"the policy has no tree {quote_text(name)}; it has: {known}")
    wanted = [trees[name]] if name else [*trees.values()]
    with database.reading(command.view_rights) as tx:
        overviews = [read_overview(tx, command.policy, one) for one in wanted]
    if name:
        return _render_tree(overviews[0])
    return _render_trees(overviews, command.policy.tree_problems)


def _render_trees(overviews: Sequence[TreeOverview], problems: Sequence[PolicyProblem]) -> Message:
    """List the services with their margins, and the files that are not valid."""
    if not overviews and not problems:
        text = "The policy has no fault trees yet."
        return Message(text, [paragraph(text)])
    items = [[bold(one.analysis.tree.name), f" – {one.margin_sentence}"] for one in overviews]
    items += [[bold("Not valid"), f" – {problem}"] for problem in problems]
    return Message(format_count(len(overviews), "service"), [rich_text(bullet_list(*items))])


def _render_tree(overview: TreeOverview) -> Message:
    """Show one tree: its margin, its outline with states, and its single points of failure."""
    tree = overview.analysis.tree
    lines = [str(line) for line in outline_tree(tree, overview.status.words)]
    outline = "\n".join(lines)
    if len(outline) > _MAX_OUTLINE:
        outline = outline[:_MAX_OUTLINE].rpartition("\n")[0] + "\n…"
    singles = ", ".join(overview.analysis.single_points) or "none"
    head = rich_text_section(bold(tree.title or tree.name), f": {overview.margin_sentence}")
    foot = rich_text_section(f"Single points of failure: {singles}")
    return Message(
        format_notification(f"{tree.name}: {overview.margin_sentence}"),
        [rich_text(head, preformatted(outline), foot)],
    )
