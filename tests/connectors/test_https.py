"""Requests to a real HTTPS server, which can return anything, and documents fetched from it."""

import gzip
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from connectors import https
from connectors.command import Fetch, Query, Setting
from connectors.errors import HostError, ParseError, SettingError, UnreachableError
from connectors.fleet import Fleet
from connectors.https import Fetcher
from connectors.ssh_pool import SshPool
from tests.playground.fixed_response_server import FixedResponseServer, Reply, build_response
from tests.playground.proxy import Proxy
from tests.scripted_fleet import build_inventory

LOOPBACK = "127.0.0.0/8,::1/128"
BODY = b"5.172.196.188\n"


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[FixedResponseServer]:
    with FixedResponseServer(tmp_path) as mirror:
        mirror.replies["/list"] = build_response(BODY, kind="text/plain; charset=utf-8")
        yield mirror


@pytest.fixture
def feeds(tmp_path: Path) -> Fetcher:
    return Fetcher(tmp_path)


def fetch(
    mirror: FixedResponseServer, path: str = "/list", *, most: int = 1_000_000, deadline: int = 20
) -> Fetch:
    return Fetch(
        mirror.url(path),
        networks=LOOPBACK,
        authority=mirror.authority.name,
        max_bytes=most,
        deadline=deadline,
    )


def test_document_is_fetched_with_the_host_header_of_its_url(
    mirror: FixedResponseServer, feeds: Fetcher
):
    assert feeds.fetch(fetch(mirror)).out == BODY.decode()
    (head,) = mirror.heads
    assert f"\r\nHost: localhost:{mirror.port}\r\n" in head
    assert "\r\nAccept-Encoding: identity\r\n" in head


def test_document_for_many_hosts_is_fetched_once(mirror: FixedResponseServer, feeds: Fetcher):
    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(feeds.fetch, [fetch(mirror)] * 20))
    assert {build_response.out for build_response in answers} == {BODY.decode()}
    assert mirror.asked == ["/list"]


def test_document_is_fetched_each_time_without_a_cache(
    mirror: FixedResponseServer, tmp_path: Path
):
    feeds = Fetcher(tmp_path, cache_seconds=0)
    feeds.fetch(fetch(mirror))
    feeds.fetch(fetch(mirror))
    assert mirror.asked == ["/list", "/list"]


def test_failed_fetch_is_not_cached(mirror: FixedResponseServer, feeds: Fetcher):
    mirror.replies["/list"] = build_response(b"", status="503 Service Unavailable")
    with pytest.raises(UnreachableError):
        feeds.fetch(fetch(mirror))
    mirror.replies["/list"] = build_response(BODY, kind="text/plain")
    assert feeds.fetch(fetch(mirror)).out == BODY.decode()


def test_fleet_fetches_a_document_with_the_settings_of_the_host(
    mirror: FixedResponseServer, tmp_path: Path
):
    inventory = build_inventory("web1")
    web1 = inventory["web1"].model_copy(
        update={"settings": {"feed": mirror.url("/list"), "feed.ca": mirror.authority.name}}
    )
    sessions = SshPool(tmp_path)
    fleet = Fleet(inventory.model_copy(update={"hosts": {"web1": web1}}), sessions)
    mirrored = Fetch(Setting("feed", "https://example.com"), LOOPBACK, Setting("feed.ca", ""))
    assert str(fleet.resolve_command("web1", mirrored)) == f"GET {mirror.url('/list')}"
    assert fleet.run_query("web1", Query(mirrored, str.strip)) == "5.172.196.188"
    fleet.close()


def send_slowly(begin: bytes) -> Reply:
    """Send one byte at a time, fast enough that a read timeout never fires."""

    def reply(tls: ssl.SSLSocket) -> None:
        tls.sendall(begin)
        ticks = threading.Event()
        while not ticks.wait(0.05):
            tls.sendall(b"1")

    return reply


