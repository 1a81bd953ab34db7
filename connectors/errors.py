"""Errors between Keyturn and a host. Their messages are for the requester."""


def prefix_host(host: str, words: str) -> str:
    """Return *words* with the host's name in front, unless they already begin with it."""
    return words if words.startswith((f"{host} ", f"{host}: ")) else f"{host}: {words}"


class HostError(Exception):
    """A host could not be contacted, or a command on it failed."""

    started: bool | None = False
    """Whether the host started the command: False: no. True: it ran. None: unknown."""


class UnknownHostError(HostError):
    """The inventory has no such host."""


class SettingError(HostError):
    """A setting of the host in the inventory has a value that its command cannot use."""


class UnreachableError(HostError):
    """The host is unreachable: refused, no route, no answer, or no SSH server at the port."""


class HostKeyMismatchError(HostError):
    """The host's key does not match the inventory. Keyturn does not log in and does not retry."""


class LoginError(HostError):
    """The host's key matches, but the host refuses Keyturn's login."""


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
