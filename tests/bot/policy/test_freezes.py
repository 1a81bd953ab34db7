"""Freezes across midnight, time zones and clock changes."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from bot.policy import NoPolicyError
from bot.policy.freezes import Freeze
from connectors.inventory import Host
from tests.policies import HOST_KEY, write_policy


def _parse_time(text: str, zone: str = "UTC") -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


_LB1 = Host.model_validate(
    {"name": "lb1", "address": "127.0.0.1", "host_key": HOST_KEY, "area": "edge", "tags": ["tor"]}
)


def _is_active(freeze: Mapping[str, object], when: datetime) -> bool:
    made = Freeze.model_validate({"name": "a freeze", **freeze})
    end = made.get_end_if_active(_LB1, runbook="abusers clear", now=when.astimezone(UTC))
    return end is not None


YEAR_END: dict[str, object] = {
    "from": "2026-12-20 18:00",
    "until": "2027-01-04 08:00",
    "zone": "Europe/Amsterdam",
}
NIGHTS: dict[str, object] = {
    "days": ["fri", "sat"],
    "from": "22:00",
    "until": "06:00",
    "zone": "America/New_York",
}


@pytest.mark.parametrize(
    ("freeze", "when", "zone", "holds"),
    [
        (YEAR_END, "2026-12-20 17:59", "Europe/Amsterdam", False),
        (YEAR_END, "2026-12-20 18:00", "Europe/Amsterdam", True),
        (YEAR_END, "2026-12-20 17:00", "UTC", True),
        (YEAR_END, "2027-01-04 07:59", "Europe/Amsterdam", True),
        (YEAR_END, "2027-01-04 08:00", "Europe/Amsterdam", False),
        (YEAR_END, "2027-01-04 07:30", "UTC", False),
        # Friday, 20 November 2026
        (NIGHTS, "2026-11-20 21:59", "America/New_York", False),
        (NIGHTS, "2026-11-20 22:00", "America/New_York", True),
        (NIGHTS, "2026-11-21 05:59", "America/New_York", True),
        (NIGHTS, "2026-11-21 06:00", "America/New_York", False),
        (NIGHTS, "2026-11-22 03:00", "America/New_York", True),
        (NIGHTS, "2026-11-23 03:00", "America/New_York", False),
        (NIGHTS, "2026-11-21 04:00", "UTC", True),
    ],
)
def test_freeze_holds_from_its_start_until_its_end(
    freeze: Mapping[str, object], when: str, zone: str, holds: bool
):
    assert _is_active(freeze, _parse_time(when, zone)) is holds


def test_freeze_includes_both_occurrences_of_an_ambiguous_time():
    """On 31 October 2027 02:30 comes twice in Berlin: once at 00:30 and once at 01:30 UTC."""
    zone = "Europe/Berlin"
    until = {"from": "2027-10-30 00:00", "until": "2027-10-31 02:30", "zone": zone}
    since = {"from": "2027-10-31 02:30", "until": "2027-11-01 00:00", "zone": zone}
    assert _is_active(until, _parse_time("2027-10-31 01:29"))
    assert not _is_active(until, _parse_time("2027-10-31 01:30"))
    assert _is_active(since, _parse_time("2027-10-31 00:30"))
    assert not _is_active(since, _parse_time("2027-10-31 00:29"))


def test_freeze_that_starts_at_a_skipped_time_has_a_start_and_an_end():
    """On 28 March 2027 there is no 02:30 in Berlin."""
    nightly = {"days": ["sun"], "from": "02:30", "until": "05:00", "zone": "Europe/Berlin"}
    held = [
        minute
        for minute in range(24 * 60)
        if _is_active(nightly, _parse_time("2027-03-28 00:00") + timedelta(minutes=minute))
    ]
    assert (held[0], held[-1]) == (60 + 30, 3 * 60 - 1)


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({"areas": ["edge"]}, True),
        ({"areas": ["storage"]}, False),
        ({"hosts": ["lb*"]}, True),
        ({"hosts": ["web1", "@tor"]}, True),
        ({"hosts": ["lb2", "@nginx"]}, False),
        ({"areas": ["storage"], "hosts": ["lb*"]}, False),
        ({"but": ["abusers *"]}, False),
        ({"but": ["zfs *"]}, True),
    ],
)
def test_freeze_applies_to_its_areas_except_for_excluded_runbooks(
    changes: Mapping[str, object], holds: bool
):
    assert _is_active(YEAR_END | dict(changes), _parse_time("2026-12-25 12:00")) is holds


@pytest.mark.parametrize(
    ("freeze", "says"),
    [
        (YEAR_END | {"zone": "Mars/Olympus"}, "unknown time zone 'Mars/Olympus'"),
        (YEAR_END | {"until": "2026-12-01 08:00"}, "until must be after from"),
        ({"from": "18:00", "until": "07:00"}, "or add days of the week"),
        (YEAR_END | {"days": ["mon"]}, "times of day"),
        (YEAR_END | {"from": "2026-12-20T18:00+01:00"}, "remove the offset"),
        (YEAR_END | {"hosts": ["lb1; reboot"]}, "String should match pattern"),
        (YEAR_END | {"except": ["abusers"]}, "Extra inputs"),
    ],
)
def test_invalid_freeze_is_rejected_with_the_reason(freeze: Mapping[str, object], says: str):
    with pytest.raises(ValidationError) as broken:
        Freeze.model_validate({"name": "a freeze", **freeze})
    assert says in str(broken.value)


def test_freezes_file_of_the_policy_is_optional(tmp_path: Path):
    policy = write_policy(tmp_path)
    assert policy.get_policy().describe_freeze(["lb1"], runbook="x", now=0) == ""
    (tmp_path / "freezes.yaml").write_text(
        'freezes: [{name: always, from: "1969-01-01 00:00", until: "2999-01-01 00:00"}]\n'
    )
    assert policy.get_policy().describe_freeze(["lb1"], runbook="x", now=0) == (
        "the edge is frozen until 2999-01-01 00:00 UTC (always)"
    )


def test_freeze_of_an_unknown_area_makes_the_policy_invalid(tmp_path: Path):
    policy = write_policy(tmp_path)
    (tmp_path / "freezes.yaml").write_text(
        'freezes: [{name: x, areas: [moon], days: [mon], from: "01:00", until: "02:00"}]\n'
    )
    with pytest.raises(NoPolicyError, match=r"area moon is not in areas\.yaml"):
        policy.get_policy()
