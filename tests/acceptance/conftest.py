import subprocess
from collections.abc import Generator, Mapping

import pytest
from playwright.sync_api import Browser

from tests.acceptance.accessibility import open_sample_pages, open_visit
from tests.acceptance.browsing import Server, Visit, chromium
from tests.bot.signing.ssh_key import SshKey
from tests.playground.enrolled import EnrolledLogins
from tests.playground.enrolled_service import create_keys, open_enrolled_host


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


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, SshKey]:
    """The keys with which people sign."""
    return create_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def enrolled(keys: Mapping[str, SshKey]) -> Generator[EnrolledLogins]:
    """A host that itself checks who signed a change."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may give a server logins of its own")
    with open_enrolled_host(keys) as host:
        yield host