def send_nothing(tls: ssl.SSLSocket) -> None:
    tls.recv(1)


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (build_response(b"", status="204 No Content"), UnreachableError, "status 204"),
        (build_response(BODY, status="206 Partial Content"), UnreachableError, "status 206"),
        (build_response(b"gone", status="404 Not Found"), UnreachableError, "status 404"),
        (
            build_response(b"", status="302 Found", headers={"Location": "/elsewhere"}),
            UnreachableError,
            "status 302",
        ),
        (
            build_response(b"<html>", kind="text/html"),
            ParseError,
            "returned text/html: it must be",
        ),
        (
            build_response(BODY, headers={"Content-Type": ""}),
            ParseError,
            "no media type",
        ),
        (
            build_response(gzip.compress(b"1" * 10_000_000), headers={"Content-Encoding": "gzip"}),
            ParseError,
            "compressed document .gzip. unrequested",
        ),
        (build_response(b"1" * 1_000_001), ParseError, "more than 1000000 bytes"),
        (
            build_response(BODY, headers={"Content-Length": "99"}),
            UnreachableError,
            "did not return a complete document",
        ),
        (b"", UnreachableError, "did not return a complete document"),
        (b"nonsense\r\n\r\n", UnreachableError, "did not return a complete document"),
        (build_response(b"\xff\xfe5\x00"), ParseError, "not UTF-8"),
    ],
)
def test_fetch_refuses_an_invalid_http_answer(
    mirror: FixedResponseServer, feeds: Fetcher, reply: bytes, error: type[HostError], words: str
):
    kind = b"text/html" if b"text/html" in reply else b"text/plain"
    mirror.replies["/list"] = reply.replace(b"application/rss+xml", kind)
    with pytest.raises(error, match=words):
        feeds.fetch(fetch(mirror))
    assert mirror.asked == ["/list"]


@pytest.mark.parametrize(
    "reply",
    [
        send_slowly(b"HTTP/1.1 200 OK\r\nX-Long: "),
        send_slowly(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"),
        send_nothing,
    ],
    ids=["its head", "its body", "nothing"],
)
def test_fetch_from_a_slow_server_ends_at_its_deadline(
    mirror: FixedResponseServer, feeds: Fetcher, reply: Reply
):
    mirror.replies["/list"] = reply
    began = time.monotonic()
    with pytest.raises(UnreachableError, match="within 1 s"):
        feeds.fetch(fetch(mirror, deadline=1))
    assert time.monotonic() - began < 3


def test_fetch_of_an_endless_document_ends_at_the_size_limit(
    mirror: FixedResponseServer, feeds: Fetcher
):
    def pour(tls: ssl.SSLSocket) -> None:
        tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            tls.sendall(b"1" * 65536)

    mirror.replies["/list"] = pour
    with pytest.raises(ParseError, match="more than 1000000 bytes"):
        feeds.fetch(fetch(mirror))


def test_fetch_from_a_private_address_needs_its_network_in_the_inventory(
    mirror: FixedResponseServer, feeds: Fetcher
):
    with pytest.raises(UnreachableError, match="not public, and was not contacted"):
        feeds.fetch(Fetch(mirror.url("/list"), authority=mirror.authority.name))
    assert mirror.asked == []
    feeds.fetch(fetch(mirror))
    assert mirror.asked == ["/list"]


def test_fetch_refuses_a_certificate_of_an_unknown_ca(mirror: FixedResponseServer, feeds: Fetcher):
    with pytest.raises(UnreachableError, match="certificate verify failed"):
        feeds.fetch(Fetch(mirror.url("/list"), networks=LOOPBACK))
    assert mirror.asked == []


def test_fetch_refuses_a_certificate_for_another_name(mirror: FixedResponseServer, feeds: Fetcher):
    with pytest.raises(UnreachableError, match=r"certificate is not valid for '127\.0\.0\.1'"):
        feeds.fetch(
            Fetch(
                mirror.url("/list", host="127.0.0.1"),
                networks=LOOPBACK,
                authority=mirror.authority.name,
            )
        )
    assert mirror.asked == []


def without_a_server(mirror: FixedResponseServer) -> Fetch:
    return Fetch("https://localhost:1/", networks=LOOPBACK)


def without_a_name(mirror: FixedResponseServer) -> Fetch:
    return Fetch("https://nowhere.invalid/", networks=LOOPBACK)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (without_a_server, "did not return a complete document"),
        (without_a_name, "cannot resolve nowhere.invalid"),
    ],
)
def test_fetch_from_an_unreachable_server_says_why(
    mirror: FixedResponseServer,
    feeds: Fetcher,
    wanted: Callable[[FixedResponseServer], Fetch],
    words: str,
):
    with pytest.raises(UnreachableError, match=words):
        feeds.fetch(wanted(mirror))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Fetch("http://localhost/"), "must be https://"),
        (Fetch("https://name:secret@localhost/"), "must be https://"),
        (Fetch("file:///etc/passwd"), "must be https://"),
        (Fetch("https://[::1"), "must be https://"),
        (Fetch("https://localhost:99999/"), "must be https://"),
        (Fetch("https://localhost/", networks="127.0.0.1/8"), "invalid networks for a feed"),
        (Fetch("https://localhost/", authority="none.pem"), "cannot use .*No such file"),
    ],
)
def test_fetch_refuses_an_invalid_url_in_the_inventory(feeds: Fetcher, wanted: Fetch, words: str):
    with pytest.raises(SettingError, match=words):
        feeds.fetch(wanted)


