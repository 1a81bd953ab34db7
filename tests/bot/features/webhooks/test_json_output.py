"""What the command of webhooks prints as JSON."""

import pytest

from tests.bot.cli.test_json_output import harness, read_json

__all__ = ["harness"]


@pytest.mark.usefixtures("harness")
def test_retry_prints_the_subscription_and_its_entries_as_json():
    assert read_json("webhooks", "--retry", "wiki") == {"subscription": "wiki", "entries": 0}
