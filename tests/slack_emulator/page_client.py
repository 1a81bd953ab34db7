"""One person in front of the emulator's pages, without a browser and without scripts."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2

from tests.slack_emulator.form_values import address
from tests.slack_emulator.messages import Message
from tests.slack_emulator.serving import serve
from tests.slack_emulator.showcase import Showcase, showcase
from tests.slack_emulator.views import View

T = TypeVar("T")

OPS = "C0OPS"


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@dataclass
class PageClient:
    """Acts as `user` in the channel `at`; every form goes through HTTP."""

    made: Showcase
    client: httpx2.AsyncClient
    user: str = "U0DORA"
    at: str = OPS

    def acting_as(self, user: str) -> "PageClient":
        return PageClient(self.made, self.client, user, self.at)

    @property
    def shown(self) -> list[Message]:
        """The messages that this person sees in the channel."""
        return self.made.emulator.workspace.log(self.at, self.user)

    @property
    def words(self) -> list[str]:
        return [message.text for message in self.shown]

    @property
    def modal(self) -> View:
        view = self.made.emulator.views.top(self.user)
        assert view is not None, "no modal is open"
        return view

    async def page(self, at: str = "", **query: str) -> str:
        where = at or f"c/{self.at}"
        answer = await self.client.get(f"as/{self.user}/{where}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.text

    async def post(self, path: str, fields: Mapping[str, str | list[str]]) -> httpx2.Response:
        form = {"at": self.at, **fields}
        return await self.client.post(f"as/{self.user}/{path}", data=form)

    async def say(self, words: str, **more: str) -> None:
        answer = await self.post("say", {"text": words, **more})
        assert answer.status_code == 303

    async def press(
        self, message: Message, block: str, action: str, **more: str
    ) -> httpx2.Response:
        place = {"channel": message.channel, "ts": message.ts}
        return await self.post("act", {**place, "press": address(block, action), **more})

    async def form(self, do: str, fields: Mapping[str, str] | None = None) -> httpx2.Response:
        return await self.post("act", {"view": self.modal.id, "do": do, **(fields or {})})


@asynccontextmanager
async def open_page_client() -> AsyncGenerator[PageClient]:
    """Yield a person who signed in to a served emulator with the showcase bot behind it."""
    made = showcase()
    async with serve(made.app) as url:
        made.point_at(url)
        headers = {"origin": url}
        async with httpx2.AsyncClient(base_url=f"{url}/emulator/", headers=headers) as client:
            answer = await client.get(made.emulator.sign_in_link())
            assert answer.status_code == 303
            yield PageClient(made, client)
            made.release.set()
            await made.emulator.courier.settled()
