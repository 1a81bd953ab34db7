"""Slack at its own address, by a proxy that shows a certificate of its own: the product as it is.

Nothing but environment variables says where Slack is.
"""

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from tests.playground.slack_over_tls import SlackOverTls

pytestmark = pytest.mark.real

SCENARIO = Path(__file__).with_name("test_slack_scenario.py")
ROOT = SCENARIO.parents[2]


@pytest.fixture
def workspace() -> Generator[SlackOverTls]:
    with SlackOverTls() as workspace:
        yield workspace


def build_clean_environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with nothing in it that says how to reach anything."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KEYTURN_", "SSL_CERT_", "PYTEST_", "COV_"))
        and not name.lower().endswith("_proxy")
    }
    return {**ours, **more}


def run_scenario(environment: Mapping[str, str], *words: str) -> str:
    """Run the scenario in a process of its own; return what pytest said.

    Plugins that it does not need would take longer to load than its stories take.
    """
    plugins = ("-p", "pytest_timeout", "-p", "no:cacheprovider")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, SCENARIO, *words],
        cwd=ROOT,
        env=build_clean_environment({**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("omitted", "stories", "passed"),
    [
        ("KEYTURN_SLACK_SIGNING_SECRET", "decided_by_two or limits", "2 passed"),
        ("KEYTURN_SLACK_APP_TOKEN", "decided_by_two", "1 passed"),
    ],
    ids=["Socket Mode", "HTTP"],
)
def test_slack_scenario_runs_over_a_proxy_named_by_the_environment(
    workspace: SlackOverTls, omitted: str, stories: str, passed: str, tmp_path: Path
):
    environment = {**workspace.environment}
    del environment[omitted]
    output = run_scenario(environment, "-k", stories, f"--basetemp={tmp_path}/played")
    assert passed in output, output
    assert "skipped" not in output, output
    assert set(workspace.visited()) == {"CONNECT slack.com:443"}
