"""Chat: the Slack app, built from the settings."""

import asyncio
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from bot.ground import Ground
from bot.later import Later
from bot.offering import Offering
from bot.settings import Settings
from bot.web.parts import Condition

if TYPE_CHECKING:
    from bot.slack.door import Door

# Without any connection for so long, Keyturn is not ready: nothing from Slack arrives.
_DEAF_SECONDS = 30.0


class Chat:
    """events: takes what Slack posts. door: None until it is made."""

    def __init__(self, settings: Settings, ground: Ground, offering: Offering) -> None:
        self._settings, self._ground, self._offering = settings, ground, offering
        self.door: Door | None = None
        self.events = Later(self._make)

    async def run(self) -> None:
        """Send what there is to tell, and take what comes by Socket Mode, until cancelled."""
        await self.events.prepare()
        door = self.door
        if door is None:
            return
        self._ground.database.on_news = door.outbox.wake
        sockets = () if door.sockets is None else (door.sockets.run(),)
        await asyncio.gather(door.outbox.run(), *sockets)

    async def close(self) -> None:
        if self.door is not None:
            await self.door.close()

    def condition(self) -> Condition:
        """Say how Slack reaches us, without anything that is not for strangers."""
        if self.door is None:
            return Condition("is about to be listened to")
        if self.door.sockets is None:
            return Condition("is listened to over HTTP")
        seen = self.door.sockets.standing
        words = f"{seen.up} of {seen.wanted} connections stand"
        broken = seen.refused or seen.deaf > _DEAF_SECONDS
        return Condition(f"{words}: {seen.trouble}" if seen.trouble else words, broken)

    def _make(self) -> ASGIApp:
        # Its libraries take longer to load than all of ours.
        from bot.slack import door

        settings, ground = self._settings, self._ground
        speaker = door.client(settings.slack_bot_token.get_secret_value(), settings.slack_api)
        there = door.Installation(
            settings.slack_signing_secret.get_secret_value(),
            settings.slack_team,
            settings.address,
            settings.slack_channel,
            settings.slack_alarm_channel,
            settings.slack_app_token.get_secret_value(),
        )
        self.door = door.Door(
            ground.workflow, ground.database, ground.admitted, speaker, there, self._offering
        )
        return self.door.app
