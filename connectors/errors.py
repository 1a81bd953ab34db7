"""The base of all errors that a person can resolve, and the errors between Keyturn and a host."""

from typing import ClassVar


class DomainError(Exception):
    """An error that a person can resolve. Its message says what is wrong, then what to do.

    Chat, pages, API, terminal and agents each translate it in one place, from these facts alone.
    """

    code: ClassVar[str] = "failed"
    """What is wrong, for programs: the problem type of the API."""
    status: ClassVar[int] = 500
    """The HTTP status. From 500 on, the installation is at fault and not the request."""
    retry_seconds: int | None = None
    """After which time the same request may succeed; None if it will not by itself."""

    @property
    def public_message(self) -> str:
        """The message for people who may not read the log of the service."""
        return str(self)


def prefix_host(host: str, words: str) -> str:
    """Return *words* with the host's name in front, unless they already begin with it."""
    return words if words.startswith((f"{host} ", f"{host}: ")) else f"{host}: {words}"


class HostError(DomainError):
    """A host could not be contacted, or a command on it failed."""

    code, status = "host-error", 502

    started: bool | None = False
    """Whether the host started the command: False: no. True: it ran. None: unknown."""


class UnknownHostError(HostError):
    """The inventory has no such host."""

    code, status = "host-not-found", 422


class SettingError(HostError):
    """A setting of the host in the inventory has a value that its command cannot use."""


class UnreachableError(HostError):
    """The host is unreachable: refused, no route, no answer, or no SSH server at the port."""


class HostKeyMismatchError(HostError):
    """The host's key does not match the inventory. Keyturn does not log in and does not retry."""


class LoginError(HostError):
    """The host's key matches, but the host refuses Keyturn's login."""


class NoCommandsError(LoginError):
    """The login succeeds, but runs no commands, such as one with nologin as its shell."""


class WeakAlgorithmsError(HostError):
    """The host offers only algorithms that Keyturn refuses."""


class CommandError(HostError):
    """The command ran to its end and failed."""

    started = True


class ParseError(HostError):
    """The parser of a query does not know what the host returned."""

    started = True


class SetupError(HostError):
    """Something is not set up here or on the host. Nothing was started."""


class UnknownOutcomeError(HostError):
    """The command was sent and its outcome is unknown: it may or may not have run."""

    started = None


class AlreadyStartedError(UnknownOutcomeError):
    """The host had already started this step, so it did not run it a second time."""


class FencedError(HostError):
    """Another worker has taken over the run on this host. Nothing was started."""


class CommandTimeoutError(UnknownOutcomeError):
    """The command did not end before its deadline."""


class OutputLimitError(UnknownOutcomeError):
    """The command printed more than Keyturn stores, and was cut off."""
