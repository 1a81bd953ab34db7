"""Reach: one POST to an address that was chosen elsewhere, and nowhere else than that."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx2

from bot.model.text import escape_to_one_line
from connectors.public_addresses import is_public

# Of one stroke, such as to look up the name or to connect; and of all of it, however slowly the
# other side speaks.
_SECONDS, _IN_ALL = 10.0, 20.0
GONE = 410

# From a name and a port to the addresses that it has.
Resolve = Callable[[str, int], Sequence[str]]


class NotReached(Exception):
    """It was not told. The message says why; for_good: there is no sense in trying again."""

    def __init__(self, why: str, *, for_good: bool = False) -> None:
        super().__init__(why)
        self.for_good = for_good


def resolved(name: str, port: int) -> Sequence[str]:
    """Ask the system for the addresses of a name. Raises OSError."""
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return [str(one[4][0]) for one in found]


def _in_time(resolve: Resolve, name: str, port: int, seconds: float) -> Sequence[str]:
    """Ask, and wait only so long: the system itself may wait for half a minute or more.

    Raises what the asking raises, or TimeoutError, which is an OSError.
    """
    found = Future[Sequence[str]]()

    def look() -> None:
        try:
            found.set_result(resolve(name, port))
        except (OSError, ValueError) as trouble:
            found.set_exception(trouble)

    threading.Thread(target=look, name="keyturn-resolve", daemon=True).start()
    try:
        return found.result(seconds)
    except TimeoutError:
        raise TimeoutError(f"nobody told it within {seconds:g} s") from None


def address(url: str, *, private: bool, resolve: Resolve, seconds: float = _SECONDS) -> str:
    """Return the one address to connect to. Raises NotReached.

    Each address that the name has must be public, so that none of them is ours by accident.
    """
    parts = urlsplit(url)
    name, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = [
            ip_address(one.partition("%")[0]) for one in _in_time(resolve, name, port, seconds)
        ]
    except (OSError, ValueError) as trouble:
        raise NotReached(f"{name} has no address: {escape_to_one_line(str(trouble))}") from None
    if not found:
        raise NotReached(f"{name} has no address")
    if not private:
        ours = [one for one in found if not is_public(one)]
        if ours:
            raise NotReached(f"{name} is {ours[0]}, which is not public: private: true allows it")
    elif parts.scheme == "http" and not all(one.is_loopback for one in found):
        raise NotReached(f"{name} is not this machine, and only that is told without TLS")
    return str(found[0])


def post(
    url: str,
    body: bytes,
    headers: dict[str, str],
    *,
    private: bool,
    resolve: Resolve = resolved,
    seconds: float = _IN_ALL,
) -> None:
    """Send it there; 2xx is a yes. The answer's body is not read. Raises NotReached.

    The name is looked up once and its address connected to, so that no second answer to the same
    question leads elsewhere; the certificate is checked against the name. seconds: from then until
    the answer has begun; the name is waited for no longer.
    """
    limit = min(seconds, _SECONDS)
    at, parts = address(url, private=private, resolve=resolve, seconds=limit), urlsplit(url)
    there = f"[{at}]" if ":" in at else at
    port = f":{parts.port}" if parts.port else ""
    query = f"?{parts.query}" if parts.query else ""
    request = httpx2.Request(
        "POST",
        f"{parts.scheme}://{there}{port}{parts.path or '/'}{query}",
        content=body,
        headers={
            **headers,
            "Host": parts.netloc,
            "Content-Type": "application/json",
            "User-Agent": "Keyturn",
        },
        extensions={"sni_hostname": parts.hostname or ""},
    )
    # A client that waits by itself has limits for each stroke only: who sends a letter of its
    # headers every few seconds would hold it for good.
    status = asyncio.run(_answered(request, seconds))
    if not 200 <= status < 300:
        raise NotReached(f"it answered {status}", for_good=status == GONE)


async def _answered(request: httpx2.Request, seconds: float) -> int:
    """Return the status of the answer."""
    try:
        async with (
            asyncio.timeout(seconds),
            httpx2.AsyncClient(
                verify=ssl.create_default_context(),
                timeout=_SECONDS,
                follow_redirects=False,
                trust_env=False,
            ) as client,
        ):
            answer = await client.send(request, stream=True)
            await answer.aclose()
            return answer.status_code
    except TimeoutError:
        raise NotReached(f"it did not answer within {seconds:g} s") from None
    except httpx2.HTTPError as trouble:
        raise NotReached(escape_to_one_line(str(trouble) or type(trouble).__name__)) from None
