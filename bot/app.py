"""Build every part of the service once and hand each what it needs; build what workers share."""

import asyncio
import errno
import logging
import os
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Protocol
from urllib.parse import urlsplit

import click
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from bot import health as state_of
from bot import observability
from bot.api import app as api
from bot.api import webhooks_in as incoming
from bot.api.deps import ApiParts
from bot.api.metrics import Gauges, endpoint
from bot.api.webhooks_in import Incoming
from bot.api.webhooks_out import CLAIM_SECONDS, WebhookSender, describe_deliveries
from bot.audit import checkpoints, followed_log, verification
from bot.audit.spool import Spool
from bot.audit.syslog import LogServer
from bot.auth import secret_box
from bot.db import data_directory, home_queue, migrations, outbox, roles
from bot.db.database import AlreadyRunning, Database, StoreUnavailable, lock_data_directory
from bot.db.lease_keeper import LeaseKeeper
from bot.db.process_lock import ProcessLock, lock_exclusive, lock_shared
from bot.execution.local_dispatch import LocalDispatcher
from bot.execution.procrastinate_dispatch import ProcrastinateDispatcher
from bot.execution.scheduler import Scheduler
from bot.hosts.pending_hosts import list_pending_host_summaries
from bot.hosts.reachability import ContactRecorder
from bot.maintenance.housekeeping import Housekeeping, Witness, log_setting_change
from bot.model import signing
from bot.model.keyfile import KeyFileError
from bot.model.redaction import Redactor
from bot.observability import TraceMiddleware, list_login_secrets, set_up_logging
from bot.policy import Policy, PolicyDirectory
from bot.service import Workflow
from bot.settings import Settings
from bot.web import app as web
from bot.web.connections import (
    Connection,
    ConnectionLimits,
    ConnectionRegistry,
    RequestTimeMiddleware,
    raise_descriptor_limit,
)
from bot.web.deps import ComponentHealth, WebDependencies
from bot.web.id_token import SLACK_ISSUER
from bot.web.provider import ClientRegistration, IdentityProvider
from bot.webhooks import config, webhook_queue
from bot.webhooks.config import WebhookConfig
from bot.workflow.bans import PolicyWithoutBanned
from bot.workflow.context import WorkflowContext
from bot.workflow.dispatch import Dispatcher
from bot.workflow.form_options import FormOptions
from bot.workflow.rate_limit import RateLimits
from connectors.command import NO_HOOKS, Answer, QueryCommand, RunHooks
from connectors.errors import UnreachableError
from connectors.fleet import CommandRunner, Fleet
from connectors.inventory import Host, Inventory
from connectors.permissions import list_trusted_owners
from connectors.ssh_pool import DroppedConnection, SshPool
from runbooks import list_own_digests

log = logging.getLogger(__name__)

SEAL, SAFE = "changelog.key", "secrets.key"
_HOUR = 3600 * 1_000_000
# Commands on one host at once, more than there are threads for what only reads; sshd takes 10.
_PER_HOST = 8
# Processes of one machine that share a data directory.
_MOST_BESIDE = 64


class Reach(CommandRunner, Protocol):
    """Reaches hosts, or not; see connectors.fleet.

    open_count: connections that stand. drop_count: those that Keyturn closed on hosts that flooded
    it.
    """

    drop_count: int

    @property
    def open_count(self) -> int: ...

    def list_recent_drops(self) -> Sequence[DroppedConnection]: ...


class Elsewhere:
    """Stands where the connections would: the workers of each site reach its hosts."""

    open_count = 0
    drop_count = 0

    def list_recent_drops(self) -> Sequence[DroppedConnection]:
        return ()

    def run(
        self,
        host: Host,
        command: QueryCommand,  # noqa: ARG002 - no command is sent from here
        /,
        *,
        through: tuple[Host, ...] = (),  # noqa: ARG002
        hooks: RunHooks = NO_HOOKS,  # noqa: ARG002
    ) -> Answer:
        raise UnreachableError(
            f"{host.name} is reached by the workers of its site, and not from here"
        )

    def close(self) -> None:
        """There is nothing to close."""


