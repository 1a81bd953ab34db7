"""A request of the API is seen to in one thread, which is not that of the event loop."""

import asyncio
import threading
from contextvars import ContextVar
from typing import Annotated

import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.testclient import TestClient

from bot.api.thread import InOneThread, threads
from bot.aside import done_in

_SAID: ContextVar[str] = ContextVar("said", default="nothing")


async def _where() -> str:
    return threading.current_thread().name


async def _waits() -> None:
    await asyncio.sleep(0)


Where = Annotated[str, Depends(_where)]


@pytest.fixture
def program() -> TestClient:
    router = APIRouter(route_class=InOneThread)

    @router.post("/here")
    def here(depended: Where, body: list[int]) -> tuple[str, str, int]:
        return depended, threading.current_thread().name, sum(body)

    @router.get("/waits", dependencies=[Depends(_waits)])
    def waits() -> None: ...

    app = FastAPI()
    app.state.threads = threads()
    app.include_router(router)
    return TestClient(app)


def test_the_handler_and_what_it_depends_on_share_a_thread_of_the_api(program: TestClient):
    depended, handled, total = program.post("/here", json=[1, 2]).json()
    assert (depended, total) == (handled, 3)
    assert handled.startswith("api")


def test_what_does_not_fit_is_refused_as_ever(program: TestClient):
    assert program.post("/here", json=["x"]).status_code == 422
    assert program.post("/here", content=b"{", headers={"content-type": "application/json"}).json()


def test_what_would_wait_for_the_event_loop_is_a_fault_and_hangs_nowhere(
    program: TestClient,
):
    with pytest.raises(RuntimeError, match="waits for the event loop"):
        program.get("/waits")


def test_what_is_noted_of_the_request_is_known_in_its_thread():
    async def asked() -> str:
        _SAID.set("this")
        return await done_in(threads(), _SAID.get)

    assert asyncio.run(asked()) == "this"