def test_fetch_ignores_proxies_of_the_environment(
    mirror: FixedResponseServer, feeds: Fetcher, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert feeds.fetch(fetch(mirror)).out == BODY.decode()


@pytest.mark.parametrize("address", ["169.254.169.254", "[fe80::1]", "224.0.0.1"])
def test_fetch_never_contacts_link_local_or_metadata_addresses(tmp_path: Path, address: str):
    text = Fetch(f"https://{address}/latest", networks="0.0.0.0/0,::/0")
    with pytest.raises(UnreachableError, match="link-local, multicast"):
        Fetcher(tmp_path).fetch(text)


def send_to(mirror: FixedResponseServer, path: str, addresses: Sequence[str]) -> https.Response:
    return https.send_to_checked_address(
        https.Request("POST", mirror.url(path), body=b"{}"),
        https.Limits(5, 100),
        find_problem=lambda _: "",
        resolve=lambda _name, _port: addresses,
        trust=https.trust_authority(mirror.authority),
    )


def test_request_goes_to_the_next_address_when_the_first_accepts_no_connection(
    mirror: FixedResponseServer,
):
    assert send_to(mirror, "/list", ["127.0.0.9", "127.0.0.1"]).body == BODY
    assert mirror.asked == ["/list"]


def test_request_that_a_server_may_have_received_is_sent_to_no_other_address(
    mirror: FixedResponseServer,
):
    mirror.replies["/change"] = b""
    with pytest.raises(https.HttpsError) as raised:
        send_to(mirror, "/change", ["127.0.0.1", "127.0.0.1"])
    assert not isinstance(raised.value, https.NotSentError)
    assert mirror.asked == ["/change"]


def test_request_is_not_sent_when_one_of_several_addresses_is_forbidden(
    mirror: FixedResponseServer,
):
    with pytest.raises(https.NotSentError, match=r"169\.254\.169\.254, which is not public"):
        send_to(mirror, "/list", ["127.0.0.1", "169.254.169.254"])
    assert mirror.asked == []


def fetch_through(proxy: str, url: str, mirror: FixedResponseServer) -> Fetch:
    return Fetch(url, authority=mirror.authority.name, proxy=proxy)


def test_document_is_fetched_through_the_proxy_of_the_inventory(tmp_path: Path):
    """DNS does not know the server's name; the proxy does."""
    with FixedResponseServer(tmp_path, names=("feed.invalid",)) as mirror:
        mirror.replies["/list"] = build_response(BODY, kind="text/plain")
        with Proxy({"feed.invalid:443": mirror.port}) as proxy:
            text = fetch_through(proxy.url, "https://feed.invalid/list", mirror)
            assert Fetcher(tmp_path).fetch(text).out == BODY.decode()
            assert proxy.requests == ["CONNECT feed.invalid:443"]
        (head,) = mirror.heads
    assert "\r\nHost: feed.invalid\r\n" in head


def test_fetch_refuses_another_server_behind_the_proxy(
    mirror: FixedResponseServer, feeds: Fetcher
):
    with (
        Proxy({"feed.invalid:443": mirror.port}) as proxy,
        pytest.raises(
            UnreachableError, match=r"through the proxy http://127.* not valid for 'feed"
        ),
    ):
        feeds.fetch(fetch_through(proxy.url, "https://feed.invalid/list", mirror))
    assert mirror.asked == []


def test_fetch_names_the_proxy_that_refuses(mirror: FixedResponseServer, feeds: Fetcher):
    with (
        Proxy({}) as proxy,
        pytest.raises(UnreachableError, match=f"the proxy {proxy.url} cannot reach .*403 Forbid"),
    ):
        feeds.fetch(fetch_through(proxy.url, mirror.url("/list"), mirror))
    assert mirror.asked == []


def test_fetch_names_the_proxy_that_is_unreachable(mirror: FixedResponseServer, feeds: Fetcher):
    """Nothing is fetched without the proxy."""
    with pytest.raises(UnreachableError, match=r"through the proxy http://127\.0\.0\.1:1 "):
        feeds.fetch(fetch_through("http://127.0.0.1:1", mirror.url("/list"), mirror))
    assert mirror.asked == []


@pytest.mark.parametrize(
    "proxy", ["proxy:3128", "https://proxy:3128", "http://", "http://proxy:99999", "http://[::1"]
)
def test_fetch_refuses_an_invalid_proxy_address(
    mirror: FixedResponseServer, feeds: Fetcher, proxy: str
):
    with pytest.raises(SettingError, match="it must be like http://"):
        feeds.fetch(fetch_through(proxy, mirror.url("/list"), mirror))
