"""Redundancy pages: the fault trees of services, drawn with what is down now."""

from itertools import islice
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Response
from markupsafe import Markup

from bot.features.redundancy.drawing import draw_tree
from bot.features.redundancy.status import read_overview
from bot.web.pages import PageLink, Pages
from bot.web.visit import Visit

router = APIRouter(prefix="/redundancy")

PAGES = Pages(
    router,
    section="/hosts",
    links=[PageLink("hosts", "Redundancy", lambda: "/redundancy", "shield")],
)

_MAX_CUT_SETS = 50
TreeName = Annotated[str, Path(max_length=200)]


@router.get("")
def list_trees(visit: Visit) -> Response:
    """Show each service with its margin now."""
    with visit.read_viewable() as tx:
        overviews = [read_overview(tx, visit.policy, one) for one in visit.policy.trees.values()]
    return visit.render(
        "redundancy/redundancy.html", overviews=overviews, problems=visit.policy.tree_problems
    )


@router.get("/{name}")
def show_tree(visit: Visit, name: TreeName) -> Response:
    """Show one tree: the picture, its events as they are now, and its cut sets."""
    analysis = visit.policy.trees.get(name)
    if analysis is None:
        raise HTTPException(404, "There is no fault tree with this name in the policy.")
    with visit.read_viewable() as tx:
        overview = read_overview(tx, visit.policy, analysis)
        now = tx.now
    counts = analysis.cut_sets.count_by_order()
    return visit.render(
        "redundancy/tree.html",
        overview=overview,
        analysis=analysis,
        tree=analysis.tree,
        # The drawing is serialised by an XML library, which escapes every text in it.
        picture=Markup(draw_tree(analysis.tree, overview.labels)),  # noqa: S704
        cut_sets=list(islice(analysis.iterate_cut_sets(), _MAX_CUT_SETS)),
        count=sum(counts.values()),
        now=now,
    )
