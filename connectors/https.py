"""The HTTPS client: for documents, management interfaces, webhooks and other systems.

Its promises to all of them:

* The certificate is verified before anything is sent: by this machine's authorities, by one
  authority, or as the one certificate that is pinned.
* A request is sent once and never repeated, because a power cycle must not happen twice. After
  NotSentError nothing was sent; after other errors the server may have received it.
* The addresses of a name are checked before one is contacted, and the connection goes to a checked
  address, so that a second lookup cannot lead elsewhere.
* Redirects are not followed and the environment's proxies are not used, so that a login goes to
  no other server. Time and size are limited: also of a server that sends a byte now and then.
"""

import asyncio
import hashlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from connectors.command import Answer, Fetch
from connectors.errors import HostError, ParseError, SettingError, UnreachableError
from connectors.public_addresses import Address, is_forbidden, is_public

# It would log each address that is called.
logging.getLogger("httpx2").setLevel(logging.WARNING)

_CONNECT_SECONDS = 10.0
_FORBIDDEN = (
    "is not public and never contacted: it is link-local, multicast, unspecified, embeds another "
    "address or holds the metadata of a cloud. Correct the address"
)

Client = httpx2.AsyncClient
Trust = ssl.SSLContext
# Returns the addresses of a name and port.
Resolve = Callable[[str, int], Sequence[str]]
# Returns why an address is not contacted, to follow "which"; "" if it is.
FindProblem = Callable[[Address], str]


class HttpsError(Exception):
    """No complete response arrived. The server may have received the request."""


class NotSentError(HttpsError):
    """No connection to the server was made: nothing was sent."""


class ProxyRefusedError(NotSentError):
    """The proxy does not connect to the server."""


class CertificateError(NotSentError):
    """The certificate is not the pinned one, or no trusted authority signed it for the name."""


class ResponseTooLongError(HttpsError):
    """The response is longer than the limit."""


@dataclass(frozen=True)
class Request:
    """What is sent. `url` is absolute, or relative to the address of the client."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


@dataclass(frozen=True)
class Limits:
    """`seconds` until the response is read; 0 `max_bytes` to read none of its body."""

    seconds: float
    max_bytes: int


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes
    """As it arrived: compressed, if the server does that unrequested."""

    @property
    def encoding(self) -> str:
        """How the body is compressed; "identity" if it is not."""
        return self.headers.get("Content-Encoding", "identity").strip().lower()


def resolve_name(name: str, port: int) -> Sequence[str]:
    """Return the addresses of a name from the system's resolver. Raises OSError."""
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return [str(one[4][0]) for one in found]


def trust_authority(file: Path | None = None) -> Trust:
    """Return a context that trusts a PEM file, or this machine's authorities. Raises OSError."""
    return ssl.create_default_context(cafile=file)