@dataclass(frozen=True)
class Foundation:
    """What was laid. admitted: the policy without whoever is shut out."""

    settings: Settings
    database: Database
    policies: PolicyDirectory
    admitted: PolicyWithoutBanned
    fleet: Fleet
    reach: Reach
    workflow: Workflow
    worker: LeaseKeeper
    house: Housekeeping
    contacts: ContactRecorder


def build_foundation(
    settings: Settings,
    dispatch: Dispatcher,
    redactor: Redactor,
    *,
    reach: Reach | None = None,
    sites: frozenset[str] | None = None,
    beside: str = "",
    tenure: ProcessLock | None = None,
) -> Foundation:
    """Open what is there and put it together. Raises NoPolicy, StoreUnavailable and BadKey.

    reach: how hosts are reached, other than from here. sites: whose hosts this process cares for;
    left out, all. beside: tells its files from those of others in the same data directory.
    tenure: without it nothing is written, once the database has been away.
    """
    data_directory.make_data_directory(settings.data)
    key = signing.load_signing_key(_key(settings, SEAL))
    database = Database(settings.database_url, key, redactor)
    if tenure is not None:
        database.may_write, tenure.on_return = tenure.check, partial(_same_log, database)
    secrets_safe = secret_box.load_secret_box(_key(settings, SAFE))
    _schema(settings, database)
    strong = roles.find_excess_rights(database)
    if strong:
        told = ", ".join(strong)
        log.warning("our role in the database %s: keyturn db grants prints what it needs", told)
    with database.transaction() as tx:
        # Of several that begin at once, one writes them and the others read them. The key comes
        # before all else: whatever stops us from here on, commands write into this log, too.
        verification.open_log(tx)
        secret_box.check_secret_key(tx, secrets_safe)
    with database.transaction() as tx:
        # From its first entry on: what is decided later needs all that is open.
        followed_log.follow_log(tx)
        point = (
            checkpoints.read_newest_checkpoint(settings.witness)
            if settings.witness is not None
            else None
        )
        if point is not None:
            verification.check_witness(tx, point)
    reach = reach or SshPool(settings.policy, per_host=_PER_HOST)
    fleet = Fleet(Inventory(hosts={}), reach)
    contacts = ContactRecorder(database)
    fleet.on_contact = contacts.record_contact

    def renew(policy: Policy) -> None:
        fleet.inventory = policy.inventory
        redactor.add_secrets(*list_login_secrets(policy.inventory, settings.policy))

    policies = PolicyDirectory(settings.policy, on_load=renew, owners=list_trusted_owners())
    policies.get_policy()
    spool = Spool(settings.data / f"changelog{beside}.spool")
    house = Housekeeping(database, spool=spool, witnesses=_witnesses(settings))
    admitted, worker = PolicyWithoutBanned(policies, database), LeaseKeeper()
    parts = WorkflowContext(
        database,
        admitted,
        fleet,
        dispatch,
        spool=spool,
        secret_box=secrets_safe,
        approval_timeout=round(settings.request_hours * _HOUR),
        start_timeout=round(settings.approval_hours * _HOUR),
        reminder_delay=round(settings.reminder_minutes * _HOUR / 60),
        lease_keeper=worker,
        sites=sites,
        rate_limits=RateLimits.from_person_limit(settings.requests_a_minute),
    )
    workflow = Workflow(parts)
    return Foundation(
        settings, database, policies, admitted, fleet, reach, workflow, worker, house, contacts
    )


@contextmanager
def lock_database(settings: Settings) -> Generator[ProcessLock | None]:
    """Hold the database as the engine wants it, from before anything is read or written there.

    A process that others have taken it from ends as if it were asked to, and raises
    StoreUnavailable then: whoever looks after it is to see that nobody did ask.
    """
    database = Database(settings.database_url)
    try:
        with (lock_exclusive if settings.engine == "embedded" else lock_shared)(
            database
        ) as tenure:
            if tenure is not None:
                tenure.on_end = partial(os.kill, os.getpid(), signal.SIGTERM)
            yield tenure
            if tenure is not None and tenure.over:
                raise StoreUnavailable(tenure.over)
    finally:
        database.close()


def _same_log(database: Database) -> None:
    """See that nobody has changed the key of the log while we were out. Raises BadKey."""
    with database.transaction() as tx:
        verification.check_signing_key(tx, tx.seal)


