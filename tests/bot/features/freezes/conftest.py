"""Policies that know of ordered freezes."""

import pytest

from tests.bot.duties import KnownPolicy


@pytest.fixture(autouse=True)
def ordered_freezes(monkeypatch: pytest.MonkeyPatch):
    """Have policies look up ordered freezes each time."""
    monkeypatch.setattr(KnownPolicy, "has_ordered_freezes", True)
