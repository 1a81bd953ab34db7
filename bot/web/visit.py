"""A request of a signed-in person: what every page and form works with, and how it is answered."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response
from fastapi.responses import RedirectResponse

from bot import observability
from bot.db.database import Transaction
from bot.model.errors import StepUpRequired
from bot.model.run import RequestOrigin, RequestTerms
from bot.model.text import format_sentence
from bot.policy import Policy
from bot.queries.second_factor import get_shown_factor
from bot.service import KeyturnService
from bot.web.auth import CurrentUser
from bot.web.deps import WebDeps
from bot.web.templating import render_page
from connectors.errors import DomainError

_MAX_FIELDS = 20
# Of a field for hosts.
MAX_HOSTS_LENGTH = 300


async def _read_form(request: Request) -> Mapping[str, str]:
    """Return the values of the form. Requests with files or too many fields are refused."""
    async with request.form(max_files=0, max_fields=_MAX_FIELDS) as form:
        values = {name: value for name, value in form.items() if isinstance(value, str)}
    if len(values) > _MAX_FIELDS:
        raise HTTPException(400)
    return values


FormValues = Annotated[Mapping[str, str], Depends(_read_form)]


# The number of a record; PostgreSQL stores no larger one.
IdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]
PageQuery = Annotated[int, Query(ge=1, le=100_000)]


@dataclass(frozen=True)
class VisitOfPage:
    """A request of a signed-in person."""

    request: Request
    deps: WebDeps
    user: CurrentUser
    form: FormValues
    """The values of the posted form; empty for a GET."""

    @property
    def service(self) -> KeyturnService:
        return self.deps.service

    @property
    def policy(self) -> Policy:
        return self.user.policy

    @property
    def person(self) -> str:
        """Id of the person."""
        return self.user.id

    @property
    def session(self) -> str:
        return self.user.session_token

    @property
    def origin(self) -> RequestOrigin:
        return RequestOrigin("web", user=self.user.id)

    @property
    def reason(self) -> str:
        """The reason in the form."""
        return self.form.get("reason", "")

    @property
    def ticket(self) -> str:
        """The change ticket in the form."""
        return self.form.get("ticket", "")

    @property
    def plan_terms(self) -> RequestTerms:
        """The terms of a form whose plan is shown before anything is requested."""
        return RequestTerms(
            self.person, self.origin, self.reason, ticket=self.ticket, plan_only=True
        )

    @property
    def done(self) -> str:
        """What was just done, as the address names it."""
        return self.request.query_params.get("done", "")

    def is_stepped_up(self, tx: Transaction) -> bool:
        """Return whether the person has just confirmed a second factor in this session."""
        return bool(get_shown_factor(tx, self.policy, person=self.person, session=self.session))

    def read_viewable(self) -> AbstractContextManager[Transaction]:
        """Open a transaction that reads what the person may view."""
        return self.deps.database.reading(self.user.view_rights)

    def render(
        self,
        template: str,
        *,
        status: int = 200,
        refusal: DomainError | None = None,
        **variables: object,
    ) -> Response:
        """Render a page, with the status and the message of *refusal* if there is one."""
        alert = ""
        if refusal is not None:
            status = refusal.status
            alert = format_sentence(observability.explain_error(refusal, template))
        return render_page(self.request, template, status=status, **{"alert": alert, **variables})


Visit = Annotated[VisitOfPage, Depends()]


def add_action(
    router: APIRouter, path: str, *, page: str, render: Callable[..., Response]
) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Return a decorator that registers the action of a form of a page.

    The action returns the address to redirect to. If it is refused, its page is rendered again.

    Args:
        router: The routes of the page.
        path: Where the form is posted to, after the prefix of the router.
        page: Where a person returns who has to confirm a second factor first, such as
            `/runs/{number}`.
        render: Renders the page from the visit, its path parameters and `refusal`.
    """

    def register(action: Callable[..., str]) -> Callable[..., str]:
        @wraps(action)
        def respond(visit: VisitOfPage, **place: Any) -> Response:
            try:
                return RedirectResponse(action(visit, **place), 303)
            except StepUpRequired:
                return RedirectResponse(f"/step-up?next={page.format(**place)}", 303)
            except DomainError as error:
                return render(visit, **place, refusal=error)

        router.post(path, response_model=None)(respond)
        return action

    return register
