"""The OpenAPI document is generated once, without delaying other requests."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.bot.api.conftest import API, HERE, ApiHarness

pytestmark = pytest.mark.anyio


def _block_until(
    describe: Callable[[], dict[str, Any]], may: threading.Event
) -> Callable[[], Any]:
    def described() -> dict[str, Any]:
        assert may.wait(10), "nobody else was answered meanwhile"
        return describe()

    return described


async def _get(browser: httpx2.AsyncClient, answered: list[str], path: str) -> None:
    await browser.get(f"{API}{path}")
    answered.append(path)


async def test_api_answers_while_the_openapi_document_is_generated(
    api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
):
    may, answered = threading.Event(), list[str]()
    monkeypatch.setattr(api_harness.api, "openapi", _block_until(api_harness.api.openapi, may))
    transport = httpx2.ASGITransport(api_harness.app)
    async with httpx2.AsyncClient(transport=transport, base_url=HERE) as browser:
        described = asyncio.create_task(_get(browser, answered, "/openapi.json"))
        await asyncio.sleep(0)  # it comes first
        await _get(browser, answered, "/nope")
        may.set()
        await described
    assert answered == ["/nope", "/openapi.json"]


async def test_openapi_document_is_generated_once(
    api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
):
    drawn: list[str] = []
    describe = api_harness.api.openapi

    def described() -> dict[str, Any]:
        drawn.append("drawn")
        return describe()

    monkeypatch.setattr(api_harness.api, "openapi", described)
    transport = httpx2.ASGITransport(api_harness.app)
    async with httpx2.AsyncClient(transport=transport, base_url=HERE) as browser:
        asked = [browser.get(f"{API}/openapi.json") for _ in range(3)]
        contents = {answer.content for answer in await asyncio.gather(*asked)}
    assert (len(drawn), len(contents)) == (1, 1)
