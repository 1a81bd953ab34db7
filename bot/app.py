"""Builds every part once and hands each what it needs. Nothing else constructs anything."""

import asyncio
import logging
import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from bot import api, heap, lag, neighbours
from bot.api import ApiParts
from bot.api import hooks as incoming
from bot.api.hooks import Incoming
from bot.api.metrics import Gauges, endpoint
from bot.api.telling import Telling
from bot.custody import condition as state_of
from bot.custody.contacts import Contacts
from bot.custody.discretion import set_up_logging
from bot.custody.housekeeping import Housekeeping
from bot.dispatch import InProcess
from bot.dispatch.procrastinated import Procrastinated
from bot.ground import Elsewhere, Ground, at_work_on, lay, one_of_several
from bot.inventory.enrolling import enrolling
from bot.offering import Offering
from bot.policy import Policy, PolicyDirectory
from bot.redaction import Redactor
from bot.schedule.clock import Clock
from bot.settings import Settings
from bot.store.database import Database, sole_user
from bot.store.tenure import Tenure
from bot.trail import Trail
from bot.web import door as web
from bot.web.parts import Condition, WebParts
from bot.workflow import Workflow
from bot.workflow.worker import Worker
from connectors.fleet import Fleet

if TYPE_CHECKING:
    from bot.console.console import Console
    from bot.slack.door import Client, Door, Installation

# Chat is loaded where there is chat: its libraries take a quarter of a second, and 16 MiB.
log = logging.getLogger(__name__)

_CHANNEL = "C0PRODUCTION"
_HOUR = 3600 * 1_000_000
# A step that is under way when the service ends may take so long, and what is cut off then.
_FINISH_SECONDS, _GIVE_UP_SECONDS = 15.0, 4.0
# Commands on one host at once, more than there are threads for what only reads; sshd takes 10.
_PER_HOST = 8


@dataclass(frozen=True)
class Keyturn:
    """Everything that one process is made of. asgi: what the web server serves.

    dispatch: None where workers elsewhere carry runs out.
    """

    settings: Settings
    database: Database
    policies: PolicyDirectory
    fleet: Fleet
    dispatch: InProcess | None
    workflow: Workflow
    worker: Worker
    house: Housekeeping
    slack: "Door | None"
    console: "Console | None"
    asgi: Starlette
    contacts: Contacts
    tellings: Sequence[Telling] = ()


def build(
    settings: Settings,
    redactor: Redactor | None = None,
    *,
    beside: str = "",
    tenure: Tenure | None = None,
) -> Keyturn:
    """Put the parts together. Raises NoPolicy, StoreUnavailable and BadKey.

    beside, tenure: as in ground.lay().
    """
    redactor = redactor or Redactor(settings.secrets)
    dispatch = InProcess() if settings.engine == "embedded" else None
    ground = lay(
        settings,
        dispatch or Procrastinated(),
        redactor,
        reach=None if dispatch else Elsewhere(),
        beside=beside,
        tenure=tenure,
    )
    ground.house.open(settings.shown)
    database, workflow, admitted = ground.database, ground.workflow, ground.admitted
    policy = ground.policies.current()
    secure = urlsplit(settings.address).scheme == "https"
    secret, console = _console(settings, policy) if settings.console else ("", None)
    slack = _slack(settings, console, secret)
    offering = Offering(ground.fleet, database, admitted)
    door = slack and _door(ground, *slack, offering)
    conditions: dict[str, Callable[[], Condition]] = {}
    if door is not None:
        conditions["slack"] = partial(_condition, door)
    hooks = neighbours.hooks(settings, database, redactor)
    if hooks.subscriptions:
        conditions["subscriptions"] = partial(neighbours.told, database)
    pages = web.build(
        WebParts(
            workflow,
            database,
            admitted,
            settings.address,
            secure,
            conditions,
            enrolling=partial(enrolling, settings.policy),
            offering=offering,
            findings=_state(settings, ground, beside).findings,
            provider=neighbours.provider(settings),
        )
    )
    asgi = Starlette(middleware=[Middleware(Trail)], lifespan=lambda _: _at_work(keyturn))
    if console is not None:
        asgi.mount("/console", console.app)
    if door is not None:
        asgi.router.routes.append(Route("/slack/events", door.app))
    asgi.mount("/hooks", incoming.build(Incoming(hooks, database, admitted), secure=secure))
    programs = ApiParts(
        workflow,
        database,
        admitted,
        settings.address,
        findings=_state(settings, ground, beside).findings,
        offering=offering,
    )
    gauges = Gauges(lambda: ground.reach.open, ground.house.unwitnessed)
    asgi.router.routes.append(Route("/metrics", endpoint(programs, gauges)))
    asgi.mount("/api/v1", api.build(programs))
    asgi.mount("/", pages)
    keyturn = Keyturn(
        settings,
        database,
        ground.policies,
        ground.fleet,
        dispatch,
        workflow,
        ground.worker,
        ground.house,
        door,
        console,
        asgi,
        ground.contacts,
        [Telling(one, database, settings.address) for one in hooks.subscriptions.values()],
    )
    return keyturn


