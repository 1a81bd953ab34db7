"""The documented configuration of nginx serves pages and their streams over TLS."""

import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.playground import sample_company
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


@pytest.fixture
def proxied(tmp_path: Path, certified: Certified) -> Iterator[Service]:
    """Yield a service whose address for people is that of nginx."""
    sample_company.create_policy(tmp_path / "policy")
    port = find_free_port("127.0.0.1")
    address = f"https://{NAME}:{port}"
    with Service(tmp_path, slack="", base_url=address) as service:
        [text] = re.findall(r"(?ms)^```nginx\n(.*?)^```", PAGE.read_text())
        for theirs, ours in (
            ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
            ("keyturn.example.com", NAME),
            ("/etc/ssl/keyturn/fullchain.pem", str(certified.chain)),
            ("/etc/ssl/keyturn/key.pem", str(certified.chain)),
            ("127.0.0.1:8080", f"127.0.0.1:{service.keyturn.settings.port}"),
        ):
            assert theirs in text
            text = text.replace(theirs, ours)
        nginx = Nginx()
        (nginx.conf_d / "keyturn.conf").write_text(text)
        with nginx:
            yield service


def test_nginx_serves_sign_in_pages_and_streams_over_tls(proxied: Service, certified: Certified):
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
