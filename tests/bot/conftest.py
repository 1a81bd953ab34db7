from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bot.office import Office, an_office


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with an_office(tmp_path) as office:
        yield office
