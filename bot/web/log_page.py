"""The change log as it stands, entry by entry, and its verification."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from bot.store import changelog, verification
from bot.store.verification import Verdict
from bot.web.pages import page
from bot.web.parts import Here, WebParts
from bot.web.story import facts
from bot.web.visitor import Visiting

router = APIRouter()

_ON_A_PAGE = 50

Before = Annotated[int | None, Query(ge=1, le=9_007_199_254_740_991)]


@router.get("/log")
def log(request: Request, parts: Here, visitor: Visiting, before: Before = None) -> Response:  # noqa: ARG001 - whoever is signed in may read
    return _page(request, parts, before=before)


@router.post("/log/verify")
def verify(request: Request, parts: Here, visitor: Visiting) -> Response:  # noqa: ARG001 - whoever is signed in may verify
    """Recompute the whole chain. A POST, so that nothing but a button does that work."""
    with parts.database.reading() as tx:
        verdict = verification.verify(tx)
    return _page(request, parts, verdict=verdict)


def _page(
    request: Request,
    parts: WebParts,
    *,
    before: int | None = None,
    verdict: Verdict | None = None,
) -> Response:
    with parts.database.reading() as tx:
        found = changelog.newest(tx, before=before, most=_ON_A_PAGE + 1)
        head = changelog.head(tx)
    shown = found[:_ON_A_PAGE]
    return page(
        request,
        "log.html",
        entries=[(entry, facts(entry)) for entry in shown],
        head=head,
        verdict=verdict,
        older=shown[-1].seq if len(found) > len(shown) else None,
        paged=before is not None,
    )
