from collections.abc import Generator

import pytest

from tests.slack_emulator.browsing import Desk, open_desk


@pytest.fixture(scope="module")
def desk() -> Generator[Desk]:
    with open_desk() as desk:
        yield desk