def pin_certificate(fingerprint: str) -> Trust:
    """Return a context that accepts one certificate alone, also a self-signed or expired one."""

    class PinnedConnection(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            shown = hashlib.sha256(self.getpeercert(binary_form=True) or b"").digest()
            if shown != bytes.fromhex(fingerprint.replace(":", "")):
                raise ssl.SSLCertVerificationError(1, f"it is {shown.hex(':').upper()}")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the class above verifies it instead
    context.sslobject_class = PinnedConnection
    return context


def open_client(
    trust: Trust,
    *,
    base_url: str = "",
    login: tuple[str, str] | None = None,
    proxy: str = "",
) -> Client:
    """Return a client for the requests of one conversation."""
    return Client(
        base_url=base_url,
        auth=login,
        verify=trust,
        proxy=proxy or None,
        trust_env=False,
        follow_redirects=False,
        # A compressed body could be small here and huge once decompressed.
        headers={"Accept-Encoding": "identity", "User-Agent": "Keyturn"},
        timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
    )


async def send(
    client: Client, request: Request, limits: Limits, *, address: Address | None = None
) -> Response:
    """Send a request once, and return its response, of any status. Raises HttpsError.

    Args:
        address: Of the server, instead of a name lookup. The certificate is of the name.
    """
    url = httpx2.URL(request.url)
    to_address = {} if address is None else {"Host": url.netloc.decode("ascii")}
    prepared = client.build_request(
        request.method,
        url if address is None else url.copy_with(host=str(address)),
        content=request.body or None,
        headers={**to_address, **request.headers},
        extensions={} if address is None else {"sni_hostname": url.host},
    )
    try:
        async with asyncio.timeout(limits.seconds):
            response = await client.send(prepared, stream=True)
            try:
                body = await _read_body(response, limits.max_bytes)
            finally:
                await response.aclose()
    except TimeoutError:
        raise HttpsError(f"no complete response within {limits.seconds:g} s") from None
    except httpx2.HTTPError as error:
        raise _explain(error) from None
    return Response(response.status_code, response.headers, body)


def send_to_checked_address(
    request: Request,
    limits: Limits,
    *,
    find_problem: FindProblem,
    trust: Trust,
    resolve: Resolve = resolve_name,
    proxy: str = "",
) -> Response:
    """Send a request to the first address of its server that accepts a connection.

    A proxy resolves the name itself and decides what it may reach. Raises HttpsError. Any thread
    without an event loop can call it.
    """

    async def find_and_send() -> Response:
        limit = min(limits.seconds, _CONNECT_SECONDS)
        found = (
            [None] if proxy else await find_addresses(request.url, find_problem, resolve, limit)
        )
        async with open_client(trust, proxy=proxy) as client:
            for address in found[:-1]:
                with suppress(NotSentError):
                    return await send(client, request, limits, address=address)
            return await send(client, request, limits, address=found[-1])

    return asyncio.run(find_and_send())


class KeptConnection:
    """A connection to a server of the settings that stays open between requests.

    For the few requests that a change waits for: it takes a tenth of the time of the client above.
    One thread at a time may use it.
    """

    def __init__(self, url: str, trust: Trust) -> None:
        parts = urlsplit(url)
        self._path = parts.path.rstrip("/")
        name, port = parts.hostname or "", parts.port
        self._connection = (
            HTTPSConnection(name, port, context=trust)
            if parts.scheme == "https"
            else HTTPConnection(name, port)
        )

    def send(self, request: Request, limits: Limits) -> Response:
        """Send a request once, and return its response, of any status. Raises HttpsError.

        The address of the request is relative to that of the connection.
        """
        until = time.monotonic() + limits.seconds
        is_read = False
        try:
            response = self._send(request, limits.seconds)
            body = bytearray()
            while piece := response.read1(limits.max_bytes + 1):
                body += piece
                if len(body) > limits.max_bytes:
                    raise ResponseTooLongError(
                        f"its response is longer than {limits.max_bytes} bytes"
                    )
                if time.monotonic() > until:
                    raise TimeoutError
            # It is read, so the connection is free for the next request.
            response.close()
            is_read = True
        except TimeoutError:
            raise HttpsError(f"no complete response within {limits.seconds:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise CertificateError(str(error)) from None
        except (OSError, HTTPException) as error:
            raise HttpsError(str(error) or type(error).__name__) from None
        finally:
            if not is_read:
                self.close()
        return Response(response.status, dict(response.getheaders()), bytes(body))

    def _send(self, request: Request, seconds: float) -> HTTPResponse:
        # For a new connection, and for one that is open.
        self._connection.timeout = seconds
        if self._connection.sock is not None:
            self._connection.sock.settimeout(seconds)
        self._connection.request(
            request.method, f"{self._path}{request.url}", request.body, {**request.headers}
        )
        return self._connection.getresponse()

    def close(self) -> None:
        self._connection.close()


async def find_addresses(
    url: str, find_problem: FindProblem, resolve: Resolve, seconds: float = _CONNECT_SECONDS
) -> Sequence[Address]:
    """Return the addresses of a server, at least one. Raises NotSentError.

    Every one of them must be allowed, so that none leads inside by accident.
    """
    parts = urlsplit(url)
    name, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(seconds):
            found = await asyncio.wrap_future(_start_lookup(resolve, name, port))
        addresses = [ip_address(one.partition("%")[0]) for one in found]
    except TimeoutError:
        raise NotSentError(f"the name lookup took longer than {seconds:g} s") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise NotSentError(f"cannot resolve {name}: {reason}") from None
    for address in addresses:
        problem = _FORBIDDEN if is_forbidden(address) else find_problem(address)
        if problem:
            raise NotSentError(f"{name} resolves to {address}, which {problem}")
    if not addresses:
        raise NotSentError(f"{name} has no address")
    return addresses


def _start_lookup(resolve: Resolve, name: str, port: int) -> Future[Sequence[str]]:
    """Look up a name in a thread that is not waited for: a resolver may take half a minute."""
    result = Future[Sequence[str]]()
    result.set_running_or_notify_cancel()  # the lookup ends by itself, also after its time limit

    def run() -> None:
        try:
            found = resolve(name, port)
        except (OSError, ValueError) as error:
            result.set_exception(error)
        else:
            result.set_result(found)

    threading.Thread(target=run, name="keyturn-resolve", daemon=True).start()
    return result


async def _read_body(response: httpx2.Response, max_bytes: int) -> bytes:
    body = bytearray()
    if max_bytes:
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > max_bytes:
                raise ResponseTooLongError(f"its response is longer than {max_bytes} bytes")
    return bytes(body)


def _explain(error: httpx2.HTTPError) -> HttpsError:
    """Return the error by what it means for the request, with its innermost reason."""
    cause: BaseException = error
    while cause.__context__ is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return CertificateError(str(cause.args[-1]))
    reason = str(cause) or type(cause).__name__
    if isinstance(error, httpx2.ProxyError):
        return ProxyRefusedError(reason)
    not_sent = isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout))
    return (NotSentError if not_sent else HttpsError)(reason)


