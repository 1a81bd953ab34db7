import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs

import httpx2
import pytest
from slack_sdk.signature import Clock, SignatureVerifier
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tests.slack_emulator.deliveries import Courier, NotTaken, to_app, to_url
from tests.slack_emulator.faults import Faults
from tests.slack_emulator.page_client import run
from tests.slack_emulator.serving import serve, wait_until

# What is handed over here is as short as can be.
pytestmark = pytest.mark.malformed

SECRET = "the-secret"


class StoppedClock(Clock):
    def now(self) -> float:
        return 1_763_722_900.0


@dataclass
class Bot:
    """Takes deliveries, and answers them with what is in `answers`, the last one for ever."""

    answers: list[httpx2.Response]
    got: list[tuple[bytes, dict[str, str]]] = field(
        default_factory=list[tuple[bytes, dict[str, str]]]
    )
    hold: asyncio.Event | None = None

    async def deliver(self, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
        self.got.append((body, dict(headers)))
        if self.hold is not None:
            await self.hold.wait()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def courier(self, faults: Faults | None = None, *, moment: float = 1_763_722_800.0) -> Courier:
        courier = Courier(SECRET, self.deliver, faults or Faults(), lambda: moment)
        courier.retry_after = (0.0, 0.0, 0.0)
        return courier


def bot(*statuses: int) -> Bot:
    return Bot([httpx2.Response(status) for status in statuses or (200,)])


def test_emulator_deliveries_have_valid_slack_signatures() -> None:
    async def scene() -> None:
        taken = bot()
        courier = taken.courier()
        await courier.command({"command": "/keyturn", "text": "“é” & <x>"})
        await courier.interaction({"type": "block_actions"})
        courier.event({"type": "event_callback"})
        await courier.settled()
        verifier = SignatureVerifier(SECRET, StoppedClock())
        assert len(taken.got) == 3
        for body, headers in taken.got:
            assert verifier.is_valid_request(body, headers)
            assert not verifier.is_valid_request(body + b"x", headers)

    run(scene())


def test_command_is_sent_as_form_fields_and_interaction_as_payload_field() -> None:
    async def scene() -> None:
        taken = bot()
        courier = taken.courier()
        await courier.command({"command": "/keyturn", "text": "a&b"})
        await courier.interaction({"type": "shortcut"})
        assert parse_qs(taken.got[0][0].decode())["text"] == ["a&b"]
        payload = parse_qs(taken.got[1][0].decode())["payload"][0]
        assert json.loads(payload) == {"type": "shortcut"}

    run(scene())


@pytest.mark.parametrize(
    ("answer", "response"),
    [
        (httpx2.Response(200), ""),
        (httpx2.Response(200, text="hello"), "hello"),
        (httpx2.Response(200, json={"text": "x"}), {"text": "x"}),
    ],
)
def test_acknowledgement_body_is_parsed_as_text_or_json(
    answer: httpx2.Response, response: object
) -> None:
    assert run(Bot([answer]).courier().command({})) == response


@pytest.mark.parametrize("status", [404, 500])
def test_delivery_with_an_error_status_is_dispatch_failed(status: int) -> None:
    with pytest.raises(NotTaken) as caught:
        run(bot(status).courier().interaction({}))
    assert (caught.value.error, caught.value.status) == ("dispatch_failed", status)


def test_command_acknowledgement_times_out_after_three_seconds() -> None:
    async def scene() -> None:
        slow = bot()
        slow.hold = asyncio.Event()
        courier = slow.courier()
        assert courier.ack_seconds == 3.0
        courier.ack_seconds = 0.02
        with pytest.raises(NotTaken, match="operation_timeout"):
            await courier.command({})
        slow.hold.set()
        await courier.settled()

    run(scene())


def test_failed_event_is_redelivered_three_times() -> None:
    async def scene() -> None:
        broken = bot(500)
        courier = broken.courier()
        courier.event({"event_id": "Ev1"})
        await courier.settled()
        numbers = [headers.get("x-slack-retry-num") for _, headers in broken.got]
        assert numbers == [None, "1", "2", "3"]
        assert broken.got[1][1]["x-slack-retry-reason"] == "http_error"
        assert len({body for body, _ in broken.got}) == 1

    run(scene())


def test_acknowledged_event_is_not_redelivered() -> None:
    async def scene() -> None:
        for taken, times in ((bot(200), 1), (bot(500, 200), 2)):
            courier = taken.courier()
            courier.event({})
            await courier.settled()
            assert len(taken.got) == times

    run(scene())


def test_no_retry_header_prevents_event_redelivery() -> None:
    async def scene() -> None:
        refusing = Bot([httpx2.Response(500, headers={"x-slack-no-retry": "1"})])
        courier = refusing.courier()
        courier.event({})
        await courier.settled()
        assert len(refusing.got) == 1

    run(scene())


def test_retries_fault_redelivers_acknowledged_events() -> None:
    async def scene() -> None:
        taken = bot()
        courier = taken.courier(Faults(retries=2))
        courier.event({})
        await courier.settled()
        numbers = [headers.get("x-slack-retry-num") for _, headers in taken.got]
        assert numbers == [None, "1", "2"]

    run(scene())


def test_twice_fault_delivers_clicks_twice() -> None:
    async def scene() -> None:
        taken = bot()
        courier = taken.courier(Faults(twice=True))
        await courier.interaction({"type": "block_actions"})
        await courier.settled()
        assert len(taken.got) == 2
        assert taken.got[0][0] == taken.got[1][0]

    run(scene())


def test_response_counts_before_background_tasks_of_the_app_end() -> None:
    async def scene() -> None:
        tidied = asyncio.Event()

        async def answer(request: Request) -> Response:
            return PlainTextResponse("now", background=BackgroundTask(tidied.wait))

        app = Starlette(routes=[Route("/slack/events", answer, methods=["POST"])])
        async with asyncio.timeout(30):
            response = await to_app(app)(b"", {})
        assert response.content == b"now"
        tidied.set()

    run(scene())


def test_exception_in_the_app_is_a_delivery_with_status_500() -> None:
    async def fall(request: Request) -> Response:
        raise RuntimeError("boom")

    app = Starlette(routes=[Route("/slack/events", fall, methods=["POST"])])
    assert run(to_app(app)(b"", {})).status_code == 500  # type: ignore[arg-type]  # an Awaitable that is a coroutine


def test_deliveries_reach_an_app_by_its_url() -> None:
    async def scene() -> None:
        got: list[bytes] = []

        async def answer(request: Request) -> Response:
            got.append(await request.body())
            return PlainTextResponse("there")

        app = Starlette(routes=[Route("/slack/events", answer, methods=["POST"])])
        async with serve(app) as url:
            response = await to_url(f"{url}/slack/events")(b"x=1", {"content-type": "text/plain"})
            await wait_until(lambda: got)
        assert (response.content, got) == (b"there", [b"x=1"])
        courier = Courier(SECRET, to_url(f"{url}/slack/events"), Faults(), lambda: 0.0)
        with pytest.raises(NotTaken, match="dispatch_unknown_error"):
            await courier.command({})

    run(scene())