@contextmanager
def lock_shared_directory(directory: Path) -> Generator[str]:
    """Yield what tells our files in a data directory from those of other processes there.

    What one that died has left is found by the next that begins.
    """
    data_directory.make_data_directory(directory)
    for n in range(1, _MOST_BESIDE + 1):
        try:
            with lock_data_directory(directory / f"process-{n}"):
                yield f"-{n}"
                return
        except AlreadyRunning:
            continue
    raise AlreadyRunning(
        f"{_MOST_BESIDE} processes work on {directory} already: give this one a directory of its "
        "own (KEYTURN_DATA)"
    )


def _key(settings: Settings, name: str) -> Path:
    """Return the file of a key. Raises BadKey where it would be made for this process alone."""
    file = settings.key_directory / name
    if settings.engine == "distributed" and not file.exists():
        raise KeyFileError(
            f"{file} is missing, and all processes need the same one: keyturn db upgrade makes "
            "it, once. Put both keys at every process, in the directory KEYTURN_KEYS"
        )
    return file


def _schema(settings: Settings, database: Database) -> None:
    if settings.engine == "embedded":
        migrations.upgrade_schema(database)
    elif not migrations.is_schema_current(database):
        raise StoreUnavailable(
            "the database has another schema than this version works with: run keyturn db upgrade "
            "first, once for all processes"
        )


def _witnesses(settings: Settings) -> list[Witness]:
    """Return what is told how far the change log is, besides chat and the hosts themselves."""
    found: list[Callable[..., None]] = []
    if settings.witness is not None:
        found.append(partial(checkpoints.write_checkpoint, settings.witness))
    if settings.syslog:
        found.append(LogServer.parse_address(settings.syslog).send_checkpoint)
    return found


def build_oidc_provider(settings: Settings) -> IdentityProvider | None:
    """Return whom people can prove to who they are, if there is somebody."""
    if not settings.oidc_client_id:
        return None
    issuer = settings.oidc_issuer
    claims = settings.oidc_claims or ("slack" if issuer == SLACK_ISSUER else "subject")
    endpoints = {
        "authorization_endpoint": settings.oidc_authorization,
        "token_endpoint": settings.oidc_token,
        "jwks_uri": settings.oidc_keys,
    }
    usual = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    return IdentityProvider(
        ClientRegistration(
            issuer,
            settings.oidc_client_id,
            settings.oidc_client_secret.get_secret_value(),
            settings.oidc_name,
            is_slack=claims == "slack",
            discovery_url=settings.oidc_discovery or usual,
            endpoints={name: address for name, address in endpoints.items() if address},
        )
    )


def load_webhooks(settings: Settings, database: Database, redactor: Redactor) -> WebhookConfig:
    """Return the hooks that are set, and note which they are. Raises BadHooks."""
    found = config.load_webhook_config(settings.hooks)
    redactor.add_secrets(*found.secrets)
    if settings.hooks is not None:
        with database.transaction() as tx:
            log_setting_change(
                tx, config.CONFIG_ENTRY_KIND, webhooks=config.render_webhook_config(found)
            )
    return found


def reached(cut: int) -> ComponentHealth:
    """Say how hosts behave. cut: connections that we hung up on in the last minutes.

    Which hosts they lead to is not for strangers, and one bad host is no reason to serve nobody.
    """
    if not cut:
        return ComponentHealth("no host floods us")
    many = "1 connection was" if cut == 1 else f"{cut} connections were"
    return ComponentHealth(
        f"{many} cut lately, since hosts flooded us: the service's log says which"
    )


def check_webhooks(database: Database) -> ComponentHealth:
    """Say how many could not be told of what happened: a warning, for everything else works."""
    return ComponentHealth(describe_deliveries(database))


def export_spans(settings: Settings) -> None:
    """Have spans sent to the collector that the environment names. Raises NotInstalled."""
    from bot import observability

    if observability.is_tracing_configured():
        observability.set_tracer(observability.OtlpTracer(settings.address))


# Without any connection for so long, Keyturn is not ready: nothing from Slack arrives.
_DEAF_SECONDS = 30.0