class Fetcher:
    """Downloads documents. Any thread without an event loop can use it.

    Args:
        files: the directory that authority files in the inventory are relative to.
        cache_seconds: how long a document is reused, so that a change on many hosts is planned,
            made and verified with the same document.
    """

    def __init__(self, files: Path, *, cache_seconds: float = 60.0) -> None:
        self._files = files
        self._cache_seconds = cache_seconds
        self._lock = threading.Lock()
        self._cache: dict[Fetch, tuple[float, Answer]] = {}

    def fetch(self, fetch: Fetch) -> Answer:
        """Return the document as text.

        Raises:
            UnreachableError: the server returns no document.
            ParseError: it has another media type, or is too long.
            SettingError: the inventory's settings for it are wrong.
        """
        with self._lock:
            now = time.monotonic()
            since, answer = self._cache.get(fetch, (now, None))
            if answer is None or now - since >= self._cache_seconds:
                answer = self._download(fetch)
                self._cache[fetch] = (now, answer)
            return answer

    def _download(self, fetch: Fetch) -> Answer:
        try:
            response = self._send(fetch)
        except ResponseTooLongError:
            raise ParseError(f"{fetch.url} returned more than {fetch.max_bytes} bytes") from None
        except ProxyRefusedError as error:
            raise UnreachableError(
                f"the proxy {fetch.proxy} cannot reach {fetch.url} ({error}): allow it "
                "there, or change the feed's proxy in the inventory"
            ) from None
        except HttpsError as error:
            way = f" through the proxy {fetch.proxy}" if fetch.proxy else ""
            raise UnreachableError(
                f"{fetch.url} did not return a complete document{way} ({error})"
            ) from None
        if error := _find_response_error(fetch, response):
            raise error
        try:
            return Answer(0, response.body.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise ParseError(f"{fetch.url} returned text that is not UTF-8") from None

    def _send(self, fetch: Fetch) -> Response:
        url, proxy = str(fetch.url), str(fetch.proxy)
        if not _is_address(url, "https") or urlsplit(url).username is not None:
            raise SettingError(
                f"the inventory sets a feed's address to {url!r}: it must be https://…"
            )
        if proxy and not _is_address(proxy, "http"):
            raise SettingError(
                f"the inventory sets a feed's proxy to {proxy!r}: it must be like "
                "http://proxy.example:3128"
            )
        allowed = _parse_networks(str(fetch.networks))

        def find_problem(address: Address) -> str:
            if is_public(address) or any(address in network for network in allowed):
                return ""
            return (
                "is not public, and was not contacted: if that is correct, add its network to "
                "the inventory beside the feed's address"
            )

        return send_to_checked_address(
            Request("GET", url, {"Accept": ", ".join(fetch.media_types)}),
            Limits(fetch.deadline, fetch.max_bytes),
            find_problem=find_problem,
            trust=self._load_authority(str(fetch.authority)),
            proxy=proxy,
        )

    def _load_authority(self, authority: str) -> Trust:
        file = self._files / authority if authority else None
        try:
            return trust_authority(file)
        except OSError as error:  # ssl's own errors among them
            raise SettingError(
                f"cannot use the authority file {file} ({error.strerror or error}): put the "
                "PEM certificates of the CA that signed the feed's server there"
            ) from None


def _is_address(url: str, scheme: str) -> bool:
    """Return whether a setting is the address of a server."""
    try:
        parts = urlsplit(url)
        return parts.scheme == scheme and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _parse_networks(text: str) -> Sequence[IPv4Network | IPv6Network]:
    try:
        return [ip_network(word) for word in filter(None, text.split(","))]
    except ValueError as error:
        raise SettingError(f"the inventory sets invalid networks for a feed: {error}") from None


def _find_response_error(fetch: Fetch, answer: Response) -> HostError | None:
    """Return the error of a response by its headers, or None."""
    if answer.status != HTTPStatus.OK:
        return UnreachableError(
            f"{fetch.url} returned status {answer.status} instead of a document"
        )
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind not in fetch.media_types:
        return ParseError(
            f"{fetch.url} returned {kind or 'no media type'}: it must be "
            f"{' or '.join(fetch.media_types)}"
        )
    if answer.encoding != "identity":
        return ParseError(
            f"{fetch.url} returned a compressed document ({answer.encoding}) unrequested"
        )
    return None
