"""The web door: pages on which people read, decide and look things up again."""

from bot.web.door import build
from bot.web.parts import WebParts

__all__ = ["WebParts", "build"]
