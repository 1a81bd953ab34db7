"""A company whose hosts are real SSH servers, which tests may change."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.playground import sample_company
from tests.playground.fleet import LoopbackFleet


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LoopbackFleet]:
    """Real hosts, with `fleet.directory` a whole policy directory."""
    sample_company.create_policy(tmp_path / "policy")
    with LoopbackFleet(tmp_path / "policy") as fleet:
        yield fleet
