import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from bot.auth import sessions
from bot.db.database import Database
from bot.features import load_pages
from bot.web import WebDependencies, build_app
from bot.web.stream_slots import StreamLimits, StreamSlots
from tests.bot.harness import Harness, open_harness
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import add_sample_runs

ORIGIN = "http://keyturn.test"


@dataclass
class Site:
    """The pages of a harness, and browsers that look at them."""

    harness: Harness
    parts: WebDependencies
    app: FastAPI
    browsers: list[TestClient] = field(default_factory=list[TestClient])

    @property
    def database(self) -> Database:
        return self.harness.database

    def browser(self, person: str = "") -> TestClient:
        """Open a browser, of somebody signed in or of a stranger."""
        client = TestClient(
            self.app,
            base_url=ORIGIN,
            raise_server_exceptions=False,
            follow_redirects=False,
            headers={"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"},
        )
        if person:
            with self.database.transaction() as tx:
                token = sessions.begin_session(tx, person)
            self.carry(client, token)
        self.browsers.append(client)
        return client

    @staticmethod
    def send(browser: TestClient, address: str, **form: str) -> Page:
        """Send a form, and return the page that it leads to."""
        answer = browser.post(address, data=form)
        assert answer.status_code == 303
        return Page(browser.get(answer.headers["location"]).text)

    def carry(self, browser: TestClient, token: str) -> None:
        """Put a session's cookie into a browser, as our answer would have."""
        browser.cookies.set(self.parts.cookie_name, token, domain="keyturn.test", path="/")

    def link(self, person: str, *, seconds: int = 600) -> str:
        with self.database.transaction() as tx:
            return f"/sign-in/{sessions.create_sign_in_link(tx, person, seconds=seconds)}"

    def dismiss(self, person: str) -> None:
        """Take somebody out of the policy."""
        path = self.harness.policies.path
        areas = path / "areas.yaml"
        areas.write_text(re.sub(rf"{person}, |, {person}", "", areas.read_text()))
        people = path / "people.yaml"
        lines = people.read_text().splitlines(keepends=True)
        people.write_text("".join(line for line in lines if f" {person}:" not in line))

    @property
    def policy(self) -> Path:
        return self.harness.policies.path


def create_site(harness: Harness, base_url: str = ORIGIN) -> Site:
    secure = base_url.startswith("https:")
    # Nobody reads a stream here while it goes on: it has an end of its own.
    seats = StreamSlots(StreamLimits(poll_seconds=0.01, max_seconds=0.02))
    parts = WebDependencies(
        harness.service,
        harness.database,
        harness.policies,
        base_url,
        secure,
        stream_slots=seats,
        pages=load_pages(),
    )
    return Site(harness, parts, build_app(parts))


@pytest.fixture
def site(harness: Harness) -> Generator[Site]:
    site = create_site(harness)
    yield site
    for browser in site.browsers:
        browser.close()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Site, Mapping[str, int]]]:
    """Pages with a run of each kind, and their numbers, for tests of a module that only read."""
    with open_harness(tmp_path_factory.mktemp("harness")) as harness:
        site = create_site(harness)
        yield site, add_sample_runs(site.database)
        for browser in site.browsers:
            browser.close()
