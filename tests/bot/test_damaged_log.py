"""Entries of the log that hold what no version of Keyturn writes break no page and no route.

Whoever can sign entries can write them, and so can a version that is newer or has an error.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

import pytest

from bot.audit import change_log, events
from bot.audit.event_type import UnknownEvent
from bot.queries import timeline
from tests.bot.api.conftest import create_api_harness
from tests.bot.api.test_routes import QUERY
from tests.bot.api.test_routes import ROUTES as API_ROUTES
from tests.bot.damaged_log import DAMAGES, add_damaged_entries
from tests.bot.harness import Harness, open_harness
from tests.bot.web.conftest import create_site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import add_sample_runs
from tests.bot.web.test_routes import ROUTES as PAGES

# Which do not end, or are of one person's link.
_LEFT_OUT = ("stream", "{token}")
_HOUR = 3_600_000_000


@contextmanager
def _open_damaged(directory: Path, damage: str) -> Generator[tuple[Harness, int]]:
    with open_harness(directory) as harness:
        run = add_sample_runs(harness.database)["succeeded"]
        with harness.database.transaction() as tx:
            add_damaged_entries(tx, damage, run=run)
        yield harness, run


def _fill(path: str, run: int) -> str:
    return path.format(number=run, step=1, name="lb1", person="olga")


def _list_readable(routes: Iterable[tuple[str, str]]) -> list[str]:
    return [
        path
        for method, path in routes
        if method == "GET" and not any(part in path for part in _LEFT_OUT)
    ]


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_page_and_no_route_fails_by_a_damaged_entry(tmp_path: Path, damage: str):
    with _open_damaged(tmp_path, damage) as (harness, run):
        browser = create_site(harness).browser("olga")
        program = create_api_harness(harness).program("olga", "read")
        around = {"a": str(run), "b": str(run), "within": "1 day"}
        answers = [
            *(browser.get(_fill(path, run), params=around) for path in _list_readable(PAGES)),
            *(
                program.get(_fill(path, run), params=QUERY.get(path, {}))
                for path in _list_readable(API_ROUTES)
            ),
        ]
    failed = {str(one.url): one.status_code for one in answers if one.status_code >= 500}
    assert failed == {}


def test_damaged_entry_is_a_finding_of_the_pages_that_read_it(tmp_path: Path):
    with open_harness(tmp_path) as harness:
        with harness.database.transaction() as tx:
            for kind in (events.DriftFound.kind, events.PolicyChanged.kind):
                change_log.append_entry(tx, UnknownEvent(kind=kind, facts={"x": 1}), host="lb1")
            (found, _) = timeline.build_timeline(tx, tx.now, span=_HOUR).events
            assert (found.rank, found.hosts) == (2, ("lb1",))
            assert found.what == "an entry of the change log that cannot be read"
            shown = timeline.build_timeline(tx, tx.now, span=_HOUR, host_pattern="web*").events
            assert found.entry not in [one.entry for one in shown]
        page = Page(create_site(harness).browser("olga").get("/policy").text).text
    assert "This entry of the change log cannot be read." in page
