"""Pages that were written to do harm: each is refused, or can do no harm, and why."""

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.errors import ParseError
from connectors.rows import Rows
from runbooks import _declared_cel as cel
from runbooks._declared import load_page
from runbooks._declared_yaml import PageError
from tests.runbooks.pages import (
    CHANGE,
    CHECK,
    change_text,
    load,
    load_change_page,
    load_check_page,
)
from tests.scripted_fleet import ScriptedFleet

_UNDO = 'undo: {run: [/usr/sbin/sysctl, -w, "vm.swappiness={now}"], root: true}'
_DO = 'do: {run: [/usr/sbin/sysctl, -w, "vm.swappiness={value}"], root: true}'
_READ = "now: {file: /proc/sys/vm/swappiness, as: number, least: 0, most: 200}"


def _do(command: str) -> str:
    return change_text(CHANGE, _DO, f"do: {command}")


def _read(reading: str) -> str:
    return change_text(CHANGE, _READ, f"now: {reading}")


def _when(condition: str) -> str:
    return change_text(CHANGE, "when: now != value", f"when: {condition}")


# What a page tries, and a part of the reason why it is refused.
REFUSED = {
    "code at load: a tag of YAML": (
        change_text(CHANGE, "swappiness set", "!!python/object/apply:os.system [id]"),
        "tags are not allowed",
    ),
    "code at load: an alias that grows": (
        "a: &a [1, 1]\nb: &b [*a, *a]\n",
        "anchors and aliases are not allowed",
    ),
    "code at load: a key that is not in the format": (f"{CHANGE}run_at_load: id\n", "check the"),
    "code at load: a function of Python": (_when("now == __import__('os').system('id')"), "name"),
    "code at load: attributes of Python": (_when("now.__class__ == 1"), "cannot be the operand"),
    "a connector that reaches hosts": (_read("{query: fleet.run_query}"), "has no query"),
    "a connector outside of the connectors": (_read("{query: os.system}"), "has no query"),
    "a path instead of a connector": (_read("{query: ../bot.settings}"), "has no query"),
    "a parser instead of a query": (_read("{query: nfsd.parse_threads}"), "has no query"),
    "a command as a query": (
        _read("{query: nfsd.set_threads, with: {count: 1}}"),
        "has no query",
    ),
    "a query as a command": (_do("{command: nfsd.query_threads}"), "has no command"),
    "a shell": (_do("{run: [/bin/sh, -c, id], root: true}"), "runs other programs"),
    "a shell by another name": (_do("{run: [/usr/bin/env, sh, -c, id]}"), "runs other programs"),
    "an interpreter": (_do("{run: [python3, -c, 'print(1)']}"), "runs other programs"),
    "sudo": (_do("{run: [sudo, id]}"), "runs other programs"),
    "a program in a value": (_do('{run: ["{value}"]}'), "is not a program"),
    "words in one word": (_do("{run: [/usr/bin/id; reboot]}"), "is not a program"),
    "a line end in a word": (_do('{run: [/usr/bin/id, "a\\nb"], root: true}'), "invisible"),
    "an invisible character in a word": (_do('{run: [/usr/bin/id, "a\\u202eb"]}'), "invisible"),
    "a value without a type in a word": (
        change_text(
            _do('{run: [/usr/bin/id, "{all}"]}'), "current_", "state: {all: host}\ncurrent_"
        ),
        "only if it has a pattern or bounds",
    ),
    "a value that could be an option": (
        change_text(
            change_text(
                _do('{run: [/usr/bin/id, "{value}"]}'), "least: 0, most: 200, desc", "desc"
            ),
            "value == 1",
            "value == 1",
        ),
        "could begin with -",
    ),
    "a pattern of everything": (
        change_text(
            change_text(CHANGE, "fields:\n", "fields:\n  name: {pattern: '.*'}\n"),
            "examples: [web1 10]",
            "examples: [web1 a 10]",
        ),
        "may have another meaning to sudo",
    ),
    "a reading that changes": (_read("{run: [systemctl, stop, nginx]}"), "only reads"),
    "a reading that changes, by root": (
        _read("{run: [/usr/sbin/reboot], root: true}"),
        "does not know that reboot only reads",
    ),
    "a reading by a program of the attacker": (
        _read("{run: [/tmp/cat, /x]}"),
        "is not where programs of the system are",
    ),
    "a reading that runs a program": (_read("{run: [env, ls]}"), "runs other programs"),
    "a reading that finds and removes": (_read("{run: [find, /, -delete]}"), "only reads"),
    "a reading that runs what it finds": (
        _read("{run: [/usr/bin/find, /x, -exec, /bin/sh, ;], root: true}"),
        "only reads",
    ),
    "a step that finds": (_do("{run: [/usr/bin/find, /x, -delete]}"), "runs other programs"),
    "a reading with an option that writes": (
        _read("{run: [journalctl, --vacuum-size=1]}"),
        "only reads",
    ),
    **{
        f"a reading that may write or run something: {words}": (
            _read(f"{{run: [{words}]}}"),
            "only reads",
        )
        for words in (
            "apt-get, upgrade",
            "apt-get, -s, update",
            "apt-get, -s, -o, 'APT::Update::Pre-Invoke::=touch /x', upgrade",
            "apt-get, -s, install, x",
            "apt-get, -s, upgrade, -y",
            "apt-get, --simulate=false, upgrade",
            "apt-cache, gencaches",
            "ufw, allow, 22",
            "setsebool, x, 'on'",
            "getsebool, -P, x",
            "locale, -k, LC_ALL",
            "ufw, show, added, x",
            "firewall-cmd, --add-port=22/tcp",
            "firewall-cmd, --query-port=22/tcp, --reload",
            "apt-cache, policy, '-oDir::Cache=/tmp'",
            "apt-cache, policy, x, -c, /tmp/conf",
        )
    },
    "a step that is always planned": (_when('"value >= 0"'), "nothing that was read"),
    "a step without undo and without a reason": (
        change_text(CHANGE, f"    {_UNDO}\n", ""),
        "or `no_undo` with the reason",
    ),
    "a check with steps": (
        change_text(CHECK, "report:", "steps: []\nnotes: []\nreport:"),
        "is only for a change",
    ),
    "a longer expression than a condition": (_when("now != " + "0+" * 600 + "1"), "1000 char"),
    "a text that doubles": (
        change_text(CHECK, "  full: ", f"  big: '{'+'.join(['host'] * 30)}'\n  full: "),
        "signs +",
    ),
    "a list of lists": (
        change_text(CHECK, "  full: ", "  big: areas.map(a, areas.map(b, a))\n  full: "),
        "`map` within another macro",
    ),
    "an expression that is nested deeply": (
        _when("(" * 200 + "now" + ")" * 200),
        "character|nested",
    ),
    "a pattern that needs look-around": (
        _read("{file: /x, as: text, pattern: '(?=a)a'}"),
        "is not a pattern",
    ),
    "a pattern that is huge when compiled": (
        _read("{file: /x, as: text, pattern: '((a{100}){100}){100}'}"),
        "is not a pattern",
    ),
    "a name that replaces one of Keyturn's": (
        change_text(CHANGE, "  value: {", "  plan: {"),
        "cannot be the name of a field",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_page_is_refused(name: str):
    text, reason = REFUSED[name]
    with pytest.raises(PageError) as error:
        load(text)
    assert any(part in str(error.value) for part in reason.split("|")), str(error.value)


def _make_rows(count: int, length: int) -> Rows[dict[str, object]]:
    row: dict[str, object] = {
        "name": "x" * length,
        "kind": "file",
        "size": 1,
        "used": 1,
        "priority": "-2",
    }
    return Rows(row for _ in range(count))


@pytest.fixture
def _little_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000
    assert time.process_time() - begun < 5


# Expressions that would take gigabytes or hours without limits.
EXHAUSTING = (
    "areas.all(a, areas.all(b, areas.all(c, a.name != b.name + c.name)))",
    f"areas.map(a, {'+'.join(['a.name'] * 15)}).size() > 0",
    "areas.exists(a, areas.exists(b, a.name + b.name == host))",
    'areas.all(a, a.name.matches("((x*)*)*y"))',
    'join(areas.map(a, a.name), ",") == host',
    'split(join(areas.map(a, a.name), ","), "x").size() == 1',
)


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize("condition", EXHAUSTING)
def test_exhausting_expression_ends_soon(condition: str):
    text = change_text(CHECK, "areas.filter(area, area.used * 100 > area.size * most)", '"[host]"')
    text = change_text(text, "each: full\n      text", f"when: '{condition}'\n      text")
    text = change_text(text, "{row.name} is", "{host} is")
    check = load_check_page(text).model_validate({"host": "web1"})
    try:
        check.report(_make_rows(1000, 2000))
    except ParseError as error:
        assert "cannot be computed" in str(error)  # noqa: PT017 - or it has a value


@pytest.mark.parametrize(("count", "length"), [(10_000, 1), (1, 100_000)])
def test_state_that_is_too_large_is_an_error_and_no_result(count: int, length: int):
    check = load_check_page().model_validate({"host": "web1"})
    with pytest.raises(ParseError):
        check.report(_make_rows(count, length))


def test_output_of_the_host_cannot_become_another_word():
    text = change_text(
        _read('{file: /x, as: text, pattern: "[a-z]+"}'), "now != value", "now != string(value)"
    )
    text = change_text(text, "  - when: now > 150\n", '  - when: now == "a"\n')
    change = load_change_page(text).model_validate({"host": "web1", "value": 10})
    for output in ("on; reboot", "$(reboot)", "-w", "a b", "a\nb", "É"):
        with pytest.raises(ParseError):
            change.read(ScriptedFleet({("web1", "cat /x"): output}).run_query)
    # A state from elsewhere, such as one of an older version, is checked too.
    with pytest.raises(ParseError, match="which no command may hold"):
        change.plan("on; reboot")


@pytest.mark.parametrize(
    ("program", "words", "typed"),
    [
        ("sysctl", '-n, "{name}"', "vm.swappiness=0"),
        ("postconf", '"{name}"', "mynetworks=0.0.0.0/0"),
        ("find", '/x, -mtime, "+{name}"', "1/delete"),
    ],
)
def test_value_cannot_make_a_reading_write(program: str, words: str, typed: str):
    """A check needs no approval, so what it reads with is looked at again with its values."""
    text = change_text(CHANGE, "fields:\n", "fields:\n  name: {pattern: '[a-z0-9./=]+'}\n")
    text = change_text(text, "examples: [web1 10]", "examples: [web1 a 10]")
    text = change_text(
        text, _READ, f"now: {{run: [{program}, {words}], as: number, least: 0, most: 9}}"
    )
    runbook = load_change_page(text)
    fleet = ScriptedFleet({})
    change = runbook.model_validate({"host": "web1", "name": typed, "value": 10})
    with pytest.raises(ParseError, match="only reads"):
        change.read(fleet.run_query)


@pytest.mark.parametrize(
    "part",
    [
        "state:\n" + "".join(f"  s{n}: 'now + {n}'\n" for n in range(101)),
        "never:\n" + "  - {when: host == 'a', because: b}\n" * 101,
        "notes:\n" + "  - {text: a, each: '[now]'}\n" * 101,
        "fields:\n" + "".join(f"  f{n}: {{type: number}}\n" for n in range(31)),
    ],
)
def test_page_with_names_for_gigabytes_of_memory_is_refused(part: str):
    text = f"words: a b\nsentence: c.\nexamples: [web1]\nread: {{now: {{file: /a}}}}\n{part}"
    with pytest.raises(PageError, match="items: split the runbook"):
        load_page(Path("x.yaml"), text.encode())


@pytest.mark.parametrize("each", ["rows", "[rows, rows]", "{'x': rows}", "dyn(rows)"])
def test_list_that_would_take_gigabytes_is_refused(each: str):
    scope = cel.Scope({"rows": cel.ROWS})
    rows = {"rows": [{"line": "x"}] * 2000}
    assert len(scope.compile("rows.map(row, row)").evaluate(rows)) == 2000
    with pytest.raises(ParseError, match="has more than 100,000 values: read fewer"):
        scope.compile(f"rows.map(row, {each})").evaluate(rows)


def test_page_is_not_executed_when_it_is_loaded(tmp_path: Path):
    mark = tmp_path / "mark"
    with pytest.raises(PageError):
        load_page(tmp_path / "x.yaml", f"words: !!python/object/apply:os.mkdir [{mark}]".encode())
    assert not mark.exists()
