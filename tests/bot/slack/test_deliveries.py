"""Redelivered Slack requests take effect once."""

import asyncio
import random

import pytest

from bot.db.database import StoreUnavailable
from bot.slack.dedup import DeliveryRegister
from tests.bot.harness import Harness

pytestmark = pytest.mark.anyio


async def test_redelivered_slack_command_is_recognised_by_trigger_or_signature(harness: Harness):
    deliveries = DeliveryRegister(harness.database)
    assert await deliveries.is_first_delivery(
        {"command": "/keyturn", "trigger_id": "1.2.3"}, key="a"
    )
    assert not await deliveries.is_first_delivery(
        {"command": "/keyturn", "trigger_id": "1.2.3"}, key="b"
    )
    assert not await deliveries.is_first_delivery(
        {"command": "/keyturn", "trigger_id": "4"}, key="a"
    )


async def test_repeated_option_suggestion_is_answered_each_time(harness: Harness):
    deliveries = DeliveryRegister(harness.database)
    for _ in range(2):
        assert await deliveries.is_first_delivery(
            {"type": "block_suggestion", "value": "ta"}, key="a"
        )


def build_event(number: int) -> dict[str, str]:
    return {"type": "event_callback", "event_id": f"Ev{number}"}


async def test_redelivered_slack_events_take_effect_once_across_replicas(
    harness: Harness,
):
    """Four times each, newly signed, out of order, at two replicas, many at once."""
    replicas = [DeliveryRegister(harness.database), DeliveryRegister(harness.database)]
    comes = [number for number in range(2_500) for _ in range(4)]
    random.Random(5).shuffle(comes)  # noqa: S311 - the same order each time
    effects: list[int] = []

    async def deliver(signature: int, number: int) -> None:
        if await replicas[signature % 2].is_first_delivery(
            build_event(number), key=f"v0={signature}"
        ):
            effects.append(number)

    await asyncio.gather(*(deliver(*one) for one in enumerate(comes)))
    assert sorted(effects) == list(range(2_500))


async def test_without_the_event_id_every_redelivery_takes_effect(harness: Harness):
    deliveries = DeliveryRegister(harness.database)
    nameless = {"type": "event_callback"}
    results = [
        deliveries.is_first_delivery(nameless, key=f"v0={signature}") for signature in range(4)
    ]
    assert await asyncio.gather(*results) == [True] * 4


async def test_concurrent_slack_deliveries_are_recorded_in_one_transaction(harness: Harness):
    commits: list[int] = []
    transaction = harness.database.transaction

    def counted(*, seconds: float | None = None):
        commits.append(1)
        return transaction(seconds=seconds)

    harness.database.transaction = counted
    deliveries = DeliveryRegister(harness.database)
    firsts = [
        deliveries.is_first_delivery(build_event(number), key=f"v0={number}")
        for number in range(50)
    ]
    assert all(await asyncio.gather(*firsts))
    assert len(commits) <= 2


async def test_slack_delivery_fails_when_it_cannot_be_recorded(harness: Harness):
    harness.database.close()
    harness.database.engine.dispose()
    with harness.database.engine.connect() as connection:
        connection.exec_driver_sql("DROP TABLE seen_request")
    deliveries = DeliveryRegister(harness.database)
    deliveries_taken = [
        deliveries.is_first_delivery(build_event(number), key=f"v0={number}")
        for number in range(3)
    ]
    outcomes = await asyncio.gather(*deliveries_taken, return_exceptions=True)
    assert [type(one) for one in outcomes] == [StoreUnavailable] * 3


async def test_cancelled_slack_delivery_does_not_block_others_in_its_batch(harness: Harness):
    deliveries = DeliveryRegister(harness.database)
    gone = asyncio.create_task(deliveries.is_first_delivery(build_event(1), key="v0=1"))
    stays = asyncio.create_task(deliveries.is_first_delivery(build_event(2), key="v0=2"))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays
    assert (await asyncio.gather(gone, return_exceptions=True))[0].__class__ is (
        asyncio.CancelledError
    )