def _state(settings: Settings, ground: Ground, beside: str) -> state_of.Condition:
    """Return what tells how the service is."""
    keys = {"Key of the log": "changelog.key", "Key of secrets": "secrets.key"}
    return state_of.Condition(
        ground.database,
        ground.house.unwitnessed,
        settings.data / f"changelog{beside}.spool",
        {about: settings.key_directory / name for about, name in keys.items()},
    )


def serve(settings: Settings) -> None:
    """Serve until interrupted. Raises AlreadyRunning, NoPolicy, StoreUnavailable and OSError."""
    redactor = Redactor(settings.secrets)
    set_up_logging(redactor, settings.log)
    place = sole_user if settings.engine == "embedded" else one_of_several
    with (
        place(settings.data) as beside,
        listening(settings.listen, settings.port) as listener,
        at_work_on(settings) as tenure,
    ):
        port = listener.getsockname()[1]
        settings = settings.model_copy(update={"port": port})
        neighbours.export_spans(settings)
        keyturn = build(settings, redactor, beside=beside or "", tenure=tenure)
        click.echo(f"Keyturn is ready: {keyturn.settings.address}")
        if keyturn.console is not None:
            click.echo(f"Chat console:     {keyturn.console.sign_in_link()}")
        run(keyturn, listener)