class Chat:
    """Slack as a source of requests: its door, and how the service keeps it going."""

    def __init__(self, settings: Settings, ground: Foundation, offering: FormOptions) -> None:
        # Imported only where Slack is configured: its libraries take 0.3 s and 16 MiB.
        from bot.slack import app

        speaker = app.create_client(
            settings.slack_bot_token.get_secret_value(), settings.slack_api
        )
        there = app.SlackSettings(
            settings.slack_signing_secret.get_secret_value(),
            settings.slack_team,
            settings.address,
            settings.slack_channel,
            settings.slack_alarm_channel,
            settings.slack_app_token.get_secret_value(),
        )
        self.door = app.SlackService(
            ground.workflow, ground.database, ground.admitted, speaker, there, offering
        )
        ground.database.on_news = self.door.outbox.wake_up

    async def run(self) -> None:
        """Send the outbox, and receive by Socket Mode where it is used, until cancelled."""
        sockets = (
            () if self.door.socket_mode is None else (self.door.socket_mode.run_until_cancelled(),)
        )
        await asyncio.gather(self.door.outbox.run_until_cancelled(), *sockets)

    async def close(self) -> None:
        """Close the connections to Slack."""
        await self.door.close_listeners()

    def condition(self) -> ComponentHealth:
        """Return whether Slack reaches us, in words that strangers may read."""
        if self.door.socket_mode is None:
            return ComponentHealth("is listened to over HTTP")
        seen = self.door.socket_mode.status
        words = f"{seen.open_connections} of {seen.wanted_connections} connections stand"
        broken = seen.is_token_refused or seen.seconds_down > _DEAF_SECONDS
        return ComponentHealth(f"{words}: {seen.error}" if seen.error else words, broken)


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
    dispatch: LocalDispatcher | None
    workflow: Workflow
    worker: LeaseKeeper
    house: Housekeeping
    chat: Chat | None
    asgi: Starlette
    contacts: ContactRecorder
    connections: ConnectionRegistry
    tellings: Sequence[WebhookSender] = ()


def build(
    settings: Settings,
    redactor: Redactor | None = None,
    *,
    beside: str = "",
    tenure: ProcessLock | None = None,
) -> Keyturn:
    """Put the parts together. Raises NoPolicy, StoreUnavailable and BadKey.

    beside, tenure: as in build_foundation().
    """
    redactor = redactor or Redactor(settings.secrets)
    dispatch = LocalDispatcher() if settings.engine == "embedded" else None
    ground = build_foundation(
        settings,
        dispatch or ProcrastinateDispatcher(),
        redactor,
        reach=None if dispatch else Elsewhere(),
        beside=beside,
        tenure=tenure,
    )
    ground.house.open(settings.shown)
    ground.house.note_own_runbooks(list_own_digests())
    database, workflow, admitted = ground.database, ground.workflow, ground.admitted
    secure = urlsplit(settings.address).scheme == "https"
    offering = FormOptions(ground.fleet, database, admitted)
    slack = settings.slack_bot_token.get_secret_value()
    chat = Chat(settings, ground, offering) if slack else None
    conditions: dict[str, Callable[[], ComponentHealth]] = {}
    if chat is not None:
        conditions["slack"] = chat.condition
    conditions["ssh"] = lambda: reached(len(ground.reach.list_recent_drops()))
    hooks = load_webhooks(settings, database, redactor)
    if hooks.subscriptions:
        conditions["subscriptions"] = partial(check_webhooks, database)
    pages = web.build_app(
        WebDependencies(
            workflow,
            database,
            admitted,
            settings.address,
            secure,
            conditions,
            list_enrolling_hosts=partial(list_pending_host_summaries, settings.policy),
            form_options=offering,
            list_check_results=_state(settings, ground, beside).findings,
            identity_provider=build_oidc_provider(settings),
        )
    )
    asgi = Starlette(
        middleware=[Middleware(TraceMiddleware)], lifespan=lambda _: _at_work(keyturn)
    )
    if chat is not None:
        asgi.router.routes.append(Route("/slack/events", chat.door.app))
    asgi.mount("/hooks", incoming.build(Incoming(hooks, database, admitted), secure=secure))
    programs = ApiParts(
        workflow,
        database,
        admitted,
        settings.address,
        findings=_state(settings, ground, beside).findings,
        offering=offering,
    )
    connections = ConnectionRegistry(ConnectionLimits.create_for_process(settings.proxy_networks))
    gauges = Gauges(
        lambda: ground.reach.open_count,
        ground.house.unwitnessed,
        lambda: connections.open_count,
        connections.closed_by_reason.copy,
        lambda: ground.reach.drop_count,
    )
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
        chat,
        asgi,
        ground.contacts,
        connections,
        [WebhookSender(one, database, settings.address) for one in hooks.subscriptions.values()],
    )
    return keyturn


