"""Pages that are asked for most go to a thread and back, and nowhere else."""

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import anyio.to_thread
import pytest

from bot.web.threads import apart
from tests.bot.web.conftest import Site

_WHOSE = ContextVar("whose", default="nobody's")


def _where_and_whose(word: str) -> tuple[str, str, str]:
    return threading.current_thread().name, _WHOSE.get(), word


def test_what_is_drawn_apart_belongs_to_its_request():
    async def asked() -> tuple[str, str, str]:
        _WHOSE.set("dora's")
        return await apart(_where_and_whose)("page")

    where, whose, word = asyncio.run(asked())
    assert where.startswith("page_")
    assert (whose, word) == ("dora's", "page")
    assert _WHOSE.get() == "nobody's"


@pytest.mark.parametrize("address", ["/", "/runs", "/log"])
def test_a_page_that_is_asked_for_often_takes_no_detour(
    site: Site, monkeypatch: pytest.MonkeyPatch, address: str
):
    browser, detours = site.browser("stan"), 0
    run = anyio.to_thread.run_sync

    async def counted(*given: Any, **named: Any) -> Any:
        nonlocal detours
        detours += 1
        return await run(*given, **named)

    monkeypatch.setattr(anyio.to_thread, "run_sync", counted)
    assert browser.get(address).status_code == 200
    assert detours == 0
    assert browser.get("/policy").status_code == 200
    assert detours > 0
