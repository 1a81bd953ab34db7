"""`keyturn mcp`: a bridge from standard input and output to the service."""

import json
import os
import subprocess
import sys

import pytest

from tests.bot.cli.test_agents import add, keyturn, served
from tests.bot.features.mcp.conftest import serve
from tests.bot.harness import Harness

__all__ = ["served"]


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_mcp_command_bridges_standard_input_and_output(served: Harness, version: str):
    add(served)
    token = keyturn(served, "agent", "token", "triage-bot", "--for", "dora").stdout.strip()
    served.service.tokens.confirm_token(1, person="dora", source="web")
    prefix = "io.modelcontextprotocol/"
    about: dict[str, object] = {"protocolVersion": version, "clientCapabilities": {}}
    about["clientInfo"] = {"name": "test", "version": "1"}
    meta = {f"{prefix}{name}": value for name, value in about.items()} if version > "2026" else {}
    call = {"name": "find_runbooks", "arguments": {"search": "zfs"}}
    messages: list[dict[str, object]] = [
        {"id": 2, "method": "tools/call", "params": call | ({"_meta": meta} if meta else {})}
    ]
    if not meta:
        messages = [
            {"id": 1, "method": "initialize", "params": about | {"capabilities": {}}},
            {"method": "notifications/initialized"},
            *messages,
        ]
    lines = "".join(json.dumps({"jsonrpc": "2.0"} | one) + "\n" for one in messages)
    with serve(served) as door:
        result = subprocess.run(
            [sys.executable, "-m", "bot", "mcp", "--url", door.url.removesuffix("/mcp")],
            input=lines,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "KEYTURN_TOKEN": token},
            check=False,
        )
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["id"] for one in answers] == ([2] if meta else [1, 2]), result.stderr
    assert "zfs" in json.dumps(answers[-1].get("result", {}).get("structuredContent")), answers
