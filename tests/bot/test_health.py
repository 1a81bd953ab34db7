"""The health checks of the service, each with its level and fix."""

import os
from pathlib import Path

from bot.health import ServiceHealth, check_witness_count
from bot.integrations.witnesses import describe_witness
from tests.bot.harness import Harness
from tests.bot.host_contacts import store_contact
from tests.bot.web.sample_runs import add_sample_runs


def _get_levels(condition: ServiceHealth) -> dict[str, str]:
    return {one.subject: one.level for one in condition.list_results()}


def _get_message(condition: ServiceHealth, about: str) -> str:
    return next(one.message for one in condition.list_results() if one.subject == about)


def test_fresh_service_is_healthy_except_for_the_missing_witness(harness: Harness):
    marks = _get_levels(ServiceHealth(harness.database))
    assert marks.pop("Witnesses") == "warning"
    assert set(marks.values()) == {"ok"}


def test_health_reports_a_clock_behind_the_database_clock(harness: Harness):
    condition = ServiceHealth(harness.database, clock=lambda: 1_000_000_000.0)
    assert _get_levels(condition)["Clock"] == "error"
    assert "behind the database's" in _get_message(condition, "Clock")


def test_health_reports_lagging_witnesses_and_a_spool_with_entries(
    harness: Harness, tmp_path: Path
):
    spool = tmp_path / "changelog.spool"
    spool.write_text("{}\n")
    condition = ServiceHealth(harness.database, lambda: {"1": 3}, spool)
    assert _get_message(condition, "Witness 1") == "lacks 3 entries"
    one = ServiceHealth(harness.database, lambda: {"1": 1}, spool)
    assert _get_message(one, "Witness 1") == "lacks 1 entry"
    assert _get_levels(condition)["Spool"] == "error"


def test_health_warns_about_old_keys_and_reports_missing_ones(harness: Harness, tmp_path: Path):
    old = tmp_path / "changelog.key"
    old.write_text("x")
    os.utime(old, (1, 1))
    lost = tmp_path / "secrets.key"
    marks = _get_levels(ServiceHealth(harness.database, keys={"Signing key": old, "Other": lost}))
    assert (marks["Signing key"], marks["Other"]) == ("warning", "error")


def test_health_shows_host_key_mismatches_unreachable_hosts_and_unknown_outcomes(harness: Harness):
    add_sample_runs(harness.database)
    with harness.database.transaction() as tx:
        store_contact(
            tx, "lb1", tried_at=tx.now, answered_at=None, kind="key", error="another key"
        )
        store_contact(
            tx, "lb2", tried_at=tx.now, answered_at=None, kind="unreachable", error="gone"
        )
    condition = ServiceHealth(harness.database)
    assert "do not match the inventory on lb1" in _get_message(condition, "Host keys")
    assert _get_message(condition, "Hosts") == "unreachable at the last contact: lb2"
    assert _get_message(condition, "Unknown outcomes").startswith("1 need")


def test_health_reports_an_unreadable_database(harness: Harness):
    harness.database.engine.dispose()
    harness.database.close()
    Path(harness.database.url.removeprefix("sqlite:///")).write_bytes(b"no database" * 100)
    marks = _get_levels(ServiceHealth(harness.database))
    assert marks["Database"] == "error"


def test_health_names_a_witness_that_does_not_cosign(harness: Harness) -> None:
    states = [
        describe_witness("w1", 3, None),
        describe_witness("w2", 3, "does not answer"),
        describe_witness("w3", None, None),
    ]
    condition = ServiceHealth(
        harness.database, lambda: {"w1": 0, "w2": 2, "w3": 0}, list_witness_states=lambda: states
    )
    assert _get_message(condition, "Witness w1") == "has all entries"
    assert _get_message(condition, "Witness w2") == "does not answer"
    assert _get_message(condition, "Witness w3") == "has not been asked yet"
    marks = _get_levels(condition)
    assert [marks[f"Witness w{n}"] for n in (1, 2, 3)] == ["ok", "error", "error"]


def test_rule_that_requires_more_witnesses_than_are_configured_is_an_error(
    harness: Harness,
) -> None:
    file = harness.policies.path / "policy.cedar"
    rules = file.read_text()
    file.write_text(rules.replace('@approvals("1")', '@approvals("1")\n@witnessed("2")', 1))
    policy = harness.policies.get_policy()
    with harness.database.reading() as tx:
        [problem] = check_witness_count(1, tx, policy)
        assert problem.message.startswith("a rule requires 2 witnesses (@witnessed)")
        assert list(check_witness_count(2, tx, policy)) == []
