from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.applications import Starlette

from bot.api.app import build_api
from bot.api.deps import ApiParts
from bot.auth.rate_limit import RateLimit
from bot.db.database import Database
from bot.features import load_metrics, load_routes
from bot.queries.banned_people import PolicyWithoutBanned
from runbooks import load_catalogue
from tests.bot.harness import Harness
from tests.toy import RUNBOOKS

HERE = "http://keyturn.test"
API = "/api/v1"
FAST = RateLimit(burst=1_000_000)
# Requests of every kind are made here by the thousand, and nobody works on what they ask.
SHORT = 0.01


@dataclass
class ApiHarness:
    """The API of a harness, and programs that come to it."""

    harness: Harness
    api: FastAPI
    app: Starlette
    programs: list[TestClient] = field(default_factory=list[TestClient])

    @property
    def database(self) -> Database:
        return self.harness.database

    @property
    def policy(self) -> Path:
        return self.harness.policies.path

    def token(self, person: str, *scopes: str, days: int = 1) -> str:
        return self.harness.service.tokens.create_token(
            person=person, scopes=scopes or ("read",), days=days, source="cli"
        )[1]

    def program(self, person: str = "", *scopes: str) -> TestClient:
        """Start a program that comes with somebody's token, or with none."""
        headers = {"Authorization": f"Bearer {self.token(person, *scopes)}"} if person else {}
        client = TestClient(
            self.app,
            base_url=f"{HERE}{API}",
            headers=headers,
            raise_server_exceptions=False,
            follow_redirects=False,
        )
        self.programs.append(client)
        return client


def create_api_harness(
    harness: Harness,
    *,
    base_url: str = HERE,
    rate_limit: RateLimit = FAST,
    longest_wait: float = SHORT,
) -> ApiHarness:
    admitted = PolicyWithoutBanned(harness.policies, harness.database)
    parts = ApiParts(
        harness.service,
        harness.database,
        admitted,
        base_url,
        rate_limit,
        longest_wait=longest_wait,
        routers=load_routes(),
        metrics=load_metrics(),
    )
    api = build_api(parts)
    app = Starlette()
    app.mount(API, api)
    return ApiHarness(harness, api, app)


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs can ask for the toy runbooks."""
    known = cast("dict[str, Any]", load_catalogue())
    for words, runbook in RUNBOOKS.items():
        monkeypatch.setitem(known, words, runbook)


@pytest.fixture
def api_harness(harness: Harness) -> Generator[ApiHarness]:
    api_harness = create_api_harness(harness)
    yield api_harness
    for program in api_harness.programs:
        program.close()
