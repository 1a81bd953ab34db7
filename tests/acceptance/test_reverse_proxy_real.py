"""The documented configurations of nginx and Caddy serve pages and their streams over TLS."""

import re
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx2
import pytest

from tests.playground import sample_company
from tests.playground.caddy import Caddy
from tests.playground.daemon import find_free_port
from tests.playground.nginx import Nginx
from tests.playground.service import Service
from tests.playground.tls import Certified, create_certificate

pytestmark = pytest.mark.real

PAGE = Path(__file__).parents[2] / "docs" / "installation.md"
NAME = "localhost"


@pytest.fixture
def certified(tmp_path: Path) -> Certified:
    return create_certificate(tmp_path, names=(NAME,))


@pytest.fixture(params=["nginx", "caddy"])
def proxied(
    request: pytest.FixtureRequest, tmp_path: Path, certified: Certified
) -> Iterator[Service]:
    """Yield a service whose address for people is that of a proxy."""
    sample_company.create_policy(tmp_path / "policy")
    port = find_free_port("127.0.0.1")
    address = f"https://{NAME}:{port}"
    start = {"nginx": _build_nginx, "caddy": _build_caddy}[request.param]
    with (
        Service(tmp_path, slack="", base_url=address) as service,
        start(port, certified, service.keyturn.settings.port),
    ):
        yield service


def _read_configuration(language: str, replaced: Mapping[str, str]) -> str:
    """Return the configuration on the page, with the places of this test."""
    [text] = re.findall(rf"(?ms)^```{language}\n(.*?)^```", PAGE.read_text())
    for theirs, ours in replaced.items():
        assert theirs in text
        text = text.replace(theirs, ours)
    return text


def _build_nginx(port: int, certified: Certified, upstream: int) -> Nginx:
    places = {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "keyturn.example.com": NAME,
        "/etc/ssl/keyturn/fullchain.pem": str(certified.chain),
        "/etc/ssl/keyturn/key.pem": str(certified.chain),
        "127.0.0.1:8080": f"127.0.0.1:{upstream}",
    }
    nginx = Nginx()
    (nginx.conf_d / "keyturn.conf").write_text(_read_configuration("nginx", places))
    return nginx


def _build_caddy(port: int, certified: Certified, upstream: int) -> Caddy:
    # Without the line, it asks a public authority for a certificate.
    given = f"    bind 127.0.0.1\n    tls {certified.chain} {certified.chain}\n"
    places = {
        "keyturn.example.com {\n": f"{NAME}:{port} {{\n{given}",
        "127.0.0.1:8080": f"127.0.0.1:{upstream}",
    }
    return Caddy(_read_configuration("caddy", places), port=port)


def test_proxy_serves_sign_in_pages_and_streams_over_tls(proxied: Service, certified: Certified):
    context = ssl.create_default_context(cafile=str(certified.authority))
    address = proxied.address
    with httpx2.Client(base_url=address, verify=context, follow_redirects=True) as browser:
        assert "Sign in" in browser.get("/").text
        link = proxied.sign_in_link("dora")
        assert link.startswith(address)
        home = browser.post(link, headers={"Origin": address})
        assert home.status_code == 200
        assert "Dora" in home.text
        assert home.headers["strict-transport-security"] == "max-age=31536000"
        [cookie] = browser.cookies.jar
        assert cookie.secure
        # The first event comes at once, although the answer does not end.
        with browser.stream("GET", "/stream") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert next(line for line in answer.iter_lines() if line.startswith("event:"))
