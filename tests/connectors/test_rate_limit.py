from pathlib import Path

import pytest

from connectors import rate_limit
from connectors.command import Answer, Shell, find_failure
from connectors.errors import SettingError
from connectors.rate_limit import (
    LimitCounts,
    RateLimits,
    RateZone,
    ZoneUse,
    parse_counts,
    parse_limits,
)
from tests.connectors.understanding import is_understood

ANSWERS = Path(__file__).parent / "answers" / "rate_limit"
CONFIGURATION = (ANSWERS / "configuration.txt").read_text()
COUNTED = (ANSWERS / "counts.txt").read_text()


def test_nginx_rate_limit_zones_and_uses_are_parsed():
    assert parse_limits(CONFIGURATION) == RateLimits(
        zones=(
            RateZone("one", "$binary_remote_addr", "10m", "1r/s"),
            RateZone("slow", "$http_user_agent", "1m", "60r/m"),
            RateZone("spare", "$server_name", "1m", "5r/s"),
        ),
        uses=(
            ZoneUse("slow", 2, nodelay=False),
            ZoneUse("one", 3, nodelay=True),
            ZoneUse("slow", 2, nodelay=False),
        ),
        status=429,
        dry_run=False,
    )


def test_commented_out_nginx_rate_limit_is_ignored():
    assert "zone=old:1m" in CONFIGURATION
    assert "old" not in {zone.name for zone in parse_limits(CONFIGURATION).zones}


def test_nginx_rate_limit_status_is_503_by_default():
    plain = CONFIGURATION.replace("limit_req_status 429;", "limit_req_dry_run on;")
    assert (parse_limits(plain).status, parse_limits(plain).dry_run) == (503, True)


def test_refused_and_delayed_nginx_requests_are_counted_by_zone():
    assert parse_counts(COUNTED) == LimitCounts(refused={"one": 5}, delayed={"slow": 2})
    assert parse_counts("some\n") == LimitCounts({}, {})
    assert parse_counts("none\n") == LimitCounts({}, {}, is_logged=False)


@pytest.mark.parametrize("answer", ["", "7\n", "none\nsome\n", "some\nmany limiting\n"])
def test_invalid_nginx_rate_limit_counts_are_not_understood(answer: str):
    assert not is_understood(lambda: parse_counts(answer))


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "server {}\n",
        CONFIGURATION.replace(" rate=1r/s", ""),
        CONFIGURATION.replace("limit_req zone=one", "limit_req one"),
    ],
)
def test_invalid_nginx_rate_limit_configuration_is_not_understood(answer: str):
    assert not is_understood(lambda: parse_limits(answer))


@pytest.mark.parametrize("path", ["-s", "/etc/a; id", "/etc/$(id)", "nginx.conf", "/etc/a b", ""])
def test_nginx_config_setting_that_is_no_path_is_refused(path: str):
    shell = rate_limit.query_limits().command
    assert isinstance(shell, Shell)
    with pytest.raises(SettingError):
        shell.resolve({"nginx.config": path}, sudo=False)


def test_invalid_nginx_configuration_is_explained():
    failure = Answer(1, "", "nginx: [emerg] unknown directive in /etc/nginx/nginx.conf:3")
    error = find_failure(rate_limit.query_limits().command, failure, frozenset({0}))
    assert "fix it before the next restart" in str(error)
