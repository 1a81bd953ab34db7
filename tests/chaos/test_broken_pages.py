"""Broken pages: each is refused with a sentence and a place, and none by an accident.

`make chaos` breaks 5,000 pages, `make test` 300.
"""

import random

from runbooks._declared_yaml import PageError
from tests.campaigns import CHAOS
from tests.runbooks.broken_pages import break_page
from tests.runbooks.pages import load

_COUNT = 5000 if CHAOS else 300


def test_broken_pages_are_refused_with_a_sentence_and_a_place() -> None:
    errors = [_load_broken(seed) for seed in range(_COUNT)]
    # The others have a fault that changes nothing, such as a blank line.
    assert sum(error is not None for error in errors) > _COUNT * 0.8


def _load_broken(seed: int) -> PageError | None:
    text = break_page(random.Random(seed))  # noqa: S311 - repeatable
    error = _find_error(text)
    if error is not None:
        assert 1 <= error.line <= text.count("\n") + 2, seed
        assert error.column >= 1, seed
        assert len(error.message) > 10, seed
    return error


def _find_error(text: str) -> PageError | None:
    try:
        load(text)
    except PageError as error:
        return error
    return None
