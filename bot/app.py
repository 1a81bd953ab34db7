"""Build the service from its parts, and the foundation that server and workers share."""

import asyncio
import errno
import logging
import os
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
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

from bot import features, observability
from bot.api.app import build_api
from bot.api.deps import ApiParts
from bot.api.metrics import Gauges, build_metrics_endpoint
from bot.audit import followed_log, verification
from bot.audit.spool import Spool
from bot.auth import secret_box
from bot.db import data_directory, home_queue, migrations, outbox, roles
from bot.db.database import AlreadyRunning, Database, StoreUnavailable, lock_data_directory
from bot.db.host_contacts import ContactRecorder
from bot.db.lease_keeper import LeaseKeeper
from bot.db.process_lock import ProcessLock, lock_exclusive, lock_shared
from bot.execution.local_dispatch import LocalDispatcher
from bot.execution.procrastinate_dispatch import ProcrastinateDispatcher
from bot.execution.scheduler import Scheduler
from bot.feature import ServerContext, ServerPart
from bot.health import (
    ServiceHealth,
    check_signing_keys,
    check_signing_page,
    check_witness_count,
)
from bot.hosts.pending_hosts import list_pending_host_summaries
from bot.integrations import webhook_queue, witness_file
from bot.integrations.delivery_sender import CLAIM_SECONDS
from bot.integrations.syslog import LogServer
from bot.integrations.witnesses import Witnesses
from bot.maintenance.background_verification import BackgroundVerification
from bot.maintenance.housekeeping import Housekeeping, Witness
from bot.maintenance.upgrade import upgrade_database
from bot.model import signing
from bot.model.keyfile import KeyFileError
from bot.model.redaction import Redactor
from bot.model.verifier_keys import parse_witnesses
from bot.observability import TraceMiddleware, list_login_secrets, set_up_logging
from bot.policy import Policy, PolicyDirectory
from bot.queries import own_runbooks
from bot.queries.banned_people import PolicyWithoutBanned
from bot.queries.form_options import FormOptions
from bot.queries.policy_facts import PolicyWithFacts
from bot.service import KeyturnService
from bot.settings import Settings
from bot.signing.page import hash_signing_page
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
from bot.workflow.context import Dispatcher, WorkflowContext
from bot.workflow.rate_limit import RateLimits
from connectors.command import NO_HOOKS, Answer, QueryCommand, RunHooks
from connectors.errors import UnreachableError
from connectors.fleet import CommandRunner, Fleet
from connectors.inventory import Host, Inventory
from connectors.permissions import list_trusted_owners
from connectors.ssh_pool import DroppedConnection, SshPool
from runbooks import list_own_digests, list_pending_words, set_enabled_source

log = logging.getLogger(__name__)

_SIGNING_KEY_FILE, _SECRETS_KEY_FILE = "changelog.key", "secrets.key"
_HOUR = 3600 * 1_000_000
# Parallel commands on one host: more than the threads for checks; the default limit of sshd is 10.
_PER_HOST = 8
# Processes of one machine that share a data directory.
_MAX_PROCESSES = 64


class HostConnector(CommandRunner, Protocol):
    """Runs commands on hosts and counts the connections; see connectors.fleet."""

    drop_count: int
    """Connections that Keyturn closed because a host sent too much."""

    @property
    def open_count(self) -> int:
        """Open connections."""
        ...

    def list_recent_drops(self) -> Sequence[DroppedConnection]: ...


class NoHostConnector:
    """Refuses every command, for a server whose hosts are reached by workers."""

    open_count = 0
    drop_count = 0

    def list_recent_drops(self) -> Sequence[DroppedConnection]:
        return ()

    def run(
        self,
        host: Host,
        command: QueryCommand,  # noqa: ARG002 - required by the protocol
        /,
        *,
        through: tuple[Host, ...] = (),  # noqa: ARG002
        hooks: RunHooks = NO_HOOKS,  # noqa: ARG002
    ) -> Answer:
        raise UnreachableError(f"{host.name} is reached by the workers of its site, not from here")

    def close(self) -> None:
        """Do nothing: no connection is open."""


@dataclass(frozen=True)
class Foundation:
    """The parts that server and worker share."""

    settings: Settings
    database: Database
    policies: PolicyDirectory
    active_policy: PolicyWithoutBanned
    """The policy without banned people."""
    fleet: Fleet
    connector: HostConnector
    service: KeyturnService
    lease_keeper: LeaseKeeper
    housekeeping: Housekeeping
    contacts: ContactRecorder


