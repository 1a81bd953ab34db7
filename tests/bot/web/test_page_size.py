"""The bytes that a browser downloads for its first page."""

import re

import pytest

from tests.bot.harness import Harness
from tests.bot.web.conftest import Site
from tests.toy import SetSwitch

_MAX_BYTES = 150_000


def _measure_page_bytes(site: Site, path: str, encoding: str) -> int:
    """Return the bytes that come over the line for a page and all that it names."""
    browser = site.browser("olga")
    browser.headers["Accept-Encoding"] = encoding
    page = browser.get(path)
    named = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text))
    assert any("tabler" in name for name in named)
    answers = [page, *(browser.get(name) for name in sorted(named))]
    assert {answer.status_code for answer in answers} == {200}
    return sum(answer.num_bytes_downloaded for answer in answers)


@pytest.mark.parametrize("path", ["/", "/runs/1"])
def test_page_with_its_assets_is_below_150_kb_compressed(
    harness: Harness, site: Site, path: str
) -> None:
    for _ in range(40):
        harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    assert _measure_page_bytes(site, path, "gzip") < _MAX_BYTES


def test_without_compression_a_page_is_above_150_kb(site: Site) -> None:
    """The twin: uncompressed it would be too much."""
    assert _measure_page_bytes(site, "/", "identity") > _MAX_BYTES
