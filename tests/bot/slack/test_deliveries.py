"""What has an effect has it once; what only asks may ask again."""

import pytest

from bot.slack.deliveries import Deliveries
from tests.bot.office import Office

pytestmark = pytest.mark.anyio


async def test_a_command_is_taken_once(office: Office):
    deliveries = Deliveries(office.database)
    assert await deliveries.first_time({"command": "/keyturn", "trigger_id": "1.2.3"}, key="a")
    assert not await deliveries.first_time({"command": "/keyturn", "trigger_id": "1.2.3"}, key="b")
    assert not await deliveries.first_time({"command": "/keyturn", "trigger_id": "4"}, key="a")


async def test_who_types_the_same_letters_again_is_answered_again(office: Office):
    deliveries = Deliveries(office.database)
    for _ in range(2):
        assert await deliveries.first_time({"type": "block_suggestion", "value": "ta"}, key="a")