def build_foundation(
    settings: Settings,
    dispatch: Dispatcher,
    redactor: Redactor,
    *,
    connector: HostConnector | None = None,
    sites: frozenset[str] | None = None,
    file_suffix: str = "",
    process_lock: ProcessLock | None = None,
) -> Foundation:
    """Open database, keys and policy, and build the shared parts.

    Args:
        settings: The settings of this process.
        dispatch: Starts runs.
        redactor: Removes secrets from logs and records.
        connector: Runs commands on hosts; an SSH pool of this process if omitted.
        sites: The sites whose hosts this process serves; all if omitted.
        file_suffix: Distinguishes the files of this process in a shared data directory.
        process_lock: The lock to check before writing, after the database was unavailable.

    Raises:
        NoPolicyError: The policy is not valid.
        StoreUnavailable: The database does not answer, or needs an upgrade.
        KeyFileError: A key is missing or does not match the database.
    """
    data_directory.make_data_directory(settings.data)
    key = signing.load_signing_key(_get_key_file(settings, _SIGNING_KEY_FILE))
    database = Database(settings.database_url, key, redactor)
    if process_lock is not None:
        database.may_write = process_lock.check
        process_lock.on_return = partial(_check_log_key, database)
    secrets_box = secret_box.load_secret_box(_get_key_file(settings, _SECRETS_KEY_FILE))
    _prepare_schema(settings, database)
    excess = roles.find_excess_rights(database)
    if excess:
        log.warning(
            "the database role of Keyturn %s: keyturn db grants prints the rights that it needs",
            ", ".join(excess),
        )
    with database.transaction() as tx:
        # The first process writes the log's first entries and later ones read them. The signing
        # key is recorded first, because commands write to this log even if the start fails later.
        verification.open_log(tx)
        secret_box.check_secret_key(tx, secrets_box)
    with database.transaction() as tx:
        # Read the log from its snapshot: later decisions need everything that is still open.
        followed_log.keep_snapshot(tx)
        checkpoint = (
            witness_file.read_newest_checkpoint(settings.witness)
            if settings.witness is not None
            else None
        )
        if checkpoint is not None:
            verification.check_witness(tx, checkpoint)
    # Before the policy, whose fault trees name runbooks.
    _load_own_runbooks(database)
    connector = connector or SshPool(settings.policy, per_host=_PER_HOST)
    fleet = Fleet(Inventory(hosts={}), connector)
    contacts = ContactRecorder(database)
    fleet.on_contact = contacts.record_contact

    def apply_policy(policy: Policy) -> None:
        fleet.inventory = policy.inventory
        redactor.add_secrets(*list_login_secrets(policy.inventory, settings.policy))

    policies = PolicyDirectory(settings.policy, on_load=apply_policy, owners=list_trusted_owners())
    policies.get_policy()
    spool = Spool(settings.data / f"changelog{file_suffix}.spool")
    cosigners = Witnesses(database, parse_witnesses(settings.witnesses))
    housekeeping = Housekeeping(
        database,
        spool=spool,
        witnesses=_create_witnesses(settings),
        cosigners=cosigners,
        keep_output=settings.keep_output,
    )
    hooks = features.load_hooks()
    known_policy = PolicyWithFacts(policies, database, hooks.policy_facts)
    active_policy = PolicyWithoutBanned(known_policy, database)
    lease_keeper = LeaseKeeper()
    context = WorkflowContext(
        database,
        active_policy,
        fleet,
        dispatch,
        spool=spool,
        secret_box=secrets_box,
        approval_timeout=round(settings.request_hours * _HOUR),
        start_timeout=round(settings.approval_hours * _HOUR),
        reminder_delay=round(settings.reminder_minutes * _HOUR / 60),
        lease_keeper=lease_keeper,
        sites=sites,
        rate_limits=RateLimits.from_person_limit(settings.requests_a_minute),
        installation=urlsplit(settings.address).netloc,
        witnesses=cosigners,
        hooks=hooks,
    )
    return Foundation(
        settings,
        database,
        policies,
        active_policy,
        fleet,
        connector,
        KeyturnService(context),
        lease_keeper,
        housekeeping,
        contacts,
    )


def _load_own_runbooks(database: Database) -> None:
    """Load those of the installation's own runbooks that are enabled. Raises OwnRunbookError."""

    def list_enabled(digests: Mapping[str, str]) -> Collection[str]:
        with database.transaction() as tx:
            return own_runbooks.list_enabled_modules(tx, digests)

    set_enabled_source(list_enabled)
    if pending := list_pending_words():
        log.warning(
            "not loaded, because two people have to enable them: %s: keyturn runbook enable",
            ", ".join(sorted(pending)),
        )


