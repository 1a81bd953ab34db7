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
    "missing": "is missing",
    "extra_forbidden": "is not known here: is it mistyped?",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be an object, with names and values",
    "model_attributes_type": "must be an object, with names and values",
    "model_type": "must be an object, with names and values",
    "string_too_short": "must have {min_length} characters or more",
    "string_too_long": "must have {max_length} characters at most",
}


# What is written in a certain way, by the name of its field.
_WRITTEN: Mapping[str, str] = {
    "digest": "must be the plan's digest, ten of its digits at least: 0 to 9 and a to f",
}


def why(problem: Mapping[str, Any]) -> str:
    """Return what is wrong with one value, as pydantic's `errors()` tells of it."""
    context, place = problem.get("ctx", {}), problem["loc"]
    if problem["type"] == "string_pattern_mismatch" and place and place[-1] in _WRITTEN:
        return _WRITTEN[place[-1]]
    # Choices come in quotation marks that nobody types.
    said = _SAID.get(problem["type"], "").format_map(context).replace("'", "")
    return said or str(problem["msg"]).removeprefix("Value error, ")
