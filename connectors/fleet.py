"""Fleet: all hosts of the inventory, and the only way to run queries and commands on them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar, overload

from connectors import step_status
from connectors.command import (
    NO_HOOKS,
    Answer,
    ApiCall,
    Command,
    Fetch,
    Query,
    QueryCommand,
    RemoteCommand,
    RunHooks,
    Setting,
    Shell,
    find_failure,
    make_missing_program_answer,
    make_program_check,
)
from connectors.errors import (
    AlreadyStartedError,
    HostError,
    HostKeyMismatchError,
    OutputLimitError,
)
from connectors.inventory import Host, Inventory
from connectors.step_marker import StepMarker

T = TypeVar("T")


class CommandRunner(Protocol):
    """Runs resolved commands on hosts; `SshPool` is one."""

    def run(
        self,
        host: Host,
        command: RemoteCommand,
        /,
        *,
        through: tuple[Host, ...] = (),
        hooks: RunHooks = NO_HOOKS,
    ) -> Answer: ...

    def close(self) -> None: ...


class Fleet:
    """Runs queries and commands on hosts by name. Any thread can use it."""

    def __init__(self, inventory: Inventory, pool: CommandRunner) -> None:
        # Replaced when the file changes. A command ends with the inventory that it began with.
        self.inventory = inventory
        self._pool = pool
        # Called after each contact with a host: its name, and the error if there was one.
        self.on_contact: Callable[[str, HostError | None], None] = _ignore_contact

    @overload
    def resolve_command(self, host: str, command: Command) -> Command: ...
    @overload
    def resolve_command(self, host: str, command: RemoteCommand) -> RemoteCommand: ...
    def resolve_command(self, host: str, command: RemoteCommand) -> RemoteCommand:
        """Return the command exactly as this host will run it, with the login for changes.

        A host that checks signatures runs all of them as root, without sudo.
        """
        known = self.inventory[host].for_changing
        if known.signed and isinstance(command, Shell):
            return command.resolve_for_root(known.settings)
        return _resolve_command(known, command)

    def run_query(self, host: str, query: Query[T]) -> T:
        """Run a query on a host with the read-only login, and return its parsed output.

        Raises HostError: CommandError if it failed, ParseError if its output is not understood.
        """
        inventory = self.inventory
        answer = self._run(inventory, inventory[host].for_reading, query.command)
        return _parse_answer(host, query, answer)

    def run_command(
        self,
        host: str,
        command: Command,
        *,
        fingerprint: str = "",
        hooks: RunHooks = NO_HOOKS,
    ) -> Answer:
        """Run a command on a host with the login for changes.

        Args:
            host: its name in the inventory.
            command: may be resolved already.
            fingerprint: of the host key that was approved with the command. Nothing is sent to a
                host whose key differs by now.
            hooks: called before the command is sent, and with its output.

        Raises HostError; CommandError where the command failed.
        """
        inventory = self.inventory
        if fingerprint and inventory[host].fingerprint != fingerprint:
            raise HostKeyMismatchError(
                f"the key of {host} in the inventory changed after the approval. Nothing was "
                "sent: request the change again"
            )
        answer = self._run(inventory, inventory[host].for_changing, command, hooks)
        if isinstance(command, Shell) and answer.status == command.begun_status:
            raise AlreadyStartedError(
                f"{host} had already started this step, so it was not run a second time"
            )
        if error := find_failure(command, answer, frozenset({0})):
            raise error
        return answer

    def query_step(
        self, host: str, marker: StepMarker, *, fingerprint: str = ""
    ) -> step_status.StepStatus:
        """Query the status of a step on its host, with the login that ran it.

        A step that has not started by then can never start. fingerprint: as in `run_command`.
        Raises HostError where the host is unreachable.
        """
        known = self._get_unchanged_host(host, fingerprint)
        placed = marker.resolve(known.settings) if known.platform == "linux" else None
        if placed is None:
            return step_status.NO_STATUS
        return self._query_with_changer(known, step_status.query_step_status(placed))

    def query_with_changer(self, host: str, query: Query[T], *, fingerprint: str = "") -> T:
        """Run a query on a host with the login for changes. See run_query() and run_command()."""
        return self._query_with_changer(self._get_unchanged_host(host, fingerprint), query)

    def _get_unchanged_host(self, name: str, fingerprint: str) -> Host:
        known = self.inventory[name]
        if fingerprint and known.fingerprint != fingerprint:
            raise HostKeyMismatchError(
                f"the key of {name} in the inventory changed after the approval: the host was not "
                "contacted"
            )
        return known

    def _query_with_changer(self, host: Host, query: Query[T]) -> T:
        answer = self._run(self.inventory, host.for_changing, query.command)
        return _parse_answer(host.name, query, answer)

    def close(self) -> None:
        self._pool.close()

    def _run(
        self,
        inventory: Inventory,
        host: Host,
        command: QueryCommand,
        hooks: RunHooks = NO_HOOKS,
    ) -> Answer:
        if isinstance(command, Setting):
            return Answer(0, command.resolve(host.setting_values))
        resolved, jumps = _resolve_command(host, command), _list_jump_hosts(inventory, host)
        is_elsewhere = isinstance(resolved, ApiCall) and host.msa is None
        if isinstance(resolved, Fetch) or is_elsewhere:  # not a contact with the host
            return self._pool.run(host, resolved, through=jumps, hooks=hooks)
        try:
            answer = self._pool.run(host, resolved, through=jumps, hooks=hooks)
        except HostError as error:
            self.on_contact(host.name, error)
            raise
        self.on_contact(host.name, None)
        check = make_program_check(resolved, answer)
        if check is not None and not self._has_program(host, check, jumps, hooks):
            return make_missing_program_answer(resolved)
        return answer

    def _has_program(
        self, host: Host, check: Shell, jumps: tuple[Host, ...], hooks: RunHooks
    ) -> bool:
        """Return whether a program is installed; True where the host does not answer."""
        silent = replace(hooks, on_output=None)
        try:
            answer = self._pool.run(host, check, through=jumps, hooks=silent)
        except HostError:
            return True
        return answer.out.strip() != "missing"


def _ignore_contact(_host: str, _error: HostError | None) -> None:
    return


def _parse_answer(host: str, query: Query[T], answer: Answer) -> T:
    if error := find_failure(query.command, answer, query.statuses):
        raise error
    if answer.omitted_bytes:
        raise OutputLimitError(
            f"{host} returned {answer.omitted_bytes} bytes more than Keyturn stores, so the "
            "output is incomplete: request less"
        )
    return query.parse(answer.out)


def _resolve_command(host: Host, command: RemoteCommand) -> RemoteCommand:
    if isinstance(command, Fetch):
        return command.resolve(host.settings)
    return host.resolve(command)


def _list_jump_hosts(inventory: Inventory, host: Host) -> tuple[Host, ...]:
    """Return the jump hosts on the way to *host*, nearest to Keyturn first.

    A tunnel changes nothing, so the read-only login is used.
    """
    if host.jump is None:
        return ()
    jump = inventory[host.jump]
    return (*_list_jump_hosts(inventory, jump), jump.for_reading)
