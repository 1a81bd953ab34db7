from collections.abc import Generator

import pytest
from playwright.sync_api import Browser

from tests.acceptance.accessibility import open_sample_pages, open_visit
from tests.acceptance.browsing import Server, Visit, chromium


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    """One browser for all that a module's tests visit."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def sample_pages(
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[tuple[Server, dict[str, int]]]:
    """Pages that have all kinds of runs to show, and the number of a run of each kind."""
    with open_sample_pages(tmp_path_factory.mktemp("harness")) as pages:
        yield pages


@pytest.fixture(scope="module")
def visit(browser: Browser, sample_pages: tuple[Server, dict[str, int]]) -> Generator[Visit]:
    """An owner who is signed in there."""
    with open_visit(browser, sample_pages[0]) as visit:
        yield visit
