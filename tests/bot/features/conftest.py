"""What tests of features use: pages, API, chat and command line of a harness."""

from tests.bot.api.conftest import api_harness, toys
from tests.bot.api.test_viewing import restricted, restricted_desk
from tests.bot.cli.test_policy import place
from tests.bot.cli.test_runs import cli_service
from tests.bot.slack.conftest import anyio_backend, chat, patient
from tests.bot.web.conftest import site

__all__ = [
    "anyio_backend",
    "api_harness",
    "chat",
    "cli_service",
    "patient",
    "place",
    "restricted",
    "restricted_desk",
    "site",
    "toys",
]
