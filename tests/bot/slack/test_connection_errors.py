"""Errors of the connection to Slack say what is wrong and what to do."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from ssl import SSLCertVerificationError

import pytest
from aiohttp import ClientConnectorCertificateError
from aiohttp.client_reqrep import ConnectionKey
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack import self_check
from tests.playground.tls import create_certificate

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def refusing_proxy(status: str) -> AsyncGenerator[str]:
    """Yield where a proxy listens that says no."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def explain_connection_error(proxy: str) -> str:
    """Return what is said of a call that goes by this proxy."""
    client = AsyncWebClient("xoxb-1", proxy=proxy, timeout=5, retry_handlers=[])
    with pytest.raises(Exception) as trouble:  # noqa: PT011 - whatever aiohttp makes of it
        await client.auth_test()
    return self_check.explain_failure(trouble.value, proxy=proxy)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            "407 Proxy Authentication Required",
            "requires a login: set HTTPS_PROXY=http://NAME:PASSWORD@",
        ),
        ("403 Forbidden", "refuses the connection (status 403)"),
    ],
)
async def test_proxy_refusal_is_explained_without_its_password(status: str, message: str):
    async with refusing_proxy(status) as at:
        words = await explain_connection_error(f"http://kim:hunter2@{at}")
    assert message in words
    assert at in words
    assert "hunter2" not in words


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "http://proxy.invalid:3128"])
async def test_unreachable_proxy_is_named_in_the_connection_error(proxy: str):
    assert f"{proxy[7:]} does not answer" in await explain_connection_error(proxy)


@pytest.mark.parametrize("proxy", ["127.0.0.1:3128", "proxy.example.com", "http://a:b"])
async def test_invalid_proxy_address_is_refused_with_its_syntax(proxy: str):
    assert "http://HOST:PORT" in await explain_connection_error(proxy)


def test_connection_error_without_a_proxy_suggests_https_proxy():
    assert "HTTPS_PROXY" in self_check.explain_failure(OSError("no route"))
    assert "HTTPS_PROXY" in self_check.explain_failure(TimeoutError())
    assert "through the proxy p:1" in self_check.explain_failure(
        TimeoutError(), proxy="http://p:1"
    )


def test_tls_certificate_error_explains_ssl_cert_file(tmp_path: Path):
    key = ConnectionKey("slack.com", 443, True, True, None, None, None)
    shown = ClientConnectorCertificateError(key, SSLCertVerificationError("self-signed"))
    (tmp_path / "rubbish").write_text("no certificate")
    another = create_certificate(tmp_path, names=("slack.com",)).authority
    messages = {
        "": "set SSL_CERT_FILE to the file",
        str(tmp_path / "nowhere"): "cannot read",
        str(tmp_path / "rubbish"): "contains no PEM certificates",
        str(another): "does not contain the authority that signed it",
    }
    for file, words in messages.items():
        assert words in self_check.explain_failure(shown, authorities=file)
