"""Open and update modals. Slack accepts a trigger id for three seconds only."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack import threads
from bot.slack.blocks import (
    View,
    modal,
    paragraph,
    shorten_text,
)
from bot.slack.client import CALL_ERRORS, get_error_cause, is_retryable

_log = logging.getLogger(__name__)

_OPEN_TIMEOUT_SECONDS = 2.5
# Before the second attempt to update a view.
_RETRY_SECONDS = 1.0
# Slack's error codes for a view that was closed or updated for a later choice.
_SUPERSEDED_VIEW_ERRORS = frozenset({"not_found", "hash_conflict"})


def render_loading(text: str = "Loading …") -> View:
    """Return a placeholder until the content of a view is ready."""
    return render_notice("Keyturn", text)


def render_notice(title: str, *paragraphs: str) -> View:
    """Render a text instead of a form."""
    return modal(
        title,
        [paragraph(shorten_text(one, 2900)) for one in paragraphs],
    )


class Views:
    """Opens and updates modals."""

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = client

    async def open_view(self, trigger_id: str, build_view: Callable[[], View]) -> bool:
        """Show what *build_view* returns; return False if Slack shows no view."""
        view_id = await self.open_loading(trigger_id)
        if not view_id:
            return False
        try:
            view = await threads.run_in_answer_thread(build_view)
        except Exception:
            text = "This form cannot be loaded. Close it: Keyturn sends you the reason."
            await self.update_view(view_id, render_notice("Keyturn", text))
            raise
        return await self.update_view(view_id, view)

    async def open_loading(self, trigger_id: str, loading: View | None = None) -> str:
        """Open a placeholder; return the id of the view, or "" if Slack shows none."""
        try:
            async with asyncio.timeout(_OPEN_TIMEOUT_SECONDS):
                answer = await self._client.views_open(
                    trigger_id=trigger_id, view=loading or render_loading()
                )
        except CALL_ERRORS as error:
            _log.warning("cannot open a form: %s", get_error_cause(error))
            return ""
        opened: Mapping[str, str] = answer.get("view") or {}
        return opened.get("id", "")

    async def update_view(self, view_id: str, view: View, view_hash: str = "") -> bool:
        """Update a view, in two attempts; return False if an open view is not updated.

        view_hash: of the version to replace; "" for any.
        """
        for wait in (_RETRY_SECONDS, 0.0):
            try:
                await self._client.views_update(view_id=view_id, hash=view_hash or None, view=view)
            except CALL_ERRORS as error:
                _log.warning("cannot update a form: %s", get_error_cause(error))
                if isinstance(error, SlackApiError) and not is_retryable(error):
                    return get_error_cause(error) in _SUPERSEDED_VIEW_ERRORS
            else:
                return True
            await asyncio.sleep(wait)
        return False
