"""Read a host in parts: one that cannot be read is reported beside the others."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from connectors.command import Query, QueryRunner
from connectors.errors import CommandError, CommandTimeoutError, HostError, ParseError

T = TypeVar("T")
U = TypeVar("U")

# Errors of one command. A host that does not answer at all is another matter.
READ_ERRORS = (CommandError, CommandTimeoutError, ParseError)


class PartReader:
    """Runs the queries of one host, and keeps the errors of those that fail."""

    def __init__(self, run_query: QueryRunner, host: str) -> None:
        self._run_query, self._host = run_query, host
        self._errors: dict[str, HostError] = {}
        self._has_read = False

    def read(self, part: str, query: Query[T], nothing: U) -> T | U:
        """Return what a query returns, or *nothing* if it fails.

        part: what is read, as the subject of a sentence: `the peers`.
        """
        try:
            value = self._run_query(self._host, query)
        except READ_ERRORS as error:
            self._errors[part] = error
            return nothing
        self._has_read = True
        return value

    def require_any(self) -> None:
        """Raise the first error if no part could be read: there is nothing to report."""
        if self._errors and not self._has_read:
            raise next(iter(self._errors.values()))

    def get_errors(self) -> Mapping[str, str]:
        """Return a sentence for each part that could not be read, by part."""
        return {part: f"{part} could not be read: {error}" for part, error in self._errors.items()}


def read_hosts(hosts: Iterable[str], read: Callable[[str], T]) -> Mapping[str, T | HostError]:
    """Return what *read* returns for each host, or the error of a host that cannot be read.

    Raises the first error if no host could be read.
    """
    found: dict[str, T | HostError] = {}
    for host in hosts:
        try:
            found[host] = read(host)
        except HostError as error:
            found[host] = error
    errors = [each for each in found.values() if isinstance(each, HostError)]
    if len(errors) == len(found):
        raise errors[0]
    return found


def list_host_errors(found: Mapping[str, T | HostError]) -> Iterator[str]:
    """Yield a sentence for each host that could not be read."""
    for host, value in found.items():
        if isinstance(value, HostError):
            yield f"{host} could not be read, so the two sides were not compared: {value}"
