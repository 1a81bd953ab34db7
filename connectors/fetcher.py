"""Documents that Keyturn gets over HTTPS by itself, once for all hosts that need them."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from connectors.command import Answer, Fetch
from connectors.errors import HostError, ParseError, SettingError, UnreachableError
from connectors.public_addresses import Address, is_public

_Network = IPv4Network | IPv6Network


class Fetcher:
    """Fetches documents. Any thread may use it that runs no event loop.

    files: the directory that authority files in the inventory are relative to.
    keep: seconds for which a document is given again to whoever asks for the same one, so that a
    change on many hosts is planned, made and proved with one document.
    """

    def __init__(self, files: Path, *, cache_seconds: float = 60.0) -> None:
        self._files = files
        self._cache_seconds = cache_seconds
        self._lock = threading.Lock()
        self._cache: dict[Fetch, tuple[float, Answer]] = {}

    def fetch(self, fetch: Fetch) -> Answer:
        """Return the document as text.

        Raises UnreachableError where the server returns none, ParseError where it is of another
        kind or too long, and SettingError where the inventory's settings of it are wrong.
        """
        with self._lock:
            now = time.monotonic()
            since, answer = self._cache.get(fetch, (now, None))
            if answer is None or now - since >= self._cache_seconds:
                answer = self._download(fetch)
                self._cache[fetch] = (now, answer)
            return answer

    def _download(self, fetch: Fetch) -> Answer:
        trust = self._load_authority(str(fetch.authority))
        try:
            body = asyncio.run(_get_document(fetch, trust))
        except TimeoutError:
            raise UnreachableError(
                f"{fetch.url} did not give all of its document within {fetch.deadline} s: "
                "ask again later"
            ) from None
        except httpx2.ProxyError as trouble:
            raise UnreachableError(
                f"the proxy {fetch.proxy} does not lead to {fetch.url} ({trouble}): allow it "
                "there, or change the feed's proxy in the inventory"
            ) from None
        except httpx2.HTTPError as trouble:
            way = f" through the proxy {fetch.proxy}" if fetch.proxy else ""
            raise UnreachableError(
                f"{fetch.url} gave no whole document{way} ({trouble})"
            ) from None
        try:
            return Answer(0, body.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise ParseError(f"what {fetch.url} gave is no UTF-8 text") from None

    def _load_authority(self, authority: str) -> ssl.SSLContext:
        file = self._files / authority if authority else None
        try:
            return ssl.create_default_context(cafile=file)
        except OSError as trouble:  # ssl's own errors among them
            raise SettingError(
                f"the authority file {file} cannot be used ({trouble.strerror or trouble}): put "
                "the certificates there that the feed's server is signed by, in PEM"
            ) from None


async def _get_document(fetch: Fetch, trust: ssl.SSLContext) -> bytes:
    """Get the document from the first of its server's addresses that can be connected to.

    The name is looked up once, and the connection goes to an address that was found fit, so that
    a name that changes its mind leads nowhere else. Redirections are not followed, and no proxy
    but the one that the inventory names. A proxy looks the name up itself: where it may lead to is
    for the proxy to decide. The server's certificate counts there too.
    """
    _parse_server(str(fetch.url))
    proxy = _parse_proxy(str(fetch.proxy))
    async with asyncio.timeout(fetch.deadline):
        ways = [None] if proxy else await _resolve_addresses(fetch)
        async with httpx2.AsyncClient(
            verify=trust,
            trust_env=False,
            proxy=proxy,
            follow_redirects=False,
            timeout=fetch.deadline,
        ) as client:
            for address in ways[:-1]:
                try:
                    return await _read_document(client, fetch, address)
                except (httpx2.ConnectError, httpx2.ConnectTimeout):
                    continue
            return await _read_document(client, fetch, ways[-1])


async def _resolve_addresses(fetch: Fetch) -> Sequence[Address]:
    host, port = _parse_server(str(fetch.url))
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as trouble:
        raise UnreachableError(
            f"{host} has no address, says the name service ({trouble.strerror or trouble})"
        ) from None
    addresses = [ip_address(str(where[0])) for *_, where in found]
    allowed = _parse_networks(str(fetch.networks))
    for address in addresses:
        if not is_public(address) and not any(address in network for network in allowed):
            raise UnreachableError(
                f"{host} is at {address}, which is not a public address, and was not asked: if it "
                "is right, name its network in the inventory beside the feed's address"
            )
    return addresses


def _parse_server(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        if parts.scheme == "https" and parts.hostname and parts.username is None:
            return parts.hostname, parts.port or 443
    except ValueError:
        pass
    raise SettingError(f"the inventory sets {url!r} as a feed's address: it must be https://…")


def _parse_proxy(url: str) -> str | None:
    if not url:
        return None
    try:
        parts = urlsplit(url)
        if parts.scheme == "http" and parts.hostname and parts.port != 0:
            return url
    except ValueError:
        pass
    raise SettingError(
        f"the inventory sets {url!r} as a feed's proxy: it must be like http://proxy.example:3128"
    )


def _parse_networks(text: str) -> Sequence[_Network]:
    try:
        return [ip_network(word) for word in filter(None, text.split(","))]
    except ValueError as trouble:
        raise SettingError(
            f"the inventory's networks of a feed are not right: {trouble}"
        ) from None


async def _read_document(
    client: httpx2.AsyncClient, fetch: Fetch, address: Address | None
) -> bytes:
    """address: of the server; left out if a proxy finds it."""
    url = httpx2.URL(str(fetch.url))
    request = client.build_request(
        "GET",
        url if address is None else url.copy_with(host=str(address)),
        # What is packed could be small here and huge once it is unpacked.
        headers={
            "Host": url.netloc.decode("ascii"),
            "Accept": ", ".join(fetch.media_types),
            "Accept-Encoding": "identity",
            "User-Agent": "Keyturn",
        },
        extensions={"sni_hostname": url.host},
    )
    answer = await client.send(request, stream=True)
    try:
        if trouble := _find_response_error(fetch, answer):
            raise trouble
        body = bytearray()
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > fetch.max_bytes:
                raise ParseError(f"what {fetch.url} gives is longer than {fetch.max_bytes} bytes")
        return bytes(body)
    finally:
        await answer.aclose()


def _find_response_error(fetch: Fetch, answer: httpx2.Response) -> HostError | None:
    """Judge an answer by its head."""
    if answer.status_code != HTTPStatus.OK:
        return UnreachableError(
            f"{fetch.url} answered with status {answer.status_code} instead of a document"
        )
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind not in fetch.media_types:
        return ParseError(
            f"{fetch.url} gave {kind or 'something without a type'}, and it must be "
            f"{' or '.join(fetch.media_types)}"
        )
    packed = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if packed != "identity":
        return ParseError(f"{fetch.url} gave its document packed ({packed}), though not asked")
    return None
