"""The rows that each feature adds to the tables of tests: routes, and who may view what."""

from importlib import import_module
from typing import Any

from bot.features import FEATURES


def collect(name: str) -> dict[Any, Any]:
    """Return what the modules tests/bot/features/*/tables.py say under a name."""
    rows: dict[Any, Any] = {}
    for feature in FEATURES:
        rows |= getattr(import_module(f"{__package__}.{feature.name}.tables"), name, {})
    return rows
