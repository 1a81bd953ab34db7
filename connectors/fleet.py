"""The hosts under our care, and the only way to ask and to tell them anything."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar, overload

from connectors import step_status
from connectors.command import (
    NO_HOOKS,
    Answer,
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
from connectors.errors import HostError, HostKeyMismatchError, OutputLimitError
from connectors.inventory import Host, Inventory
from connectors.step_marker import StepMarker

T = TypeVar("T")


class CommandRunner(Protocol):
    """Runs a resolved command on a host that is reached through others; `SshPool` is one."""

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
    """Knows every host, and carries queries and commands to it. Any thread may use it.

    inventory: replaced as a whole when the file is read anew; what is under way ends with the one
    that it began with.
    on_contact: called each time that a host was met, with what stood in the way, if anything did.
    """

    def __init__(self, inventory: Inventory, pool: CommandRunner) -> None:
        self.inventory = inventory
        self._pool = pool
        self.on_contact: Callable[[str, HostError | None], None] = _ignore_contact

    @overload
    def resolve_command(self, host: str, command: Command) -> Command: ...
    @overload
    def resolve_command(self, host: str, command: RemoteCommand) -> RemoteCommand: ...
    def resolve_command(self, host: str, command: RemoteCommand) -> RemoteCommand:
        """Return the command exactly as this host will be told it, by the login that changes."""
        return _resolve_command(self.inventory[host].for_changing, command)

    def run_query(self, host: str, query: Query[T]) -> T:
        """Put a query to a host, by the login that reads; return what it understood of the answer.

        Raises HostError: CommandError or ParseError for an answer that is none.
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
        """Run a command on a host, by the login that changes.

        Args:
            host: its name in the inventory.
            command: may be resolved already.
            fingerprint: of the host key that was approved with the command. Nothing is sent to a
                host that has another key by now.
            hooks: what to call before the command is sent, and with its output.

        Raises HostError; CommandError where the command failed.
        """
        inventory = self.inventory
        if fingerprint and inventory[host].fingerprint != fingerprint:
            raise HostKeyMismatchError(
                f"the inventory has another key for {host} than was approved. Nothing was sent: "
                "ask again to see it anew"
            )
        answer = self._run(inventory, inventory[host].for_changing, command, hooks)
        if trouble := find_failure(command, answer, frozenset({0})):
            raise trouble
        return answer

    def query_step(
        self, host: str, marker: StepMarker, *, fingerprint: str = ""
    ) -> step_status.StepStatus:
        """Ask a host what became of a step, by the login that ran it.

        The host never starts a step that it has not started by then. fingerprint: as in
        `run_command`. Raises HostError where the host does not answer.
        """
        inventory = self.inventory
        known = inventory[host]
        if fingerprint and known.fingerprint != fingerprint:
            raise HostKeyMismatchError(
                f"the inventory has another key for {host} than was approved, so it was not asked"
            )
        placed = marker.resolve(known.settings) if known.platform == "linux" else None
        if placed is None:
            return step_status.NO_STATUS
        query = step_status.query_step_status(placed)
        answer = self._run(inventory, known.for_changing, query.command)
        if trouble := find_failure(query.command, answer, query.statuses):
            raise trouble
        return query.parse(answer.out)

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
            return Answer(0, command.resolve(host.settings))
        told, jumps = _resolve_command(host, command), _list_jump_hosts(inventory, host)
        if isinstance(told, Fetch):
            return self._pool.run(host, told, through=jumps)
        try:
            answer = self._pool.run(host, told, through=jumps, hooks=hooks)
        except HostError as trouble:
            self.on_contact(host.name, trouble)
            raise
        self.on_contact(host.name, None)
        doubt = make_program_check(told, answer)
        if doubt is not None and not self._has_program(host, doubt, jumps, hooks):
            return make_missing_program_answer(told)
        return answer

    def _has_program(
        self, host: Host, doubt: Shell, jumps: tuple[Host, ...], hooks: RunHooks
    ) -> bool:
        """Return whether a program is on a host; True where the host does not answer."""
        silent = replace(hooks, on_output=None)
        try:
            answer = self._pool.run(host, doubt, through=jumps, hooks=silent)
        except HostError:
            return True
        return answer.out.strip() != "missing"


def _ignore_contact(_host: str, _trouble: HostError | None) -> None:
    return


def _parse_answer(host: str, query: Query[T], answer: Answer) -> T:
    if trouble := find_failure(query.command, answer, query.statuses):
        raise trouble
    if answer.omitted_bytes:
        raise OutputLimitError(
            f"{host} answered with {answer.omitted_bytes} bytes more than are kept, and half an "
            "answer is none: ask for less"
        )
    return query.parse(answer.out)


def _resolve_command(host: Host, command: RemoteCommand) -> RemoteCommand:
    if isinstance(command, Fetch):
        return command.resolve(host.settings)
    return host.resolve(command)


def _list_jump_hosts(inventory: Inventory, host: Host) -> tuple[Host, ...]:
    """Return the hosts on the way to *host*, the first one that we connect to first.

    To be passed on changes nothing, so it is by the login that reads.
    """
    if host.jump is None:
        return ()
    jump = inventory[host.jump]
    return (*_list_jump_hosts(inventory, jump), jump.for_reading)
