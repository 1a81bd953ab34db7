"""A fleet whose hosts return scripted answers, as the real one would."""

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from connectors.command import NO_HOOKS, Answer, Command, Query, QueryCommand, RunHooks, Setting
from connectors.errors import HostError
from connectors.fleet import Fleet
from connectors.inventory import Host, Inventory
from connectors.probation import parse_status
from tests.sudo_rules import is_without_rule

T = TypeVar("T")

# What a host does when it is told something: speak (with status 0), answer, be in trouble, or
# do as a function says when the moment comes.
Reply = str | Answer | HostError | Callable[[], "Reply"]
Replies = Reply | list[Reply]

_HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJqpOcKG0QUlYJdTUTUiDYIiZlWfjkcoaeW6BYlZs/0B"


class ScriptedFleet(Fleet):
    """A fleet that answers from a script and records what it was sent.

    answers: replies by host and command, such as {("nfs1", "zpool status tank"): STATUS}. Several
    replies are given one after another, and the last one from then on. A command is named as its
    host would receive it. A command that is not in the script is answered with status 0 and
    no output; a query that is not in the script is a fault of the test.
    inventory: by default the hosts of the script, with logins that need no sudo.
    asked: every query. sent: every command that reached its host, whatever its outcome.
    tried: every command, whether or not it reached its host.
    """

    def __init__(
        self,
        answers: Mapping[tuple[str, str | QueryCommand], Replies] | None = None,
        *,
        inventory: Inventory | None = None,
        hosts: Iterable[str] = (),
    ) -> None:
        answers = answers or {}
        names = {host for host, _ in answers} | set(hosts)
        self._script = _Script()
        super().__init__(inventory or build_inventory(*sorted(names)), self._script)
        self.asked: list[tuple[str, str]] = []
        self.sent: list[tuple[str, str]] = []
        self.tried: list[tuple[str, str]] = []
        for (host, command), replies in answers.items():
            self.script(host, command, replies)

    def script(self, host: str, command: str | QueryCommand, replies: Replies) -> None:
        """From now on answer *command* on *host* with these replies."""
        several = cast("list[Reply]", replies) if isinstance(replies, list) else [replies]
        self._script.replies[host, str(command)] = several.copy()

    def resolve_command(self, host: str, command: Any) -> Any:
        if is_without_rule(command, self.inventory[host].settings):
            raise AssertionError(
                f"sudo would refuse this, declare a SudoRule in its dialect's SUDO: {command}"
            )
        return super().resolve_command(host, command)

    def run_query(self, host: str, query: Query[T]) -> T:
        if isinstance(query.command, Setting):
            return super().run_query(host, query)
        words = str(self.resolve_command(host, query.command))
        self.asked.append((host, words))
        if (host, words) not in self._script.replies and query.parse is parse_status:
            # A host without any probation prints only how long the next one lasts.
            lasts = re.findall(r" (\d+)$", words)
            self.script(host, query.command, f"lasts {lasts[0]}\n" if lasts else "")
        if (host, words) not in self._script.replies:
            known = "\n  ".join(f"{name}: {line}" for name, line in self._script.replies)
            raise AssertionError(f"no answer is scripted for {host}: {words}\n  {known}")
        return super().run_query(host, query)

    def run_command(
        self,
        host: str,
        command: Command,
        *,
        fingerprint: str = "",
        hooks: RunHooks = NO_HOOKS,
    ) -> Answer:
        words = (host, str(self.resolve_command(host, command)))
        self.tried.append(words)
        try:
            answer = super().run_command(host, command, fingerprint=fingerprint, hooks=hooks)
        except HostError as trouble:
            if trouble.started is not False:
                self.sent.append(words)
            raise
        self.sent.append(words)
        return answer


def build_inventory(*names: str, user: str = "root") -> Inventory:
    """Return an inventory of hosts that nobody can reach, all in the area `infra`."""
    entry = {"address": "192.0.2.1", "user": user, "host_key": _HOST_KEY, "area": "infra"}
    return Inventory.model_validate({"hosts": dict.fromkeys(names, entry)})


class _Script:
    """Stands where the sessions would: what it is asked to run, it looks up."""

    def __init__(self) -> None:
        self.replies: dict[tuple[str, str], list[Reply]] = {}
        self._lock = threading.Lock()

    def run(
        self,
        host: Host,
        command: QueryCommand,
        *,
        through: tuple[Host, ...] = (),  # noqa: ARG002 - how a host is reached changes no answer
        hooks: RunHooks = NO_HOOKS,  # noqa: ARG002 - no command is sent here
    ) -> Answer:
        with self._lock:
            replies = self.replies.get((host.name, str(command)), [""])
            reply = replies.pop(0) if len(replies) > 1 else replies[0]
        return _resolve_reply(reply)

    def close(self) -> None:
        pass


def _resolve_reply(reply: Reply) -> Answer:
    if isinstance(reply, HostError):
        raise reply
    if isinstance(reply, str):
        return Answer(0, reply)
    return reply if isinstance(reply, Answer) else _resolve_reply(reply())
