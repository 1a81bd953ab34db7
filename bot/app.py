"""Builds every part once and hands each what it needs. Nothing else constructs anything."""

import asyncio
import errno
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
from starlette.types import ASGIApp

from bot import heap, lag, neighbours
from bot.api import hooks as incoming
from bot.api.hooks import Incoming
from bot.api.metrics import Gauges, endpoint
from bot.api.parts import ApiParts
from bot.api.telling import CLAIM_SECONDS, Telling
from bot.connections import Connection, Connections, Limits, Timed, raise_descriptor_limit
from bot.custody import condition as state_of
from bot.custody.contacts import Contacts
from bot.custody.discretion import set_up_logging
from bot.custody.housekeeping import Housekeeping
from bot.dispatch import InProcess
from bot.dispatch.procrastinated import Procrastinated
from bot.ground import Elsewhere, Ground, at_work_on, lay, one_of_several
from bot.inventory.enrolling import enrolling
from bot.later import Later
from bot.offering import Offering
from bot.policy import PolicyDirectory
from bot.redaction import Redactor
from bot.schedule.clock import Clock
from bot.settings import Settings
from bot.store import deliveries, homes, news
from bot.store.database import Database, sole_user
from bot.store.tenure import Tenure
from bot.trail import Trail
from bot.web import door as web
from bot.web.parts import Condition, WebParts
from bot.workflow import Workflow
from bot.workflow.worker import Worker
from connectors.fleet import Fleet
from runbooks import own_digests

if TYPE_CHECKING:
    from bot.chat import Chat

# A step that is under way when the service ends may take so long, and what is cut off then.
_FINISH_SECONDS, _GIVE_UP_SECONDS = 15.0, 4.0


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
    chat: "Chat | None"
    asgi: Starlette
    contacts: Contacts
    api: Later
    connections: Connections
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
    ground.house.note_own_runbooks(own_digests())
    database, workflow, admitted = ground.database, ground.workflow, ground.admitted
    secure = urlsplit(settings.address).scheme == "https"
    offering = Offering(ground.fleet, database, admitted)
    chat = _chat(settings, ground, offering)
    conditions: dict[str, Callable[[], Condition]] = {}
    if chat is not None:
        conditions["slack"] = chat.condition
    conditions["ssh"] = lambda: neighbours.reached(len(ground.reach.cut_lately()))
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
    if chat is not None:
        asgi.router.routes.append(Route("/slack/events", chat.events))
    asgi.mount("/hooks", incoming.build(Incoming(hooks, database, admitted), secure=secure))
    programs = ApiParts(
        workflow,
        database,
        admitted,
        settings.address,
        findings=_state(settings, ground, beside).findings,
        offering=offering,
    )
    connections = Connections(Limits.of_process(settings.proxy_networks))
    gauges = Gauges(
        lambda: ground.reach.open,
        ground.house.unwitnessed,
        lambda: connections.open,
        connections.cut.copy,
        lambda: ground.reach.cuts,
    )
    asgi.router.routes.append(Route("/metrics", endpoint(programs, gauges)))
    api = Later(partial(_api, programs))
    asgi.mount("/api/v1", api)
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
        chat,
        asgi,
        ground.contacts,
        api,
        connections,
        [Telling(one, database, settings.address) for one in hooks.subscriptions.values()],
    )
    return keyturn


def _chat(settings: Settings, ground: Ground, offering: Offering) -> "Chat | None":
    if not settings.slack_bot_token.get_secret_value():
        return None
    # Chat is loaded where there is chat: its libraries take a quarter of a second, and 16 MiB.
    from bot.chat import Chat

    return Chat(settings, ground, offering)


def _api(programs: ApiParts) -> ASGIApp:
    # Its hundred shapes and routes take a sixth of the time in which all is loaded.
    from bot.api.door import build

    return build(programs)


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
    """Serve until interrupted. Raises AlreadyRunning, NoPolicy, StoreUnavailable and OSError.

    Incomplete, where a part could not be made, is an OSError.
    """
    redactor = Redactor(settings.secrets)
    set_up_logging(redactor, settings.log)
    raise_descriptor_limit()
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
        if keyturn.chat is None and not settings.oidc_client_id:
            click.echo("To sign in:       keyturn sign-in PERSON prints a link")
        run(keyturn, listener)


