"""What can go wrong between us and a host, in words for the person who asked."""


def prefix_host(host: str, words: str) -> str:
    """Return words that begin with the host's name, as most of what we say of a host does."""
    return words if words.startswith((f"{host} ", f"{host}: ")) else f"{host}: {words}"


class HostError(Exception):
    """Something stood between us and the host's answer.

    `started` tells what matters most of a command that changes: False means that the host
    certainly never began it, None means that nobody can say, True means that it ran.
    """

    started: bool | None = False


class UnknownHostError(HostError):
    """The inventory has no such host."""


class SettingError(HostError):
    """The inventory's settings of the host hold a word that its command cannot use."""


class UnreachableError(HostError):
    """No connection: refused, no route, no answer, or no SSH server behind the port."""


class HostKeyMismatchError(HostError):
    """The host shows another key than the inventory holds: never retried, and never logged in."""


class LoginError(HostError):
    """The host's key is right, but it does not take ours."""


class WeakAlgorithmsError(HostError):
    """The host offers only algorithms that we refuse to speak."""


class CommandError(HostError):
    """The command ran to its end and the host says that it failed."""

    started = True


class ParseError(HostError):
    """The host answered a query with something its parser does not know."""

    started = True


class SetupError(HostError):
    """Something has to be put in place first, here or on the host; nothing was started."""


class UnknownOutcomeError(HostError):
    """The command was sent and its end was never seen: it may or may not have run."""

    started = None


class AlreadyStartedError(UnknownOutcomeError):
    """The host has begun this very step before: it ran it no second time."""


class FencedError(HostError):
    """Somebody else has taken the run over, and told the host so: nothing was started."""


class CommandTimeoutError(UnknownOutcomeError):
    """The command did not end before its deadline."""


class OutputLimitError(UnknownOutcomeError):
    """The command said more than we are willing to hold, and was cut off."""
