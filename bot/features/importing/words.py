"""What steps of all kinds are made of."""

import re
from typing import Any

from bot.features.importing.drafts import Draft

OWNER = re.compile("[a-z_][a-z0-9_-]{0,31}")


def run_as_root(*words: str) -> dict[str, Any]:
    return {"run": [*words], "root": True}


def set_pattern(draft: Draft, value: str, pattern: str) -> None:
    """Give a value of the request the pattern of what it is used for, if it has none yet."""
    given = draft.fields.get(value.strip("\x01\x02"), {})
    if given.get("pattern") == "TODO":
        given["pattern"] = pattern
