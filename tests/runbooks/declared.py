"""The declared runbooks that come with Keyturn, as classes."""

from typing import Any, cast

from runbooks import Change, Check, load_catalogue


def load_change(words: str) -> type[Change[Any]]:
    return cast("type[Change[Any]]", load_catalogue()[words])


def load_check(words: str) -> type[Check[Any]]:
    return cast("type[Check[Any]]", load_catalogue()[words])
