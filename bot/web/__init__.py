"""The web door: pages on which people read, decide and look things up again."""

from bot.web.app import build_app
from bot.web.deps import WebDependencies

__all__ = ["WebDependencies", "build_app"]
