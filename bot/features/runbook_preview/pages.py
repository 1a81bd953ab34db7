"""A page on which an administrator writes a declared runbook and sees what it becomes."""

from fastapi import APIRouter, Response

from bot.features.runbook_preview.preview import Preview, build_preview
from bot.model.errors import NotAllowed
from bot.web.auth import User
from bot.web.pages import PageLink, Pages
from bot.web.visit import Visit, VisitOfPage

router = APIRouter(prefix="/draft")


def _may_enable(user: User) -> bool:
    """Return whether a person may enable own runbooks: those who may resume what was stopped."""
    return user.policy.get_order_ruling(user.id, "resume").allowed


def _find_address(user: User) -> str:
    return "/draft" if _may_enable(user) else ""


PAGES = Pages(
    router,
    section="/runbooks",
    links=[PageLink("runbooks", "Write a runbook", _find_address, "list")],
)


@router.get("")
def show_draft(visit: Visit) -> Response:
    """Show an empty page to write."""
    _refuse_others(visit)
    return _render(visit, Preview())


@router.post("")
def preview_draft(visit: Visit) -> Response:
    """Show what the typed page becomes. Nothing of it is stored, and no host is reached."""
    _refuse_others(visit)
    preview = build_preview(visit.form.get("page", ""), visit.form.get("recording", ""))
    return _render(visit, preview)


def _refuse_others(visit: VisitOfPage) -> None:
    if not _may_enable(visit.user):
        raise NotAllowed(
            "a preview is for those who may enable runbooks: people who may resume what was "
            "stopped. `keyturn runbook lint` works for everyone"
        )


def _render(visit: VisitOfPage, preview: Preview) -> Response:
    return visit.render(
        "runbook_preview/draft.html",
        preview=preview,
        page=visit.form.get("page", ""),
        recording=visit.form.get("recording", ""),
    )
