"""Why a value does not fit, in words for whoever typed it."""

from collections.abc import Mapping
from typing import Any

# What pydantic calls it, and what is to be done; in braces stands what it knows of the limit.
_SAID: Mapping[str, str] = {
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "bool_parsing": "must be true or false",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "string_too_short": "must have {min_length} characters or more",
    "string_too_long": "must have {max_length} characters at most",
}


def why(problem: Mapping[str, Any]) -> str:
    """Return what is wrong with one value, as pydantic's `errors()` tells of it."""
    context = problem.get("ctx", {})
    # Choices come in quotation marks that nobody types.
    said = _SAID.get(problem["type"], "").format_map(context).replace("'", "")
    return said or str(problem["msg"]).removeprefix("Value error, ")