@contextmanager
def lock_database(settings: Settings) -> Generator[ProcessLock | None]:
    """Lock the database: exclusively for the embedded engine, else shared with other processes.

    A process that loses the lock sends itself SIGTERM and then raises StoreUnavailable, so that
    its supervisor sees an error and restarts it.
    """
    database = Database(settings.database_url)
    try:
        lock = lock_exclusive if settings.engine == "embedded" else lock_shared
        with lock(database) as process_lock:
            if process_lock is not None:
                process_lock.on_end = partial(os.kill, os.getpid(), signal.SIGTERM)
            yield process_lock
            if process_lock is not None and process_lock.over:
                raise StoreUnavailable(process_lock.over)
    finally:
        database.close()


def _check_log_key(database: Database) -> None:
    """Raise KeyFileError if the log's signing key changed while the database was unavailable."""
    with database.transaction() as tx:
        verification.check_signing_key(tx, tx.signing_key)


@contextmanager
def lock_shared_directory(directory: Path) -> Generator[str]:
    """Yield a suffix for the files of this process in a shared data directory.

    The suffix of a process that ended is given to the next one, which finds the files it left.
    """
    data_directory.make_data_directory(directory)
    for n in range(1, _MAX_PROCESSES + 1):
        try:
            with lock_data_directory(directory / f"process-{n}"):
                yield f"-{n}"
                return
        except AlreadyRunning:
            continue
    raise AlreadyRunning(
        f"{_MAX_PROCESSES} processes use {directory} already: set KEYTURN_DATA to a directory of "
        "its own for this one"
    )


def _get_key_file(settings: Settings, name: str) -> Path:
    """Return the file of a key. Raises KeyFileError if it is missing and others need the same."""
    file = settings.key_directory / name
    if settings.engine == "distributed" and not file.exists():
        raise KeyFileError(
            f"{file} is missing, and all processes need the same one. Run keyturn db upgrade once "
            "to create it, then copy both keys to the directory KEYTURN_KEYS of every process"
        )
    return file


def _prepare_schema(settings: Settings, database: Database) -> None:
    if settings.engine == "embedded":
        upgrade_database(database, settings.data)
    elif not migrations.is_schema_current(database):
        raise StoreUnavailable(
            "the schema of the database does not match this version: run keyturn db upgrade "
            "first, once for all processes"
        )


def _create_witnesses(settings: Settings) -> list[Witness]:
    """Return the functions that send checkpoints to witnesses other than chat and hosts."""
    witnesses: list[Callable[..., None]] = []
    if settings.witness is not None:
        witnesses.append(partial(witness_file.write_checkpoint, settings.witness))
    if settings.syslog:
        witnesses.append(LogServer.parse_address(settings.syslog).send_checkpoint)
    return witnesses


def build_oidc_provider(settings: Settings) -> IdentityProvider | None:
    """Return the OpenID Connect provider for sign-in; None if none is configured."""
    if not settings.oidc_client_id:
        return None
    issuer = settings.oidc_issuer
    claims = settings.oidc_claims or ("slack" if issuer == SLACK_ISSUER else "subject")
    endpoints = {
        "authorization_endpoint": settings.oidc_authorization,
        "token_endpoint": settings.oidc_token,
        "jwks_uri": settings.oidc_keys,
    }
    standard_url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    return IdentityProvider(
        ClientRegistration(
            issuer,
            settings.oidc_client_id,
            settings.oidc_client_secret.get_secret_value(),
            settings.oidc_name,
            is_slack=claims == "slack",
            discovery_url=settings.oidc_discovery or standard_url,
            endpoints={name: address for name, address in endpoints.items() if address},
        )
    )


def describe_host_connections(dropped_count: int) -> ComponentHealth:
    """Describe the connections to hosts for readiness. dropped_count: of the last minutes.

    The message names no hosts, because readiness is public. It is a warning: one bad host must
    not take the service down.
    """
    if not dropped_count:
        return ComponentHealth("no host sends too much")
    subject = "1 connection was" if dropped_count == 1 else f"{dropped_count} connections were"
    return ComponentHealth(
        f"{subject} closed recently, because hosts sent too much: see the service log"
    )


