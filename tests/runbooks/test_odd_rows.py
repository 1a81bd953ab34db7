"""One row that is not understood costs nothing but itself, and is never dropped."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from connectors.command import Query, QueryRunner, Shell
from connectors.errors import CommandError, ParseError
from connectors.rows import NamedRows, OddRow, Rows, list_odd_rows, parse_each, parse_named
from runbooks import Change, Check, Host, OddRowRefused, Plan, Refused, Report
from runbooks import read_plan as read_plan_of
from runbooks import read_report as read_report_of
from tests.scripted_fleet import ScriptedFleet

LAMPS = "lamp on\n%s\nfan off\n"


def parse_lamps(answer: str) -> Rows[str]:
    return parse_each(answer.splitlines(), _parse_lamp)


def _parse_lamp(line: str) -> str:
    name, state = line.split()
    if state not in ("on", "off"):
        raise ParseError(f"{state} is no state")
    return name


LIST = Query(Shell(("lamps",)), parse_lamps)


class CheckLamps(Check[Rows[str]]):
    """Check lamps."""

    host: Host

    def read(self, run_query: QueryRunner) -> Rows[str]:
        return run_query(self.host, LIST)

    def report(self, lamps: Rows[str]) -> Report:
        return Report(f"{len(lamps)} lamps")


class RemoveLamp(Change[Rows[str]]):
    """Remove a lamp."""

    host: Host
    lamp: Annotated[str, Field()]
    way: Literal["on", "off"] = "off"

    def read(self, run_query: QueryRunner) -> Rows[str]:
        return run_query(self.host, LIST)

    def plan(self, lamps: Rows[str]) -> Plan:
        if self.lamp not in lamps:
            raise Refused(f"web1 has no {self.lamp}")
        return Plan(f"{self.lamp} is there", notes=("it is dark then",))


def read_report(odd: str) -> Report:
    check = CheckLamps.model_validate({"host": "web1"})
    fleet = ScriptedFleet({("web1", "lamps"): LAMPS % odd})
    return read_report_of(check, fleet.run_query, check.report)


def read_plan(lamp: str, odd: str) -> Plan:
    change = RemoveLamp.model_validate({"host": "web1", "lamp": lamp})
    fleet = ScriptedFleet({("web1", "lamps"): LAMPS % odd})
    return read_plan_of(change, fleet.run_query, change.plan)[1]


def test_odd_row_is_a_finding_of_a_check_with_its_text_and_reason():
    assert read_report("door on") == Report("3 lamps")
    seen = read_report("door ajar")
    assert seen.summary == "2 lamps; 1 row is not understood"
    assert not seen.healthy
    assert seen.findings == [
        "web1 printed a row that is not understood, 'door ajar': ajar is no state"
    ]


def test_many_odd_rows_are_counted():
    seen = read_report("\n".join(f"door{number} ajar" for number in range(8)))
    assert len(seen.findings) == 6
    assert seen.findings[-1] == "3 further rows could not be understood"


def test_odd_row_about_another_object_is_a_note_of_a_plan():
    plan = read_plan("lamp", "door ajar, off")
    assert plan.notes == [
        "it is dark then",
        "web1 printed a row that is not understood, 'door ajar, off': its format is unknown",
    ]


@pytest.mark.parametrize("odd", ["lamp ajar", "/dev/lamp ajar", "the Lamp: ajar"])
def test_change_is_refused_when_an_odd_row_names_its_object(odd: str):
    with pytest.raises(OddRowRefused, match=r"'.*[lL]amp.*'.*Correct it on the host"):
        read_plan("lamp", odd)


@pytest.mark.parametrize("odd", ["lamp2 ajar", "door-lamp ajar", "lampion ajar"])
def test_object_whose_name_only_begins_or_ends_alike_is_another_one(odd: str):
    assert len(read_plan("lamp", odd).notes) == 2


def test_refusal_of_a_change_includes_odd_rows():
    with pytest.raises(Refused, match=r"web1 has no bell\. web1 printed a row .*'door ajar'"):
        read_plan("bell", "door ajar")


def test_odd_rows_are_found_in_what_a_query_returns():
    odd = OddRow("x", "y")
    named = parse_named({"a": "1", "b": "?"}, lambda _, text: int(text))
    assert named == {"a": 1}
    assert [*list_odd_rows((Rows([1], [odd]), named))] == [odd, *named.odd]
    assert named.odd == (OddRow('["b", "?"]', "its format is unknown"),)
    assert [*list_odd_rows(NamedRows([("a", 1)], [odd]))] == [odd]


def test_error_of_a_command_is_not_a_row():
    def fail(_: str) -> str:
        raise CommandError("this socket is read-only")

    with pytest.raises(CommandError):
        parse_each(["row"], fail)
