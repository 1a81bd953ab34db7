"""The drift state of a reading, from plans, answers and times."""

import pytest
from pydantic import Field

from bot.features.drift.state import (
    Expectation,
    Reading,
    compute_next_reading,
    compute_state,
    evaluate_plan,
    find_number,
    parse_range,
)
from bot.model.drift_state import DriftState
from bot.model.lasting_values import get_key_name
from bot.model.run import RequestOrigin, Run, State
from connectors.command import QueryRunner, Shell
from runbooks import Change, Host, Plan, Step, load_catalogue

DAY = 86400 * 1_000_000
AS_SET, CHANGED = DriftState.AS_SET, DriftState.CHANGED


def build_step(before: str, after: str, title: str = "Set it") -> Step:
    return Step(title, "web1", Shell(("a",)), Shell(("b",)), before, after)


def build_run(runbook: str, kind: str = "change", **values: str) -> Run:
    origin = RequestOrigin("web")
    return Run(
        *(1, 1, State.SUCCEEDED, runbook, kind, values, "web1", "web", "dora", origin, "", 0)
    )


@pytest.mark.parametrize(
    ("run", "name"),
    [
        (build_run("conntrack set", host="web1", maximum="65536"), "conntrack limit"),
        (build_run("shaping set", host="web1", interface="eth0", down="20000"), "shaping eth0"),
        (build_run("shaping clear", host="web1", interface="eth0"), "shaping eth0"),
        (build_run("agents block", host="web1", agent="EvilBot"), "agent nginx EvilBot"),
        (build_run("agents unblock", host="web1", agent="EvilBot"), "agent nginx EvilBot"),
        (
            build_run("zfs set", host="nas1", dataset="tank/a", property="sync", value="always"),
            "zfs tank/a sync",
        ),
        (
            build_run("nfs scheduler set", host="nas1", device="sdb", scheduler="bfq"),
            "scheduler sdb",
        ),
        (build_run("hidepid set", host="web1", value="2"), "hidepid"),
        # Acts, and values that expire or come from elsewhere, are not watched.
        (build_run("service restart", host="web1", service="nginx"), ""),
        (build_run("abusers mark", host="lb1", address="203.0.113.9"), ""),
        (build_run("csf pingdom refresh", host="web1"), ""),
        (build_run("zfs scrub start", host="nas1", pool="tank"), ""),
        (build_run("uptime check", kind="check", host="web1"), ""),
        (build_run("was removed", host="web1"), ""),
        (build_run("conntrack set", host="web1", maximum="not a number"), ""),
    ],
)
def test_key_is_what_a_change_gives_a_lasting_value(run: Run, name: str):
    assert get_key_name(load_catalogue(), run) == name


def test_runbooks_of_one_drift_key_name_the_same_fields():
    named = [one.sets for one in load_catalogue().values() if one.sets]
    assert named.count("agent {server} {agent}") == named.count("shaping {interface}") == 2


def test_runbook_whose_drift_key_names_an_unknown_field_is_rejected():
    with pytest.raises(TypeError, match="Wrong has no field vlaue"):

        class Wrong(Change[int], sets="it {vlaue}"):  # pyright: ignore[reportUnusedClass] - it is refused
            host: Host
            value: int = Field(0)

            def read(self, run_query: QueryRunner, /) -> int:
                raise NotImplementedError

            def plan(self, state: int, /) -> Plan:
                raise NotImplementedError


def test_empty_plan_means_that_the_value_is_as_set():
    reading = evaluate_plan(Plan("the limit is 9"))
    assert (reading.state, reading.digest, reading.value) == (
        DriftState.AS_SET,
        "",
        "the limit is 9",
    )


def test_plan_with_steps_means_drift_and_shows_the_steps_with_values():
    reading = evaluate_plan(
        Plan("now", [build_step("", ""), build_step("1", "2"), build_step("", "")])
    )
    assert (reading.state, reading.value, reading.set_value) == (CHANGED, "1", "2")


def test_plan_without_values_shows_the_current_state_as_drift_value():
    assert evaluate_plan(Plan("it is off", [build_step("", "")])).value == "it is off"


def test_drift_digest_depends_only_on_the_value():
    first, other = (evaluate_plan(Plan("x", [build_step(one, "2")])).digest for one in ("1", "3"))
    noted = evaluate_plan(Plan("another sentence", [build_step("1", "2")], ["a note"])).digest
    assert first == noted != other


ANY = Expectation(until=100)
RANGE = Expectation(until=100, lowest=1000, highest=2000)


@pytest.mark.parametrize(
    ("digest", "value", "adopted", "expectation", "now", "state"),
    [
        ("", "", "", None, 0, AS_SET),
        ("d1", "5", "", None, 0, CHANGED),
        ("d1", "5", "d1", None, 0, AS_SET),
        ("d2", "6", "d1", None, 0, CHANGED),
        # The run's own value is a change once another one was adopted.
        ("", "", "d1", None, 0, CHANGED),
        ("d1", "5", "", ANY, 99, AS_SET),
        ("d1", "5", "", ANY, 100, CHANGED),
        ("d1", "1,500 connections", "", RANGE, 0, AS_SET),
        ("d1", "2,001 connections", "", RANGE, 0, CHANGED),
        ("d1", "off", "", RANGE, 0, CHANGED),
    ],
)
def test_drift_state_considers_adopted_and_expected_values(
    digest: str,
    value: str,
    adopted: str,
    expectation: Expectation | None,
    now: int,
    state: DriftState,
):
    reading = Reading(CHANGED if digest else AS_SET, digest, value)
    assert compute_state(reading, adopted=adopted, expectation=expectation, now=now) is state


@pytest.mark.parametrize("state", [DriftState.MISSING, DriftState.UNREADABLE])
def test_expectation_does_not_cover_a_missing_or_unreadable_value(state: DriftState):
    assert compute_state(Reading(state), adopted="", expectation=ANY, now=0) is state


def test_drift_readings_are_daily_and_spread_over_the_day():
    now = 1_700_000_000 * 1_000_000
    due = [compute_next_reading(f"web{n}", AS_SET, now=now) for n in range(1000)]
    assert all(now < at <= now + DAY for at in due)
    by_hour = [sum((at - now) // (DAY // 24) == hour for at in due) for hour in range(24)]
    assert min(by_hour) > 15
    assert max(by_hour) < 90
    again = compute_next_reading("web1", AS_SET, now=due[1])
    assert again == due[1] + DAY


def test_drift_reading_that_failed_is_repeated_within_the_hour():
    assert compute_next_reading("web1", DriftState.UNREADABLE, now=0) == 3600 * 1_000_000


@pytest.mark.parametrize(
    ("value", "number"),
    [("262,144 connections", 262144), ("-1.5", -1.5), ("hidepid=2", 2), ("off", None)],
)
def test_number_of_a_drift_value_is_parsed(value: str, number: float | None):
    assert find_number(value) == number


def test_range_of_an_expectation_is_two_numbers_in_order():
    assert parse_range("1000..2,000") == (1000, 2000)
    for wrong in ("", "1000", "2..1", "a..b", "1..", f"1..{10**16}", "1..2..3"):
        with pytest.raises(ValueError, match=r"LOWEST\.\.HIGHEST"):
            parse_range(wrong)
