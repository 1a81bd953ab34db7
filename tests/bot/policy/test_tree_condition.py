"""Conditions of fault trees, evaluated on reports of checks."""

import ast
from pathlib import Path

import pytest

import runbooks
from bot.policy.tree_condition import ConditionError, find_problem, has_failed, parse_condition
from runbooks import Check, Report, Table, load_catalogue
from runbooks._declared import DeclaredCheck

BOND = Report(
    "bond0 has 1 of 2 members up",
    healthy=False,
    table=Table(
        ("Member", "Link", "Mbit/s", "Errors", "Driver"),
        [("eth0", "up", "10,000", "0", "ixgbe"), ("eth1", "down", "unknown", "12", "ixgbe")],
    ),
)
WINDOW = Report(
    "40 Mbit/s",
    table=Table(("property", "value"), [("round trip", "80.0 ms"), ("line", "1.0 Gbit/s")]),
)
ROUTERS = Report(
    "two groups",
    table=Table(
        ("Router", "Group", "State"),
        [("r1", "1", "Active"), ("r1", "2", "Standby"), ("r2", "1", "")],
    ),
)


@pytest.mark.parametrize(
    ("report", "when", "expected"),
    [
        (BOND, "", True),
        (WINDOW, "", False),
        (BOND, "Link of eth0 != up", False),
        (BOND, "Link of eth1 != up", True),
        (BOND, "link of eth1 = DOWN", True),
        (BOND, "Mbit/s of eth0 < 10000", False),
        (BOND, "Mbit/s of eth0 == 10000", True),
        (BOND, "Mbit/s of eth1 != 10000", True),
        (BOND, "Errors of eth1 > 5", True),
        (BOND, "rows < 2", False),
        (BOND, "rows>=2", True),
        (Report("no members"), "rows < 2", True),
        (WINDOW, "round trip > 50 ms", True),
        (WINDOW, "value of round trip > 80.5 ms", False),
        (WINDOW, "line != 1.0 Gbit/s", False),
        (ROUTERS, "State of r1 2 != Standby", False),
        (ROUTERS, "State of r2 != Active", True),
    ],
)
def test_condition_compares_a_cell_of_the_report(report: Report, when: str, expected: bool):
    assert has_failed(report, when) is expected


@pytest.mark.parametrize(
    ("report", "when", "message"),
    [
        (BOND, "Link of eth7 != up", "the table has no row eth7; it has eth0, eth1"),
        (BOND, "State of eth0 != up", "no column called State; it has Member, Link, Mbit/s"),
        (BOND, "members < 2", "the table has 5 columns, so name one: `COLUMN of members < 2`"),
        (BOND, "Mbit/s of eth1 < 1000", "eth1 is unknown, which cannot be compared with 1000"),
        (WINDOW, "round trip > 1", "round trip is 80.0 ms, which cannot be compared with 1"),
        (WINDOW, "round trip > 1 s", "write a number with the same unit"),
        (WINDOW, "jitter > 1 ms", "no row jitter; it has round trip, line"),
        (ROUTERS, "State of r1 != Active", "2 rows begin with r1: name more cells, such as r1 1"),
        (Report("nginx is not-found"), "state != active", "has no table: nginx is not-found"),
    ],
)
def test_condition_that_the_report_cannot_answer_names_what_there_is(
    report: Report, when: str, message: str
):
    with pytest.raises(ConditionError) as error:
        has_failed(report, when)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("often", "such as `Link of eth0 != up`"),
        ("Link of eth0 < up", "`up` is not a number"),
        ("rows < few", "`few` is not a number"),
        ("Link of eth0 !=", "must compare"),
    ],
)
def test_condition_that_compares_nothing_is_refused(when: str, message: str):
    with pytest.raises(ConditionError) as error:
        parse_condition(when)
    assert message in str(error.value)


def test_condition_is_checked_against_the_columns_and_rows_of_its_check():
    columns = ("property", "value")
    assert not find_problem(parse_condition("state != active"), columns, ("state",))
    assert not find_problem(parse_condition("rows < 2"), columns, ("state",))
    assert "no row stat" in find_problem(parse_condition("stat != x"), columns, ("state",))
    assert not find_problem(parse_condition("stat != x"), columns, ())
    assert "no column" in find_problem(parse_condition("Link of state != x"), columns, ("state",))


@pytest.mark.parametrize(
    "words", [w for w, one in load_catalogue().items() if issubclass(one, Check)]
)
def test_table_of_every_check_has_the_columns_that_the_policy_is_checked_against(words: str):
    kind = load_catalogue()[words]
    assert issubclass(kind, Check)
    if issubclass(kind, DeclaredCheck):
        report = kind.source.declaration.page.report
        table = report.table if report else None
        assert kind.columns == (tuple(table.columns) if table else ())
        return
    directory = Path(runbooks.__file__).parent
    module = ast.parse((directory / f"{kind.__module__.rpartition('.')[2]}.py").read_text())
    tables = [
        ast.unparse(node.args[0])
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Table"
    ]
    assert tables == (["self.columns"] if kind.columns else [])
