"""Pages show people by name and areas by title, never by id."""

import re
from html.parser import HTMLParser

import pytest

from bot.db import runs
from bot.model.grant_words import NewGrant
from bot.model.run import RequestTerms
from bot.model.schedule import ScheduleTiming, parse_cron
from tests.bot.harness import WEB
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import VOID
from tests.bot.web.sample_runs import add_sample_runs
from tests.bot.web.test_routes import NAMES, ROUTES
from tests.toy import SetSwitch, ShowSwitches

_IDS = re.compile(r"\b(dora|olga|adam|stan|edge)\b")
# What is copied or typed elsewhere: commands, plans, and files.
_NOT_PROSE = {"code", "pre", "script", "textarea"}
# The facts of an entry of the change log are shown as they were sealed.
_SEALED = "kt-details"


class _Prose(HTMLParser):
    """lines: what a page says to whoever reads or hears it, but for what is no prose."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self._open: list[bool] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if not any(self._open):
            self.lines += [
                attributes[name] for name in ("aria-label", "placeholder") if name in attributes
            ]
        if tag not in VOID:
            self._open.append(tag in _NOT_PROSE or _SEALED in attributes.get("class", ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if not any(self._open):
            self.lines.append(data)


def bare_ids(source: str) -> list[str]:
    """Return the lines of a page that tell of somebody or an area by their id.

    `Dora Developer (dora)` tells two people of one name apart.
    """
    lines = (re.sub(r"\((dora|olga|adam|stan)\)", "", line) for line in _Prose(source).lines)
    return [line.strip() for line in lines if _IDS.search(line)]


@pytest.fixture
def site_with_everything(site: Site) -> Site:
    """A harness with runs in every state, a ban, a schedule, a delegation and a grant."""
    areas = site.policy / "areas.yaml"
    areas.write_text(areas.read_text().replace("title: the edge", "title: the front doors"))
    service = site.harness.service
    add_sample_runs(site.database)
    timing = ScheduleTiming("nightly look", parse_cron("0 3 * * *", "UTC"))
    service.request_on_hosts(
        [ShowSwitches(host="lb1")], RequestTerms("dora", WEB, timing=timing), host_pattern=""
    )
    site.harness.run_queued_work()
    with site.database.reading() as tx:
        wanted = NewGrant("dora", "toy set", "lb*", 5, tx.now + 3_600_000_000, {})
    service.grants.create_grant(wanted, granted_by="olga", reason="a busy day", source="web")
    service.delegations.create_delegation(
        delegator="olga",
        delegate="adam",
        ends_at=wanted.ends_at,
        area="edge",
        reason="at sea",
        source="web",
    )
    lamp = SetSwitch(host="lb1", name="lamp", value="on")
    site.harness.request(lamp)
    service.ban_person("stan", banned_by="adam", reason="a stolen laptop")
    return site


def test_pages_show_names_of_people_and_areas_never_ids(site_with_everything: Site):
    with site_with_everything.database.reading() as tx:
        numbers = [run.id for run in runs.list_runs(tx, range(1, 50))]
    assert len(numbers) > 12
    wrong: dict[str, list[str]] = {}
    browser = site_with_everything.browser("olga")
    for method, path in ROUTES:
        if method != "GET" or path.endswith((".csv", ".json", ".txt")):
            continue
        for number in numbers if path.startswith("/runs/{") else (1,):
            address = path.format(number=number, **NAMES)
            ids = bare_ids(browser.get(address).text)
            if ids:
                wrong[address] = ids
    assert wrong == {}
