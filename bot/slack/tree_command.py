"""`/keyturn tree`: the fault tree of a service as an outline, with what is down now. Pure."""

from collections.abc import Sequence

from bot.model.text import format_count
from bot.queries.redundancy import TreeOverview
from bot.redundancy.outline import outline_tree
from bot.slack.blocks import (
    Message,
    bold,
    bullet_list,
    format_notification,
    preformatted,
    rich_text,
    rich_text_section,
    text_element,
)

# Slack shows a block of so many characters at most.
_MAX_OUTLINE = 2800


def render_trees(overviews: Sequence[TreeOverview]) -> Message:
    """List the services with their margins."""
    if not overviews:
        text = "The policy has no fault trees yet."
        return Message(text, [rich_text(rich_text_section(text_element(text)))])
    items = [
        [bold(one.analysis.tree.name), text_element(f" – {one.margin_sentence}")]
        for one in overviews
    ]
    return Message(format_count(len(overviews), "service"), [rich_text(bullet_list(*items))])


def render_tree(overview: TreeOverview) -> Message:
    """Show one tree: its margin, its outline with states, and its single points of failure."""
    tree = overview.analysis.tree
    lines = [str(line) for line in outline_tree(tree, overview.status.words)]
    outline = "\n".join(lines)
    if len(outline) > _MAX_OUTLINE:
        outline = outline[:_MAX_OUTLINE].rpartition("\n")[0] + "\n…"
    singles = ", ".join(overview.analysis.single_points) or "none"
    head = rich_text_section(
        bold(tree.title or tree.name), text_element(f": {overview.margin_sentence}")
    )
    foot = rich_text_section(text_element(f"Single points of failure: {singles}"))
    return Message(
        format_notification(f"{tree.name}: {overview.margin_sentence}"),
        [rich_text(head, preformatted(outline), foot)],
    )