def run(keyturn: Keyturn, listener: socket.socket) -> None:
    """Serve what was built on a socket that listens, until interrupted. Raises Incomplete."""
    heap.hold()
    server = _Server(server_config(keyturn), keyturn.workflow)
    for part in (keyturn.api, *((keyturn.chat.events,) if keyturn.chat else ())):
        part.then, part.instead = heap.settle, server.give_up
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    if server.trouble is not None:
        trouble = f"{type(server.trouble).__name__}: {server.trouble}"
        raise Incomplete(
            f"a part of the service cannot be made, so all of it has ended: {trouble}. What it is "
            "made of may be damaged: install this version anew"
        ) from server.trouble


def server_config(keyturn: Keyturn) -> uvicorn.Config:
    """Return how uvicorn serves what was built."""

    class Served(Connection):
        everyone = keyturn.connections

    return uvicorn.Config(
        Timed(keyturn.asgi),
        http=Served,
        backlog=keyturn.connections.limits.backlog,
        log_config=None,
        log_level="warning",
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=5,
    )


class Incomplete(OSError):
    """A part of the service could not be made, once the port answered."""


class _Server(uvicorn.Server):
    """Lets nothing begin from the moment of the signal on, and not only once people have left.

    trouble: why it gave up by itself.
    """

    def __init__(self, config: uvicorn.Config, workflow: Workflow) -> None:
        super().__init__(config)
        self._workflow = workflow
        self.trouble: Exception | None = None

    def give_up(self, trouble: Exception) -> None:
        """End in good order, as if asked to, and keep why."""
        self._workflow.close()
        self.trouble = trouble
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._workflow.close()
        super().handle_exit(sig, frame)


@asynccontextmanager
async def _at_work(keyturn: Keyturn) -> AsyncGenerator[None]:
    """Take up what was left, keep the outbox and the clock going, and end in good order."""
    if keyturn.dispatch is not None:
        await asyncio.to_thread(_release_senders, keyturn.database)
        keyturn.worker.start(keyturn.database)
        keyturn.dispatch.start(keyturn.workflow.advance)
        await asyncio.to_thread(keyturn.workflow.recover)
    clock = _clock(keyturn)
    clock.start()
    tasks = [asyncio.create_task(lag.alarm())]
    if keyturn.chat is not None:
        tasks.append(asyncio.create_task(keyturn.chat.run()))
    tasks.append(asyncio.create_task(keyturn.api.prepare()))
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
        if keyturn.chat is not None:
            await keyturn.chat.close()
        keyturn.fleet.close()
        await asyncio.to_thread(keyturn.house.end)
        keyturn.database.close()


def _release_senders(database: Database) -> None:
    """Tell at once what one that died had begun to tell: nobody else works on this database."""
    with database.transaction() as tx:
        news.release_all(tx)
        homes.release_all(tx)
        deliveries.release_all(tx, seconds=CLAIM_SECONDS)


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
            flow.end_outdated,
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


_TO_LISTEN = {
    errno.EADDRINUSE: "Another program holds the port: set KEYTURN_PORT to a free one",
    errno.EACCES: "Ports below 1024 are root's: set KEYTURN_PORT to a higher one",
    errno.EADDRNOTAVAIL: "This machine has no such address: set KEYTURN_LISTEN to one that it has",
}


def listening(address: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises OSError, which says what to do."""
    try:
        listener = socket.create_server((address, port))
    except OSError as trouble:
        # What `strerror` says besides is the address once more.
        why = trouble.strerror.partition(" (")[0] if trouble.strerror else str(trouble)
        todo = _TO_LISTEN.get(trouble.errno or 0, "KEYTURN_LISTEN and KEYTURN_PORT say where")
        raise OSError(f"cannot listen on {address}:{port}: {why}. {todo}") from None
    # asyncio does this to sockets that it opened itself, and what is accepted here inherits it:
    # without, the body of each answer waits 40 ms for the acknowledgement of its headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
