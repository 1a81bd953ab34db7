"""Pages that a feature adds, and the links by which other pages lead to them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute

from bot.db.database import Transaction
from bot.policy import Policy

# What stands for the parameters of an address.
NUMBER_PATTERN, NAME_PATTERN = r"[1-9][0-9]{0,8}", r"[a-z0-9][a-z0-9._-]{0,62}"
_PARAMETER_PATTERNS = {"number": NUMBER_PATTERN, "name": NAME_PATTERN}


@dataclass(frozen=True)
class PageLink:
    """A link on a page of the core."""

    place: str
    """Where it stands: `menu`, `hosts`, `host`, `policy`, `results`, `run log`, `freeze` or
    `runbooks`."""
    label: str
    find_address: Callable[..., str]
    """Returns its address from the variables of that place, which the template names; "" for no
    link."""
    icon: str = ""


@dataclass(frozen=True)
class HomeTile:
    """Something on Home that a person should look at."""

    count: str
    label: str
    address: str
    due_at: int = 0
    """A time to show instead of a count, in microseconds since 1970; 0 for none."""
    is_problem: bool = True


@dataclass(frozen=True)
class PageSection:
    """A section on a page of the core."""

    place: str
    """Where it stands: `policy`, or `host`, which names a `host`."""
    template: str
    """Draws `section.values`."""
    read: Callable[..., Mapping[str, object]]
    """Returns what its template draws, from the transaction, the policy and the variables of that
    place; nothing for no section."""


RecordClaims = Callable[[Transaction, Policy, str, Mapping[str, Any]], None]
"""Records what a person's verified ID token says: policy, person, claims."""


@dataclass(frozen=True)
class Pages:
    """The pages of a feature."""

    router: APIRouter = field(default_factory=APIRouter)
    section: str = ""
    """The page of the menu to which they belong."""
    links: Sequence[PageLink] = ()
    sections: Sequence[PageSection] = ()
    build_tiles: Callable[[Transaction], Sequence[HomeTile]] | None = None
    """Returns what Home shows, from what its reader may view."""
    record_claims: RecordClaims | None = None
    """Is called in the transaction in which a person signs in with an identity provider."""


@dataclass(frozen=True)
class ShownLink:
    """A link as a template draws it."""

    address: str
    label: str
    icon: str


@dataclass(frozen=True)
class ShownSection:
    """A section as a template draws it."""

    template: str
    values: Mapping[str, object]


def read_sections(
    pages: Sequence[Pages], place: str, tx: Transaction, policy: Policy, **variables: object
) -> Sequence[ShownSection]:
    """Read the sections of all features at a place, in the order of the features."""
    sections = [one for each in pages for one in each.sections if one.place == place]
    shown = [ShownSection(one.template, one.read(tx, policy, **variables)) for one in sections]
    return [section for section in shown if section.values]


def list_links(pages: Sequence[Pages], place: str, **variables: object) -> Sequence[ShownLink]:
    """Return the links of all features at a place, in the order of the features."""
    links = [link for one in pages for link in one.links if link.place == place]
    shown = [ShownLink(link.find_address(**variables), link.label, link.icon) for link in links]
    return [link for link in shown if link.address]


def list_sections(pages: Sequence[Pages]) -> Mapping[str, str]:
    """Return the page of the menu for the first part of the address of features' pages."""
    return {one.router.prefix: one.section for one in pages if one.section}


def build_page_pattern(pages: Sequence[Pages]) -> re.Pattern[str]:
    """Return the pattern of the addresses of features' pages, without their query strings."""
    routes = [route for one in pages for route in one.router.routes]
    addresses = [
        re.sub(r"\\\{(\w+)\\\}", lambda name: _PARAMETER_PATTERNS[name[1]], re.escape(route.path))
        for route in routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    ]
    return re.compile("|".join(addresses) or "(?!)", re.ASCII)