def run(keyturn: Keyturn, listener: socket.socket) -> None:
    """Serve what was built on a socket that listens, until interrupted."""
    config = uvicorn.Config(
        keyturn.asgi,
        log_config=None,
        log_level="warning",
        server_header=False,
        # Nothing but the console speaks over WebSockets that others open.
        ws="wsproto" if keyturn.console is not None else "none",
        timeout_graceful_shutdown=5,
    )
    heap.settle()
    with suppress(KeyboardInterrupt):
        _Server(config, keyturn.workflow).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Lets nothing begin from the moment of the signal on, and not only once people have left."""

    def __init__(self, config: uvicorn.Config, workflow: Workflow) -> None:
        super().__init__(config)
        self._workflow = workflow

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._workflow.close()
        super().handle_exit(sig, frame)


@asynccontextmanager
async def _at_work(keyturn: Keyturn) -> AsyncGenerator[None]:
    """Take up what was left, keep the outbox and the clock going, and end in good order."""
    if keyturn.dispatch is not None:
        keyturn.worker.start(keyturn.database)
        keyturn.dispatch.start(keyturn.workflow.advance)
        await asyncio.to_thread(keyturn.workflow.recover)
    clock = _clock(keyturn)
    clock.start()
    tasks = [asyncio.create_task(lag.alarm())]
    if keyturn.slack is not None:
        keyturn.database.on_news = keyturn.slack.outbox.wake
        tasks.append(asyncio.create_task(keyturn.slack.outbox.run()))
        if keyturn.slack.sockets is not None:
            tasks.append(asyncio.create_task(keyturn.slack.sockets.run()))
    tasks += [asyncio.create_task(telling.run()) for telling in keyturn.tellings]
    try:
        yield
    finally:
        clock.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        keyturn.workflow.close()
        await _finish(keyturn)
        if keyturn.slack is not None:
            await keyturn.slack.close()
        keyturn.fleet.close()
        keyturn.database.close()


async def _finish(keyturn: Keyturn) -> None:
    """Let what is under way here come to its end."""
    if keyturn.dispatch is None:
        return
    if not await asyncio.to_thread(keyturn.dispatch.stop, _FINISH_SECONDS):
        # What still runs on hosts ends as interrupted, and its run as unknown.
        keyturn.fleet.close()
        await asyncio.to_thread(keyturn.dispatch.stop, _GIVE_UP_SECONDS)
    await asyncio.to_thread(keyturn.worker.stop, keyturn.database)


def _clock(keyturn: Keyturn) -> Clock:
    """Return what does what is due by time alone."""
    flow = keyturn.workflow
    return Clock(
        [
            flow.note_policy,
            flow.expire_due,
            flow.remind_due,
            flow.take_over,
            flow.nudge,
            keyturn.house.keep,
            keyturn.contacts.keep,
        ],
        fire=flow.schedules.fire_due,
        timetables=flow.schedules.timetables,
        # Workers look after what goes on at their sites.
        aside=[flow.follow_up] if keyturn.dispatch else [],
    )


def listening(address: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises OSError, which says what to do."""
    try:
        listener = socket.create_server((address, port))
    except OSError as trouble:
        raise OSError(
            f"cannot listen on {address}:{port}: {trouble.strerror}. "
            "If another program holds the port, set KEYTURN_PORT to a free one"
        ) from None
    # asyncio does this to sockets that it opened itself, and what is accepted here inherits it:
    # without, the body of each answer waits 40 ms for the acknowledgement of its headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _console(settings: Settings, policy: Policy) -> "tuple[str, Console]":
    """Return the people of the policy in a workspace that the bot cannot tell from Slack."""
    from bot.console.console import Console
    from bot.console.deliveries import to_url
    from bot.console.directory import (
        ConsoleChannel,
        ConsoleCommand,
        ConsolePerson,
        ConsoleShortcut,
        Installation,
    )
    from bot.slack.aliases import ALIASES, COMMAND
    from bot.slack.checkup import wanted_scopes
    from bot.slack.form import ABOUT_HOST, ABOUT_HOST_NAME

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
    secret = secrets.token_hex(32)
    address = f"http://{settings.listen}:{settings.port}"
    hint = "abusers show lb1, or help"
    console = Console(
        people=people,
        channels=[ConsoleChannel(_CHANNEL, "production", "What is asked, approved and done")],
        signing_secret=secret,
        deliver=to_url(f"{address}/slack/events") if settings.console == "http" else None,
        installation=Installation(
            team_id=team,
            scopes=tuple(wanted_scopes()),
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
    return secret, console


def _slack(
    settings: Settings, console: "Console | None", secret: str
) -> "tuple[Client, Installation] | None":
    """Return how to speak to Slack, or to the console as if it were Slack; None without both."""
    token = settings.slack_bot_token.get_secret_value()
    if console is None and not token:
        return None
    from bot.slack.door import Installation, client

    if console is not None:
        team = console.workspace.app.team_id
        speaker = client(console.bot_token, console.api_url)
        app_token = console.app_token if settings.console == "socket" else ""
        return speaker, Installation(secret, team, settings.address, _CHANNEL, app_token=app_token)
    return client(token, settings.slack_api), Installation(
        settings.slack_signing_secret.get_secret_value(),
        settings.slack_team,
        settings.address,
        settings.slack_channel,
        settings.slack_alarm_channel,
        settings.slack_app_token.get_secret_value(),
    )


def _door(ground: Ground, speaker: "Client", to: "Installation", offering: Offering) -> "Door":
    from bot.slack.door import Door

    return Door(ground.workflow, ground.database, ground.admitted, speaker, to, offering)


def _condition(door: "Door") -> Condition:
    """Say how Slack reaches us, without anything that is not for strangers."""
    if door.sockets is None:
        return Condition("is listened to over HTTP")
    seen = door.sockets.standing
    words = f"{seen.up} of {seen.wanted} connections stand"
    return Condition(f"{words}: {seen.trouble}" if seen.trouble else words, seen.refused)
