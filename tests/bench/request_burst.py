"""A burst of requests at the whole service: how fast Slack requests are acknowledged meanwhile.

The service is `keyturn serve` in a process of its own, with its database on the disk, hosts behind
real sshd's and a Slack that takes all that it is told. Slack gives up after three seconds.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

from aiohttp import web

from bot import app
from bot.db.database import Database
from bot.settings import Settings
from runbooks import load_catalogue
from tests.bench.farm import Farm
from tests.bench.measurements import Part, set_maximum, table
from tests.bench.served_keyturn import Mark
from tests.bench.slack_acknowledgement import at_a_pace
from tests.bot.slack.payloads import SECRET
from tests.policies import TEAM

_HOSTS = 10
_REQUESTS, _RATE = 300, 50
_HELP_SECONDS = 6
_PATIENCE = 60
_marks = count(1)


def measure(rounds: int) -> Part:
    """Burst so often, each time at a service that is as it was left by the one before."""
    with tempfile.TemporaryDirectory() as place, Farm(Path(place), _HOSTS) as farm:
        bursts, helped = asyncio.run(_bursts(farm, Path(place), rounds))
    worst = max(_get_p99(took) for took in bursts)
    what = f"acknowledged in a burst of {_REQUESTS} requests at {_RATE} /s"
    figures = [
        set_maximum(1000, f"{what}, p99", worst * 1000, "ms"),
        set_maximum(1000, f"help answered at {_RATE} /s, p99", _get_p99(helped) * 1000, "ms"),
    ]
    return Part(table(figures), figures)


def _get_p99(took: list[float]) -> float:
    return took[int(0.99 * (len(took) - 1))]


async def _bursts(farm: Farm, place: Path, rounds: int) -> tuple[list[list[float]], list[float]]:
    """Return how long the acknowledgements of each burst took, in order, and those of help."""
    bursts: list[list[float]] = []
    async with _a_slack() as api:
        with _served(farm, place, api) as port:
            # What is made at the first request, is.
            await at_a_pace(port, lambda _: "help", 5, 2)
            for _ in range(rounds):
                took = await at_a_pace(port, _request, _RATE, _REQUESTS / _RATE)
                bursts.append(sorted(took))
                await _recorded(place, _REQUESTS * len(bursts))
            helped = await at_a_pace(port, lambda _: "help", _RATE, _HELP_SECONDS)
    return bursts, sorted(helped)


async def _recorded(place: Path, count: int) -> None:
    """Wait until so many requests are recorded: none was lost behind its acknowledgement."""
    database = Database(Settings(data=place / "var").database_url)
    async with asyncio.timeout(_PATIENCE):
        while True:
            with database.reading() as tx:
                stored = tx.sql.exec_driver_sql("SELECT count(*) FROM run").scalar_one()
            if stored == count:
                break
            await asyncio.sleep(0.2)
    database.close()


def _request(number: int) -> str:
    return f"bench mark web{number % _HOSTS + 1} {next(_marks)}"


@asynccontextmanager
async def _a_slack() -> AsyncGenerator[str]:
    """Yield the address of a Web API that takes everything."""
    stamps = count(1)

    async def answer(request: web.Request) -> web.Response:
        form = await request.post()
        user = str(form.get("user", request.query.get("user", "")))
        channel = {"id": f"D{user[1:]}"} if "open" in request.path else "C0OPS"
        body = {"ok": True, "channel": channel, "ts": f"1700000000.{next(stamps):06d}"}
        return web.json_response(body | {"user": {"id": user, "team_id": TEAM}})

    served = web.Application()
    served.router.add_route("*", "/api/{method}", answer)
    runner = web.AppRunner(served)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}/api/"
    await runner.cleanup()


@contextmanager
def _served(farm: Farm, place: Path, api: str) -> Generator[int]:
    """Yield the port of a service in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "tests.bench.request_burst",
        str(farm.policy),
        str(place),
        api,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().rpartition(":")[2])
        finally:
            process.terminate()


def _serve(policy: str, place: str, api: str) -> None:
    cast("dict[str, Any]", load_catalogue())[Mark.words] = Mark
    more: dict[str, Any] = {
        "slack_api": api,
        "slack_bot_token": "xoxb-1",
        "slack_signing_secret": SECRET,
        "slack_team": TEAM,
        "slack_channel": "C0OPS",
        "requests_a_minute": 10_000,
    }
    app.serve(Settings(data=Path(place, "var"), policy=Path(policy), port=0, **more))


if __name__ == "__main__":
    os.environ.pop("HTTPS_PROXY", None)
    _serve(*sys.argv[1:])