def build_verification_part(database: Database) -> ServerPart:
    """Verify in the background the entries that no start reads, and describe what was found."""
    background = BackgroundVerification(database)

    def check() -> ComponentHealth:
        if not background.problem:
            return ComponentHealth(background.describe_progress())
        # No details, because readiness is public.
        return ComponentHealth("one was altered: run keyturn changelog verify", is_broken=True)

    return ServerPart(
        duties=[background.verify_next_entries], health_checks={"old entries": check}
    )


def export_spans(settings: Settings) -> None:
    """Send spans to the collector that the environment names."""
    if observability.is_tracing_configured():
        observability.set_tracer(observability.OtlpTracer(settings.address))


# Keyturn is not ready after this time without a connection to Slack: no requests arrive.
_MAX_DISCONNECTED_SECONDS = 30.0


class Chat:
    """The Slack service with its background tasks."""

    def __init__(
        self, settings: Settings, foundation: Foundation, form_options: FormOptions
    ) -> None:
        # Imported only where Slack is configured: its libraries take 0.3 s and 16 MiB.
        from bot.slack import app

        client = app.create_client(settings.slack_bot_token.get_secret_value(), settings.slack_api)
        slack_settings = app.SlackSettings(
            settings.slack_signing_secret.get_secret_value(),
            settings.slack_team,
            settings.address,
            settings.slack_channel,
            settings.slack_alarm_channel,
            settings.slack_app_token.get_secret_value(),
        )
        self.service = app.SlackService(
            foundation.service,
            foundation.database,
            foundation.active_policy,
            client,
            slack_settings,
            form_options,
            features.load_chat(),
        )
        foundation.database.on_outbox_change = self.service.outbox.wake_up

    async def run(self) -> None:
        """Send the outbox, and receive by Socket Mode where it is used, until cancelled."""
        sockets = (
            ()
            if self.service.socket_mode is None
            else (self.service.socket_mode.run_until_cancelled(),)
        )
        parts = (part.run() for part in self.service.parts if part.run)
        await asyncio.gather(
            self.service.outbox.run_until_cancelled(),
            *parts,
            self.service.direct_notices.run_until_cancelled(),
            *sockets,
        )

    async def close(self) -> None:
        """Close the connections to Slack."""
        await self.service.close_listeners()

    def get_health(self) -> ComponentHealth:
        """Return whether requests from Slack arrive, in words that are public."""
        if self.service.socket_mode is None:
            return ComponentHealth("receives over HTTP")
        status = self.service.socket_mode.status
        message = f"{status.open_connections} of {status.wanted_connections} connections are open"
        is_broken = status.is_token_refused or status.seconds_down > _MAX_DISCONNECTED_SECONDS
        return ComponentHealth(
            f"{message}: {status.error}" if status.error else message, is_broken
        )


# How long a running step may take at shutdown, and how long its interruption may take.
_FINISH_SECONDS, _GIVE_UP_SECONDS = 15.0, 4.0


@dataclass(frozen=True)
class Keyturn:
    """The parts of a server process."""

    settings: Settings
    database: Database
    policies: PolicyDirectory
    fleet: Fleet
    dispatch: LocalDispatcher | None
    """None if workers execute the runs."""
    service: KeyturnService
    lease_keeper: LeaseKeeper
    housekeeping: Housekeeping
    chat: Chat | None
    asgi: Starlette
    """The application that the web server serves."""
    contacts: ContactRecorder
    connections: ConnectionRegistry
    parts: Sequence[ServerPart] = ()
    """Of the features."""


