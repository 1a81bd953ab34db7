"""The MCP server of a harness on a real port, and clients of the SDK."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from bot.features.mcp.deps import McpParts
from bot.features.mcp.server import MCP_PATH, METADATA_PATH, McpEndpoint
from bot.queries.banned_people import PolicyWithoutBanned
from connectors.command import Query, QueryRunner, Shell
from runbooks import Check, Host, Report, load_catalogue
from tests.agents import add_agent, get_rules_for_agents
from tests.bot.harness import Harness, open_harness
from tests.toy import RUNBOOKS

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

ERAS = ("legacy", "2026-07-28")


class Door:
    """One replica: the server of a harness, and agents that call it."""

    def __init__(self, harness: Harness, url: str) -> None:
        self.harness, self.url = harness, url

    def token(self, behalf: str = "dora", name: str = "triage-bot") -> str:
        service = self.harness.service
        token, secret = service.agents.create_token(name, behalf=behalf, days=1)
        if behalf:
            service.tokens.confirm_token(token.id, person=behalf, source="web")
        return secret

    def call(
        self, tool: str, token: str = "", *, era: str = ERAS[1], **arguments: object
    ) -> dict[str, Any]:
        """Call a tool as the SDK's client does; return its structured result, or its error."""

        async def act(client: "Client") -> "CallToolResult":
            return await client.call_tool(tool, arguments)

        result = self.talk(act, token or self.token(), era=era)
        if result.is_error:
            return {"error": "".join(getattr(one, "text", "") for one in result.content)}
        assert result.structured_content is not None
        return result.structured_content

    def talk(
        self, act: "Callable[[Client], Awaitable[Any]]", token: str, *, era: str = ERAS[1]
    ) -> Any:
        # It takes a second, which every process that collects tests would otherwise spend.
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        async def connect() -> Any:
            headers = {"Authorization": f"Bearer {token}"}
            async with httpx2.AsyncClient(headers=headers, timeout=40) as http:
                transport = streamable_http_client(self.url, http_client=http)
                async with Client(transport, mode=era) as client:
                    return await act(client)

        return asyncio.run(connect())


@contextmanager
def serve(harness: Harness) -> Generator[Door]:
    """Serve the agents of a harness, and execute what is queued, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        policies = PolicyWithoutBanned(harness.policies, harness.database)
        endpoint = McpEndpoint(McpParts(harness.service, harness.database, policies, base_url))

        app = Starlette(routes=[Route(path, endpoint) for path in (MCP_PATH, METADATA_PATH)])
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))

        async def main() -> None:
            tasks = [asyncio.create_task(endpoint.run()), asyncio.create_task(work())]
            await server.serve(sockets=[listener])
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        async def work() -> None:
            while True:
                await asyncio.to_thread(harness.run_queued_work)
                await asyncio.sleep(0.02)

        thread = threading.Thread(target=asyncio.run, args=(main(),))
        thread.start()
        try:
            yield Door(harness, f"{base_url}{MCP_PATH}")
        finally:
            server.should_exit = True
            thread.join()


class Recite(Check[str], words="toy recite", example="lb1"):
    """Recite what a host prints."""

    host: Host

    def read(self, ask: QueryRunner) -> str:
        return ask(self.host, Query(Shell(("show",)), str))

    def report(self, text: str) -> Report:
        return Report("Recited", findings=text.splitlines())


TOYS = {**RUNBOOKS, Recite.words: Recite}


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents can request the toy runbooks."""
    known = cast("dict[str, Any]", load_catalogue())
    for words, runbook in TOYS.items():
        monkeypatch.setitem(known, words, runbook)
        monkeypatch.setitem(cast("dict[str, Any]", RUNBOOKS), words, runbook)


@pytest.fixture
def door(tmp_path: Path) -> Generator[Door]:
    with open_harness(tmp_path, rules=get_rules_for_agents()) as harness:
        add_agent(harness)
        with serve(harness) as door:
            yield door
