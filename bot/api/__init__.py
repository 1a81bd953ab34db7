"""The API door: what the pages do, as JSON for programs that come with a token."""

from bot.api.door import build
from bot.api.parts import ApiParts

__all__ = ["ApiParts", "build"]
