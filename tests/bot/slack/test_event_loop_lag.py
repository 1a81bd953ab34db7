"""A blocked event loop is logged, as it delays every acknowledgement."""

import asyncio
import gc
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from bot import app, observability
from bot.settings import Settings
from tests.playground import sample_company

pytestmark = pytest.mark.anyio

_SECONDS = 1.4


@pytest.fixture
def keyturn(tmp_path: Path) -> Generator[app.Keyturn]:
    sample_company.create_policy(tmp_path / "policy")
    (tmp_path / "policy" / "inventory.yaml").write_text("hosts: {}\n")
    yield app.build_service(Settings(data=tmp_path / "var", policy=tmp_path / "policy"))
    gc.unfreeze()


async def _block_event_loop() -> None:
    """Have something wait in the loop itself, as no listener may."""
    await asyncio.sleep(0.1)
    asyncio.get_running_loop().call_soon(time.sleep, _SECONDS)
    await asyncio.sleep(_SECONDS + 0.6)


def _count_warnings(caplog: pytest.LogCaptureFixture) -> int:
    return sum("no request was handled for" in record.getMessage() for record in caplog.records)


async def test_blocked_event_loop_is_logged_once_a_minute(
    keyturn: app.Keyturn, caplog: pytest.LogCaptureFixture
):
    async with keyturn.asgi.router.lifespan_context(keyturn.asgi):
        await _block_event_loop()
        await _block_event_loop()
    assert _count_warnings(caplog) == 1


async def test_blocking_call_in_a_thread_logs_no_event_loop_warning(
    caplog: pytest.LogCaptureFixture,
):
    task = asyncio.create_task(observability.warn_when_loop_blocks())
    await asyncio.to_thread(time.sleep, _SECONDS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert _count_warnings(caplog) == 0