def build_service(
    settings: Settings,
    redactor: Redactor | None = None,
    *,
    file_suffix: str = "",
    process_lock: ProcessLock | None = None,
) -> Keyturn:
    """Build the server process. Arguments and errors are those of build_foundation()."""
    redactor = redactor or Redactor(settings.secrets)
    dispatch = LocalDispatcher() if settings.engine == "embedded" else None
    foundation = build_foundation(
        settings,
        dispatch or ProcrastinateDispatcher(),
        redactor,
        connector=None if dispatch else NoHostConnector(),
        file_suffix=file_suffix,
        process_lock=process_lock,
    )
    page = {"signing_page_sha256": hash_signing_page(settings.address)}
    foundation.housekeeping.start(settings.shown | page)
    foundation.housekeeping.log_own_runbooks(list_own_digests())
    database, service = foundation.database, foundation.service
    active_policy = foundation.active_policy
    is_https = urlsplit(settings.address).scheme == "https"
    form_options = FormOptions(foundation.fleet.run_query, database, active_policy)
    has_slack = bool(settings.slack_bot_token.get_secret_value())
    chat = Chat(settings, foundation, form_options) if has_slack else None
    health_checks: dict[str, Callable[[], ComponentHealth]] = {}
    if chat is not None:
        health_checks["slack"] = chat.get_health
    health_checks["ssh"] = lambda: describe_host_connections(
        len(foundation.connector.list_recent_drops())
    )
    feature_context = ServerContext(
        settings,
        database,
        active_policy,
        service,
        redactor,
        features.load_digest(),
        features.load_ends(),
    )
    parts = [
        build_verification_part(database),
        *features.build_server_parts(feature_context),
    ]
    for part in parts:
        health_checks |= part.health_checks
    service_health = _create_service_health(settings, foundation, file_suffix)
    pages = web.build_app(
        WebDependencies(
            service,
            database,
            active_policy,
            settings.address,
            is_https,
            health_checks,
            list_enrolling_hosts=partial(list_pending_host_summaries, settings.policy),
            form_options=form_options,
            list_check_results=service_health.list_results,
            pages=features.load_pages(),
            signing_page=settings.signing_page or "/sign",
            identity_provider=build_oidc_provider(settings),
            has_slack=has_slack,
        )
    )
    asgi = Starlette(
        middleware=[Middleware(TraceMiddleware)], lifespan=lambda _: _run_lifespan(keyturn)
    )
    if chat is not None:
        asgi.router.routes.append(Route("/slack/events", chat.service.app))
    asgi.router.routes += [route for part in parts for route in part.routes]
    api_parts = ApiParts(
        service,
        database,
        active_policy,
        settings.address,
        run_health_checks=service_health.list_results,
        form_options=form_options,
        routers=features.load_routes(),
        metrics=features.load_metrics(),
    )
    connections = ConnectionRegistry(ConnectionLimits.create_for_process(settings.proxy_networks))
    gauges = Gauges(
        lambda: foundation.connector.open_count,
        foundation.housekeeping.count_unwitnessed_entries,
        lambda: connections.open_count,
        connections.closed_by_reason.copy,
        lambda: foundation.connector.drop_count,
        foundation.housekeeping.list_witness_states,
    )
    asgi.router.routes.append(Route("/metrics", build_metrics_endpoint(api_parts, gauges)))
    asgi.mount("/api/v1", build_api(api_parts))
    asgi.mount("/", pages)
    keyturn = Keyturn(
        settings,
        database,
        foundation.policies,
        foundation.fleet,
        dispatch,
        service,
        foundation.lease_keeper,
        foundation.housekeeping,
        chat,
        asgi,
        foundation.contacts,
        connections,
        parts=parts,
    )
    return keyturn


def _create_service_health(
    settings: Settings, foundation: Foundation, file_suffix: str
) -> ServiceHealth:
    keys = {"Signing key": _SIGNING_KEY_FILE, "Secrets key": _SECRETS_KEY_FILE}
    return ServiceHealth(
        foundation.database,
        foundation.housekeeping.count_unwitnessed_entries,
        settings.data / f"changelog{file_suffix}.spool",
        {subject: settings.key_directory / name for subject, name in keys.items()},
        foundation.policies,
        (
            partial(check_signing_page, settings.address, settings.signing_page),
            check_signing_keys,
            partial(check_witness_count, len(parse_witnesses(settings.witnesses))),
            *features.load_checks(),
        ),
        list_witness_states=foundation.housekeeping.list_witness_states,
    )


def serve(settings: Settings) -> None:
    """Serve until interrupted. Raises AlreadyRunning, NoPolicy, StoreUnavailable and OSError."""
    redactor = Redactor(settings.secrets)
    set_up_logging(redactor, settings.log)
    raise_descriptor_limit()
    lock_directory = (
        lock_data_directory if settings.engine == "embedded" else lock_shared_directory
    )
    with (
        lock_directory(settings.data) as file_suffix,
        open_listener(settings.listen, settings.port) as listener,
        lock_database(settings) as process_lock,
    ):
        port = listener.getsockname()[1]
        settings = settings.model_copy(update={"port": port})
        export_spans(settings)
        keyturn = build_service(
            settings, redactor, file_suffix=file_suffix or "", process_lock=process_lock
        )
        click.echo(f"Keyturn is ready: {keyturn.settings.address}")
        if keyturn.chat is None and not settings.oidc_client_id:
            click.echo("To sign in:       keyturn sign-in PERSON prints a link")
        run_server(keyturn, listener)


