from collections.abc import Generator
from pathlib import Path

import pytest

from tests.bot.features.scim.accounts import Provider, add_provisioning
from tests.bot.harness import Harness, open_harness


@pytest.fixture
def company(tmp_path: Path) -> Generator[Harness]:
    """A company whose identity provider adds and removes people."""
    with open_harness(tmp_path) as harness:
        add_provisioning(tmp_path / "policy")
        yield harness


@pytest.fixture
def provider(company: Harness) -> Provider:
    return Provider(company)
