"""The kinds of value that runbooks ask people for."""

from typing import Annotated, Any

from pydantic import Field

# A name is looked up in the inventory and never reaches a command line.
Host = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        description="The host to work on",
        json_schema_extra={"choices": "hosts"},
    ),
]


def tagged(tag: str) -> Any:
    """Offer only hosts that carry *tag* in the inventory; the engine refuses any other."""
    return Field(
        description=f"The host to work on: one tagged {tag}",
        json_schema_extra={"choices": "hosts", "tag": tag},
    )
