"""The web pages, on which people request, decide and look up runs."""

from bot.web.app import build_app
from bot.web.deps import WebDependencies

__all__ = ["WebDependencies", "build_app"]
