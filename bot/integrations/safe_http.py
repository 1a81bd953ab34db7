"""One request to a configured address, protected against redirection to internal addresses."""

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
from connectors.public_addresses import is_forbidden, is_public

# Limits of one operation, such as the name lookup or the connection, and of the whole request.
_SECONDS, _TOTAL_SECONDS = 10.0, 20.0
GONE = 410

# Returns the addresses of a name and port.
Resolve = Callable[[str, int], Sequence[str]]


class DeliveryError(Exception):
    """The request was not delivered.

    for_good: another attempt is useless. status: the HTTP status; 0 without a response.
    """

    def __init__(self, message: str, *, for_good: bool = False, status: int = 0) -> None:
        super().__init__(message)
        self.for_good, self.status = for_good, status


def resolve_name(name: str, port: int) -> Sequence[str]:
    """Return the addresses of a name from the system's resolver. Raises OSError."""
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return [str(one[4][0]) for one in found]


def _resolve_in_time(resolve: Resolve, name: str, port: int, seconds: float) -> Sequence[str]:
    """Resolve a name within a limit; the system's resolver may take half a minute or more.

    Raises the resolver's OSError or ValueError, or TimeoutError.
    """
    result = Future[Sequence[str]]()

    def run() -> None:
        try:
            result.set_result(resolve(name, port))
        except (OSError, ValueError) as error:
            result.set_exception(error)

    threading.Thread(target=run, name="keyturn-resolve", daemon=True).start()
    try:
        return result.result(seconds)
    except TimeoutError:
        raise TimeoutError(f"the name lookup took longer than {seconds:g} s") from None


def choose_address(url: str, *, private: bool, resolve: Resolve, seconds: float = _SECONDS) -> str:
    """Return the one address to connect to. Raises DeliveryError.

    Every address of the name must be public, so that none of them is internal by accident.

    Args:
        private: Whether addresses of private networks and of this machine are allowed.
    """
    parts = urlsplit(url)
    name, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = [
            ip_address(one.partition("%")[0])
            for one in _resolve_in_time(resolve, name, port, seconds)
        ]
    except (OSError, ValueError) as error:
        message = f"cannot resolve {name}: {escape_to_one_line(str(error))}"
        raise DeliveryError(message) from None
    if not found:
        raise DeliveryError(f"{name} has no address")
    if forbidden := [one for one in found if is_forbidden(one)]:
        raise DeliveryError(
            f"{name} resolves to {forbidden[0]}, which is not public and never contacted: it is "
            "link-local, multicast, unspecified, embeds another address or holds the metadata of "
            "a cloud. Correct the address"
        )
    if not private:
        internal = [one for one in found if not is_public(one)]
        if internal:
            raise DeliveryError(
                f"{name} resolves to {internal[0]}, which is not public: set private: true to "
                "allow it"
            )
    elif parts.scheme == "http" and not all(one.is_loopback for one in found):
        raise DeliveryError(f"{name} is not this machine: use https")
    return str(found[0])


def post(
    url: str,
    body: bytes,
    headers: dict[str, str],
    *,
    private: bool,
    resolve: Resolve = resolve_name,
    seconds: float = _TOTAL_SECONDS,
) -> None:
    """Send a POST; the response body is not read. Arguments and errors: as for request()."""
    request(
        "POST", url, body, headers, private=private, resolve=resolve, seconds=seconds, max_bytes=0
    )


def request(  # noqa: PLR0913 - what a request consists of
    method: str,
    url: str,
    body: bytes,
    headers: dict[str, str],
    *,
    private: bool,
    resolve: Resolve = resolve_name,
    seconds: float = _TOTAL_SECONDS,
    max_bytes: int,
) -> bytes:
    """Send a request, require a 2xx status, and return the body of the response.

    Raises DeliveryError.

    The name is resolved once, and the connection goes to that address, so that a second lookup
    cannot lead elsewhere. The certificate is verified against the name.

    Args:
        private: Whether internal addresses are allowed.
        seconds: Limit until the response is read, and limit of the name lookup.
        max_bytes: The longest body to accept; 0 to read none.
    """
    limit = min(seconds, _SECONDS)
    at, parts = choose_address(url, private=private, resolve=resolve, seconds=limit), urlsplit(url)
    host = f"[{at}]" if ":" in at else at
    port = f":{parts.port}" if parts.port else ""
    query = f"?{parts.query}" if parts.query else ""
    prepared = httpx2.Request(
        method,
        f"{parts.scheme}://{host}{port}{parts.path or '/'}{query}",
        content=body,
        headers={
            **headers,
            "Host": parts.netloc,
            "Content-Type": "application/json",
            "User-Agent": "Keyturn",
        },
        extensions={"sni_hostname": parts.hostname or ""},
    )
    # The client's own limits apply to each read: a server that sends a byte of its headers every
    # few seconds would never exceed them.
    status, content = asyncio.run(_send(prepared, seconds, max_bytes))
    if not 200 <= status < 300:
        raise DeliveryError(f"it returned status {status}", for_good=status == GONE, status=status)
    return content


async def _read_body(response: httpx2.Response, max_bytes: int) -> bytes:
    content = b""
    async for part in response.aiter_bytes():
        content += part
        if len(content) > max_bytes:
            raise DeliveryError(f"its response is longer than {max_bytes} bytes")
    return content


async def _send(request: httpx2.Request, seconds: float, max_bytes: int) -> tuple[int, bytes]:
    """Return status and body of the response."""
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
            response = await client.send(request, stream=True)
            content = b""
            try:
                if max_bytes:
                    content = await _read_body(response, max_bytes)
            finally:
                await response.aclose()
            return response.status_code, content
    except TimeoutError:
        raise DeliveryError(f"no response within {seconds:g} s") from None
    except httpx2.HTTPError as error:
        raise DeliveryError(escape_to_one_line(str(error) or type(error).__name__)) from None
