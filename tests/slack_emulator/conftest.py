from collections.abc import Generator

import pytest

from tests.slack_emulator.browsing import SharedBrowser, open_shared_browser


@pytest.fixture(scope="module")
def shared_browser() -> Generator[SharedBrowser]:
    with open_shared_browser() as shared_browser:
        yield shared_browser