def _state(settings: Settings, ground: Foundation, beside: str) -> state_of.ServiceHealth:
    """Return what tells how the service is."""
    keys = {"Key of the log": "changelog.key", "Key of secrets": "secrets.key"}
    return state_of.ServiceHealth(
        ground.database,
        ground.house.unwitnessed,
        settings.data / f"changelog{beside}.spool",
        {about: settings.key_directory / name for about, name in keys.items()},
    )


def serve(settings: Settings) -> None:
    """Serve until interrupted. Raises AlreadyRunning, NoPolicy, StoreUnavailable and OSError."""
    redactor = Redactor(settings.secrets)
    set_up_logging(redactor, settings.log)
    raise_descriptor_limit()
    place = lock_data_directory if settings.engine == "embedded" else lock_shared_directory
    with (
        place(settings.data) as beside,
        listening(settings.listen, settings.port) as listener,
        lock_database(settings) as tenure,
    ):
        port = listener.getsockname()[1]
        settings = settings.model_copy(update={"port": port})
        export_spans(settings)
        keyturn = build(settings, redactor, beside=beside or "", tenure=tenure)
        click.echo(f"Keyturn is ready: {keyturn.settings.address}")
        if keyturn.chat is None and not settings.oidc_client_id:
            click.echo("To sign in:       keyturn sign-in PERSON prints a link")
        run(keyturn, listener)


def run(keyturn: Keyturn, listener: socket.socket) -> None:
    """Serve what was built on a socket that listens, until interrupted."""
    server = _Server(server_config(keyturn), keyturn.workflow)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def server_config(keyturn: Keyturn) -> uvicorn.Config:
    """Return how uvicorn serves what was built."""

    class Served(Connection):
        registry = keyturn.connections

    return uvicorn.Config(
        RequestTimeMiddleware(keyturn.asgi),
        http=Served,
        backlog=keyturn.connections.limits.backlog,
        log_config=None,
        log_level="warning",
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=5,
    )


class _Server(uvicorn.Server):
    """Stops the start of new runs and steps at the signal itself, before connections close."""

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
        await asyncio.to_thread(_release_senders, keyturn.database)
        keyturn.worker.start_heartbeat(keyturn.database)
        keyturn.dispatch.start(keyturn.workflow.advance_run)
        await asyncio.to_thread(keyturn.workflow.recover_unfinished_runs)
    clock = _clock(keyturn)
    clock.start()
    tasks = [asyncio.create_task(observability.warn_when_loop_blocks())]
    if keyturn.chat is not None:
        tasks.append(asyncio.create_task(keyturn.chat.run()))
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
        outbox.release_all(tx)
        home_queue.release_all(tx)
        webhook_queue.release_all(tx, seconds=CLAIM_SECONDS)


async def _finish(keyturn: Keyturn) -> None:
    """Let what is under way here come to its end."""
    if keyturn.dispatch is None:
        return
    if not await asyncio.to_thread(keyturn.dispatch.stop, _FINISH_SECONDS):
        # What still runs on hosts ends as interrupted, and its run as unknown.
        keyturn.fleet.close()
        await asyncio.to_thread(keyturn.dispatch.stop, _GIVE_UP_SECONDS)
    await asyncio.to_thread(keyturn.worker.end_leases, keyturn.database)


def _clock(keyturn: Keyturn) -> Scheduler:
    """Return what does what is due by time alone."""
    flow = keyturn.workflow
    return Scheduler(
        [
            flow.record_policy_change,
            flow.end_outdated_plans,
            flow.expire_runs,
            flow.remind_approvers,
            flow.recover_expired_leases,
            flow.wake_stalled_runs,
            keyturn.house.keep,
            keyturn.contacts.write_contacts,
        ],
        fire_due_schedules=flow.fire_due_schedules,
        list_timetables=flow.schedules.list_timetables,
        # Workers look after what goes on at their sites.
        slow_duties=[flow.run_due_follow_ups] if keyturn.dispatch else [],
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
