"""Values of a posted form, by name of the field."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import Depends, HTTPException, Request

_MAX_FIELDS = 20
# Of a field for hosts.
MAX_HOSTS_LENGTH = 300


async def _read_form(request: Request) -> Mapping[str, str]:
    """Return the values of the form. Requests with files or too many fields are refused."""
    async with request.form(max_files=0, max_fields=_MAX_FIELDS) as form:
        values = {name: value for name, value in form.items() if isinstance(value, str)}
    if len(values) > _MAX_FIELDS:
        raise HTTPException(400)
    return values


FormValues = Annotated[Mapping[str, str], Depends(_read_form)]
