"""The blanks of a posted form, as text by name."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import Depends, HTTPException, Request

_MAX_FIELDS = 20


async def _read_form(request: Request) -> Mapping[str, str]:
    """Read the form; what is no form, or holds files, is refused."""
    async with request.form(max_files=0, max_fields=_MAX_FIELDS) as form:
        blanks = {name: value for name, value in form.items() if isinstance(value, str)}
    if len(blanks) > _MAX_FIELDS:
        raise HTTPException(400)
    return blanks


FormValues = Annotated[Mapping[str, str], Depends(_read_form)]
