"""Chat: Slack, or the console in its place, put together out of what the settings say."""

import asyncio
import secrets
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from bot.console.console import Console
from bot.console.deliveries import to_url
from bot.console.directory import (
    ConsoleChannel,
    ConsoleCommand,
    ConsolePerson,
    ConsoleShortcut,
    Installation,
)
from bot.ground import Ground
from bot.later import Later
from bot.offering import Offering
from bot.policy import Policy
from bot.settings import Settings
from bot.slack.aliases import ALIASES, COMMAND
from bot.slack.form import ABOUT_HOST, ABOUT_HOST_NAME
from bot.slack.manifest import scopes
from bot.web.parts import Condition

if TYPE_CHECKING:
    from bot.slack.door import Door

_CHANNEL = "C0PRODUCTION"


class Chat:
    """console: None with Slack. events: takes what Slack posts. door: None until it is made."""

    def __init__(self, settings: Settings, ground: Ground, offering: Offering) -> None:
        self._settings, self._ground, self._offering = settings, ground, offering
        self._secret = secrets.token_hex(32)
        self.console: Console | None = None
        if settings.console:
            self.console = _console(settings, ground.policies.current(), self._secret)
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
        return Condition(f"{words}: {seen.trouble}" if seen.trouble else words, seen.refused)

    def _make(self) -> ASGIApp:
        # Its libraries take longer to load than all of ours.
        from bot.slack import door

        settings, console, ground = self._settings, self.console, self._ground
        if console is not None:
            speaker = door.client(console.bot_token, console.api_url)
            there = door.Installation(
                self._secret,
                console.workspace.app.team_id,
                settings.address,
                _CHANNEL,
                app_token=console.app_token if settings.console == "socket" else "",
            )
        else:
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


def _console(settings: Settings, policy: Policy, secret: str) -> Console:
    """Return the people of the policy in a workspace that the bot cannot tell from Slack."""
    accounts = [
        (person, account)
        for person in policy.household.people.values()
        for account in person.slack
    ]
    team = accounts[0][1].team if accounts else "T0KEYTURN"
    people = [
        ConsolePerson(
            user_id=account.user,
            name=person.id,
            display=person.name,
            title=", ".join(person.roles),
            email=person.email or "",
        )
        for person, account in accounts
        if account.team == team
    ]
    address = f"http://{settings.listen}:{settings.port}"
    hint = "abusers show lb1, or help"
    return Console(
        people=people,
        channels=[ConsoleChannel(_CHANNEL, "production", "What is asked, approved and done")],
        signing_secret=secret,
        deliver=to_url(f"{address}/slack/events") if settings.console == "http" else None,
        installation=Installation(
            team_id=team,
            scopes=tuple(scopes()["bot"]),
            commands=(
                ConsoleCommand(COMMAND, hint, "Ask for a run"),
                *(
                    ConsoleCommand(name, alias.usage, alias.description)
                    for name, alias in ALIASES.items()
                ),
            ),
            shortcuts=(ConsoleShortcut(ABOUT_HOST, ABOUT_HOST_NAME, on_message=True),),
        ),
        url=f"{address}/console",
    )