def run_server(keyturn: Keyturn, listener: socket.socket) -> None:
    """Serve on a listening socket until interrupted."""
    server = _Server(create_server_config(keyturn), keyturn.service)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def create_server_config(keyturn: Keyturn) -> uvicorn.Config:
    """Return the configuration of uvicorn."""

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
    """A server that starts no more runs and steps once the signal arrives."""

    def __init__(self, config: uvicorn.Config, service: KeyturnService) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.close()
        super().handle_exit(sig, frame)


@asynccontextmanager
async def _run_lifespan(keyturn: Keyturn) -> AsyncGenerator[None]:
    """Recover unfinished runs, run the background tasks, and shut down in order."""
    if keyturn.dispatch is not None:
        await asyncio.to_thread(_release_senders, keyturn.database)
        keyturn.lease_keeper.start_heartbeat(keyturn.database)
        keyturn.dispatch.start(keyturn.service.advancer.advance_run)
        await asyncio.to_thread(keyturn.service.advancer.recover_unfinished_runs)
    scheduler = _create_scheduler(keyturn)
    scheduler.start()
    tasks = [asyncio.create_task(observability.warn_when_loop_blocks())]
    if keyturn.chat is not None:
        tasks.append(asyncio.create_task(keyturn.chat.run()))
    tasks += [asyncio.create_task(run()) for part in keyturn.parts for run in part.tasks]
    try:
        yield
    finally:
        scheduler.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        keyturn.service.close()
        await _finish_runs(keyturn)
        if keyturn.chat is not None:
            await keyturn.chat.close()
        keyturn.fleet.close()
        await asyncio.to_thread(keyturn.housekeeping.publish_last_checkpoint)
        keyturn.database.close()


def _release_senders(database: Database) -> None:
    """Release deliveries that a process that died had claimed: no other uses this database."""
    with database.transaction() as tx:
        outbox.release_all_claims(tx)
        home_queue.release_all_claims(tx)
        webhook_queue.release_all(tx, seconds=CLAIM_SECONDS)


async def _finish_runs(keyturn: Keyturn) -> None:
    """Wait for running steps, and interrupt those that take too long."""
    if keyturn.dispatch is None:
        return
    if not await asyncio.to_thread(keyturn.dispatch.stop, _FINISH_SECONDS):
        # Closing the connections interrupts the remaining steps; their outcome is unknown.
        keyturn.fleet.close()
        await asyncio.to_thread(keyturn.dispatch.stop, _GIVE_UP_SECONDS)
    await asyncio.to_thread(keyturn.lease_keeper.end_leases, keyturn.database)


def _create_scheduler(keyturn: Keyturn) -> Scheduler:
    """Return the scheduler of periodic duties."""
    advancer = keyturn.service.advancer
    return Scheduler(
        [
            advancer.record_policy_change,
            advancer.end_outdated_plans,
            advancer.expire_runs,
            advancer.remind_approvers,
            advancer.recover_expired_leases,
            advancer.wake_stalled_runs,
            keyturn.housekeeping.run_periodic_tasks,
            keyturn.contacts.write_contacts,
        ],
        # In a distributed installation, the workers follow up the runs of their sites.
        slow_duties=[
            *(duty for part in keyturn.parts for duty in part.duties),
            *(advancer.list_host_duties() if keyturn.dispatch else ()),
        ],
    )


_LISTEN_HINTS = {
    errno.EADDRINUSE: "Another program uses the port: set KEYTURN_PORT to a free one",
    errno.EACCES: "Ports below 1024 need root: set KEYTURN_PORT to a higher one",
    errno.EADDRNOTAVAIL: (
        "This machine does not have this address: set KEYTURN_LISTEN to one that it has"
    ),
}


def open_listener(address: str, port: int) -> socket.socket:
    """Return a listening socket. Raises OSError with a message that says what to do."""
    try:
        listener = socket.create_server((address, port))
    except OSError as error:
        # `strerror` repeats the address in parentheses.
        cause = error.strerror.partition(" (")[0] if error.strerror else str(error)
        hint = _LISTEN_HINTS.get(error.errno or 0, "Check KEYTURN_LISTEN and KEYTURN_PORT")
        raise OSError(f"cannot listen on {address}:{port}: {cause}. {hint}") from None
    # Accepted connections inherit TCP_NODELAY. asyncio sets it only on its own sockets; without
    # it, the body of each response waits for the acknowledgement of its headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
