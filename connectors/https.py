"""Downloads over HTTPS: one download serves all hosts that need the document."""

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
from connectors.public_addresses import Address, is_forbidden, is_public

_Network = IPv4Network | IPv6Network


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
        trust = self._load_authority(str(fetch.authority))
        try:
            body = asyncio.run(_get_document(fetch, trust))
        except TimeoutError:
            raise UnreachableError(
                f"{fetch.url} did not return the whole document within {fetch.deadline} s: "
                "try again later"
            ) from None
        except httpx2.ProxyError as error:
            raise UnreachableError(
                f"the proxy {fetch.proxy} cannot reach {fetch.url} ({error}): allow it "
                "there, or change the feed's proxy in the inventory"
            ) from None
        except httpx2.HTTPError as error:
            way = f" through the proxy {fetch.proxy}" if fetch.proxy else ""
            raise UnreachableError(
                f"{fetch.url} did not return a complete document{way} ({error})"
            ) from None
        try:
            return Answer(0, body.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise ParseError(f"{fetch.url} returned text that is not UTF-8") from None

    def _load_authority(self, authority: str) -> ssl.SSLContext:
        file = self._files / authority if authority else None
        try:
            return ssl.create_default_context(cafile=file)
        except OSError as error:  # ssl's own errors among them
            raise SettingError(
                f"cannot use the authority file {file} ({error.strerror or error}): put the "
                "PEM certificates of the CA that signed the feed's server there"
            ) from None


async def _get_document(fetch: Fetch, trust: ssl.SSLContext) -> bytes:
    """Download the document from the first address of its server that accepts a connection.

    The name is resolved once and the connection goes to an address that was checked, so that a
    changing DNS answer leads nowhere else. Redirects are not followed, and only the inventory's
    proxy is used. A proxy resolves the name itself and decides what it may reach. The server's
    certificate is verified in both cases.
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
    except OSError as error:
        raise UnreachableError(f"DNS cannot resolve {host} ({error.strerror or error})") from None
    addresses = [ip_address(str(where[0])) for *_, where in found]
    allowed = _parse_networks(str(fetch.networks))
    for address in addresses:
        if is_forbidden(address):
            raise UnreachableError(
                f"{host} has the address {address}, which is not public, and was not contacted: "
                "it is link-local, multicast, unspecified, embeds another address or holds the "
                "metadata of a cloud: correct the feed's address"
            )
        if not is_public(address) and not any(address in network for network in allowed):
            raise UnreachableError(
                f"{host} has the address {address}, which is not public, and was not contacted: "
                "if that is correct, add its network to the inventory beside the feed's address"
            )
    return addresses


def _parse_server(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        if parts.scheme == "https" and parts.hostname and parts.username is None:
            return parts.hostname, parts.port or 443
    except ValueError:
        pass
    raise SettingError(f"the inventory sets a feed's address to {url!r}: it must be https://…")


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
        f"the inventory sets a feed's proxy to {url!r}: it must be like http://proxy.example:3128"
    )


def _parse_networks(text: str) -> Sequence[_Network]:
    try:
        return [ip_network(word) for word in filter(None, text.split(","))]
    except ValueError as error:
        raise SettingError(f"the inventory sets invalid networks for a feed: {error}") from None


async def _read_document(
    client: httpx2.AsyncClient, fetch: Fetch, address: Address | None
) -> bytes:
    """Return the body. address: of the server; None if a proxy resolves it."""
    url = httpx2.URL(str(fetch.url))
    request = client.build_request(
        "GET",
        url if address is None else url.copy_with(host=str(address)),
        # A compressed body could be small here and huge once decompressed.
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
        if error := _find_response_error(fetch, answer):
            raise error
        body = bytearray()
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > fetch.max_bytes:
                raise ParseError(f"{fetch.url} returned more than {fetch.max_bytes} bytes")
        return bytes(body)
    finally:
        await answer.aclose()


def _find_response_error(fetch: Fetch, answer: httpx2.Response) -> HostError | None:
    """Return the error of a response by its headers, or None."""
    if answer.status_code != HTTPStatus.OK:
        return UnreachableError(
            f"{fetch.url} returned status {answer.status_code} instead of a document"
        )
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind not in fetch.media_types:
        return ParseError(
            f"{fetch.url} returned {kind or 'no media type'}: it must be "
            f"{' or '.join(fetch.media_types)}"
        )
    encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding != "identity":
        return ParseError(f"{fetch.url} returned a compressed document ({encoding}) unrequested")
    return None
