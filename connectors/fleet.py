"""The hosts under our care, and the only way to ask and to tell them anything."""

from collections.abc import Callable
from typing import Protocol, TypeVar, overload

from connectors import recall
from connectors.command import (
    Answer,
    Command,
    Errand,
    Fetch,
    Query,
    Question,
    Setting,
    Shell,
    failure,
    missing_program,
    program_in_doubt,
)
from connectors.inventory import Host, Inventory
from connectors.marker import Mark
from connectors.trouble import HostKeyMismatch, HostTrouble, TooMuchOutput

T = TypeVar("T")


class Runner(Protocol):
    """Runs a resolved command on a host that is reached through others; `Sessions` is one."""

    def run(self, host: Host, command: Errand, /, *, through: tuple[Host, ...] = ()) -> Answer: ...

    def close(self) -> None: ...


class Fleet:
    """Knows every host, and carries queries and commands to it. Any thread may use it.

    inventory: replaced as a whole when the file is read anew; what is under way ends with the one
    that it began with.
    on_contact: called each time that a host was met, with what stood in the way, if anything did.
    """

    def __init__(self, inventory: Inventory, sessions: Runner) -> None:
        self.inventory = inventory
        self._sessions = sessions
        self.on_contact: Callable[[str, HostTrouble | None], None] = _nobody_listens

    @overload
    def resolve(self, host: str, command: Command) -> Command: ...
    @overload
    def resolve(self, host: str, command: Errand) -> Errand: ...
    def resolve(self, host: str, command: Errand) -> Errand:
        """Return the command exactly as this host will be told it, by the login that changes."""
        return _resolved(self.inventory[host].for_changing, command)

    def ask(self, host: str, query: Query[T]) -> T:
        """Put a query to a host, by the login that reads; return what it understood of the answer.

        Raises HostTrouble: CommandFailed or NotUnderstood for an answer that is none.
        """
        inventory = self.inventory
        answer = self._run(inventory, inventory[host].for_reading, query.command)
        return _understood(host, query, answer)

    def tell(self, host: str, command: Command, *, fingerprint: str = "") -> Answer:
        """Run a command on a host, by the login that changes; raise CommandFailed if it failed.

        A command that is resolved already is told as it is. fingerprint: of the key that was
        approved for it; a host that has another one by now is told nothing.
        """
        inventory = self.inventory
        if fingerprint and inventory[host].fingerprint != fingerprint:
            raise HostKeyMismatch(
                f"the inventory has another key for {host} than was approved. Nothing was sent: "
                "ask again to see it anew"
            )
        answer = self._run(inventory, inventory[host].for_changing, command)
        if trouble := failure(command, answer, frozenset({0})):
            raise trouble
        return answer

    def recall(self, host: str, mark: Mark, *, fingerprint: str = "") -> recall.Recollection:
        """Ask a host what became of a step, by the login that was told it.

        A step that it has not begun by then it never will. fingerprint: as in `tell`. Raises
        HostTrouble where the host does not say.
        """
        inventory = self.inventory
        known = inventory[host]
        if fingerprint and known.fingerprint != fingerprint:
            raise HostKeyMismatch(
                f"the inventory has another key for {host} than was approved, so it was not asked"
            )
        placed = mark.placed(known.settings) if known.platform == "linux" else None
        if placed is None:
            return recall.NOT_ASKED
        query = recall.question(placed)
        answer = self._run(inventory, known.for_changing, query.command)
        if trouble := failure(query.command, answer, query.statuses):
            raise trouble
        return query.parse(answer.out)

    def close(self) -> None:
        self._sessions.close()

    def _run(self, inventory: Inventory, host: Host, command: Question) -> Answer:
        if isinstance(command, Setting):
            return Answer(0, command.resolved(host.settings))
        told, jumps = _resolved(host, command), _jumps(inventory, host)
        if isinstance(told, Fetch):
            return self._sessions.run(host, told, through=jumps)
        try:
            answer = self._sessions.run(host, told, through=jumps)
        except HostTrouble as trouble:
            self.on_contact(host.name, trouble)
            raise
        self.on_contact(host.name, None)
        doubt = program_in_doubt(told, answer)
        if doubt is not None and not self._is_there(host, doubt, jumps):
            return missing_program(told)
        return answer

    def _is_there(self, host: Host, doubt: Shell, jumps: tuple[Host, ...]) -> bool:
        """Say whether a program is on a host; where that cannot be asked, that it is."""
        try:
            answer = self._sessions.run(host, doubt, through=jumps)
        except HostTrouble:
            return True
        return answer.out.strip() != "missing"


def _nobody_listens(_host: str, _trouble: HostTrouble | None) -> None:
    return


def _understood(host: str, query: Query[T], answer: Answer) -> T:
    if trouble := failure(query.command, answer, query.statuses):
        raise trouble
    if answer.left_out:
        raise TooMuchOutput(
            f"{host} answered with {answer.left_out} bytes more than are kept, and half an "
            "answer is none: ask for less"
        )
    return query.parse(answer.out)


def _resolved(host: Host, command: Errand) -> Errand:
    if isinstance(command, Fetch):
        return command.resolved(host.settings)
    return host.resolve(command)


def _jumps(inventory: Inventory, host: Host) -> tuple[Host, ...]:
    """Return the hosts on the way to *host*, the first one that we connect to first.

    To be passed on changes nothing, so it is by the login that reads.
    """
    if host.jump is None:
        return ()
    jump = inventory[host.jump]
    return (*_jumps(inventory, jump), jump.for_reading)
