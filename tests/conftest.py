"""Fixtures of all tests."""

import gc
import os
from collections.abc import Generator, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from bot.policy import Policy, loader
from tests import compiled_statements
from tests.bot.slack import schema_check
from tests.campaigns import CHAOS
from tests.chaos import report
from tests.playground.fleet import LoopbackFleet
from tests.playground.haproxy import Haproxy
from tests.playground.sshd import Sshd
from tests.playground.tls import create_certificate

# What others may write is refused, so no file of a test is written so.
os.umask(0o022)

# Where a property test does not say how many examples it tries; `make chaos` tries many. None
# fails because the machine is busy.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("short", _UNTIMED, max_examples=30)
settings.register_profile("long", _UNTIMED, max_examples=1000)
settings.load_profile("long" if CHAOS else "short")

compiled_statements.share()

# Files that take longest, the longest first: whoever began one of them last would be waited for.
LONGEST = (
    "test_features",
    "test_package",
    "test_service_group",
    "test_own",
    "test_accessible_pages",
    "test_accessible_states",
    "test_viewing",
    "test_repository",
    "test_schema",
    "test_run_from_pipelines",
    "test_agreement",
    "test_search",
    "test_workers",
    "test_hostile",
    "test_main_workflow",
    "test_zfs_real",
    "test_pages_without_scripts",
    "test_probation_real",
    "test_rebuild_real",
    "test_ssh",
    "test_web_in_browser",
    "test_run_in_browser",
    "test_sudo",
    "test_replicas",
    "test_backup",
    "test_enrol",
    "test_imports",
    "test_oidc",
    "test_second_factor_in_browser",
    "test_oidc_in_browser",
    "test_pages_in_browser",
    "test_card_layout",
    "test_browser",
    "test_main",
    "test_http_flood",
    "test_frozen_database",
    "test_state_machine",
    "test_showcase",
    "test_random_kills",
    "test_slack_scenario",
    "test_silence",
    "test_leases",
    "test_tools",
    "test_routes",
    "test_slack_over_proxy",
    # They add network links, which a browser takes for another network: it loads nothing for a
    # moment. By then all tests with browsers have ended.
    "test_csf_real",
    "test_csf_through_the_gate",
)

# Folders whose files mostly wait for daemons, as those above do.
WAITING = ("acceptance", "chaos")

# Those of `make chaos`, in which single tests take a quarter of an hour.
LONGEST_CAMPAIGNS = (
    "test_failing_disk",
    "test_kill_at_system_calls",
    "test_replicas",
    "test_state_machine",
)

# A daemon is up in some hundredths of a second, so each test has its own: nobody meets the logins
# or the table entries of another test, in whatever order and on however many workers they run.


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have Python's garbage collector ignore the tests themselves, and run less often.

    It would find nothing while they are collected, and each later pass over all of them takes a
    third of a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mix the files that wait for daemons with those that compute, so that no core is ever idle.

    Each of the two lists starts with its longest files: the others fill the time until they end.
    """
    names = (*LONGEST_CAMPAIGNS, *LONGEST) if CHAOS else LONGEST
    waiting: list[Path] = []
    computing: list[Path] = []
    for path in dict.fromkeys(item.path for item in items):
        waits = path.stem in names or path.parent.name in WAITING
        (waiting if waits else computing).append(path)
    waiting.sort(key=lambda path: names.index(path.stem) if path.stem in names else len(names))
    turns = {
        path: place / len(paths)
        for paths in (waiting, computing)
        for place, path in enumerate(paths)
    }
    items.sort(key=lambda item: turns[item.path])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collect garbage once: pytest does ten times, and each takes a third of a second."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the results of the campaigns of `make chaos`, whichever worker ran them."""
    reports = [
        one for outcome in ("passed", "failed") for one in terminalreporter.getreports(outcome)
    ]
    lines = report.list_results(reports)
    if lines and CHAOS:
        terminalreporter.section("results")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def slack_payload_checks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        schema_check.install_checks(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def cached_policies() -> Iterator[None]:
    """Read and check the same texts once: thousands of tests begin with the same few policies."""
    read = vars(loader)["_build_policy"]

    @lru_cache(maxsize=20)
    def policy(former_names: frozenset[tuple[str, str]], *texts: tuple[str, str]) -> Policy:
        return read(dict(texts), former_names)

    def load(
        texts: Mapping[str, str], former_names: frozenset[tuple[str, str]] = frozenset()
    ) -> Policy:
        # Tests freeze theirs, and put other hosts into it.
        known = policy(former_names, *texts.items())
        return known.with_hosts_and_freezes([], known.freezes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "_build_policy", load)
        # Tests edit a policy and go on: on a busy machine it may take longer to read.
        patch.setattr(loader, "MAX_WAIT_SECONDS", 60.0)
        patch.setattr(loader, "Rules", lru_cache(maxsize=50)(loader.Rules))
        yield


@pytest.fixture(scope="session", autouse=True)
def trusted_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust one authority instead of the system's 140: each HTTP client would load them anew.

    Whoever has the tests speak to a Slack elsewhere may name another.
    """
    with pytest.MonkeyPatch.context() as patch:
        if {"SSL_CERT_FILE", "KEYTURN_SLACK_BOT_TOKEN"} - os.environ.keys():
            made = create_certificate(tmp_path_factory.mktemp("authority"), names=())
            patch.setenv("SSL_CERT_FILE", str(made.authority))
        yield


@pytest.fixture(autouse=True)
def only_valid_slack_payloads(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail whichever test had something said to Slack, or by it, that Slack's types do not allow.

    One that says such things on purpose is marked `malformed`.
    """
    schema_check.violations.clear()
    yield
    wrong = [*schema_check.violations]
    schema_check.violations.clear()
    if wrong and request.node.get_closest_marker("malformed") is None:
        pytest.fail("not as Slack writes it:\n" + "\n".join(wrong[:10]), pytrace=False)


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    with Sshd() as server:
        yield server


@pytest.fixture
def haproxy() -> Iterator[Haproxy]:
    with Haproxy() as balancer:
        yield balancer


@pytest.fixture
def loopback_fleet() -> Iterator[LoopbackFleet]:
    with LoopbackFleet() as fleet:
        yield fleet
