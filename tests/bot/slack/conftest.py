from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from runbooks import load_catalogue
from tests.bot.harness import Harness
from tests.bot.slack.chat import Chat, be_patient, open_chat
from tests.toy import RUNBOOKS


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """People can type the toy runbooks' words."""
    known = cast("dict[str, Any]", load_catalogue())
    for words, runbook in RUNBOOKS.items():
        monkeypatch.setitem(known, words, runbook)


@pytest.fixture
async def chat(harness: Harness, anyio_backend: str) -> AsyncIterator[Chat]:
    async with open_chat(harness) as chat:
        yield chat


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, too, answers come with their acknowledgement."""
    be_patient(monkeypatch)
