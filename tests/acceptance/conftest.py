from collections.abc import Generator

import pytest
from playwright.sync_api import Browser

from tests.acceptance.browsing import chromium


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    """One browser for all that a module's tests visit."""
    with chromium() as browser:
        yield browser
