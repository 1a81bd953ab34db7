"""Declared runbooks: what a page of YAML becomes, and which pages are refused, with the place."""

import time
from hashlib import sha256
from pathlib import Path

import pytest
from pydantic import ValidationError

from bot.cli.runbook_kit.lint import lint_runbook
from bot.hosts.sudo_rules import list_sudo_grants
from connectors.command import Shell
from connectors.errors import CommandError, ParseError
from runbooks import Leg, NoUndo, OwnRunbookError, Refused, read_own_files
from runbooks._declared import load_page, register_page
from runbooks._declared_yaml import PageError
from tests.connectors.test_systemd import recorded
from tests.runbooks.pages import (
    CHANGE,
    CHECK,
    change_text,
    load,
    load_change_page,
    load_check_page,
)
from tests.scripted_fleet import ScriptedFleet

SWAPS = """\
Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
/dev/sda2                               partition\t1000\t\t900\t\t-2
/swap                                   file\t\t1000\t\t10\t\t-3
"""


def sysctl(value: int) -> Shell:
    return Shell(("/usr/sbin/sysctl", "-w", f"vm.swappiness={value}"), root=True)


# --- what a page becomes ---


def test_page_of_a_check_reads_and_reports():
    check = load_check_page().model_validate({"host": "web1"})
    fleet = ScriptedFleet({("web1", "cat /proc/swaps"): SWAPS})
    report = check.report(check.read(fleet.run_query))
    assert (report.summary, report.healthy) == ("web1 has 2 swap areas", False)
    assert report.findings == ["/dev/sda2 is more than 80 % full: find out which program grows"]
    assert report.table is not None
    assert report.table.rows == [
        ("/dev/sda2", "900 KiB of 1000 KiB"),
        ("/swap", "10 KiB of 1000 KiB"),
    ]


def test_page_of_a_change_plans_its_steps_with_their_undo():
    change = load_change_page().model_validate({"host": "web1", "value": 10})
    fleet = ScriptedFleet({("web1", "cat /proc/sys/vm/swappiness"): "60\n"})
    plan = change.plan(change.read(fleet.run_query))
    (step,) = plan.steps
    assert (step.do, step.undo) == (sysctl(10), sysctl(60))
    assert (step.title, step.before, step.after) == ("Set swappiness to 10", "60", "10")
    assert (plan.current_state, plan.notes) == (
        "swappiness is 60",
        ["It lasts until the next boot."],
    )
    assert (change.key_name, change.takes_down()) == ("swappiness", [])


def test_page_of_a_change_that_is_in_effect_plans_nothing_and_refuses_nothing():
    change = load_change_page().model_validate({"host": "web1", "value": 200})
    assert change.plan(200).steps == ()
    with pytest.raises(Refused, match="web1 swaps to memory"):
        change.plan(180)
    assert change.plan_anyway(180).steps


def test_never_refuses_a_request_by_its_values():
    with pytest.raises(ValidationError, match="1 means something else on old kernels"):
        load_change_page().model_validate({"host": "web1", "value": 1})


def test_rules_of_sudo_are_as_narrow_as_the_fields():
    runbook = load_change_page()
    register_page(runbook)
    (grant, undo) = list_sudo_grants({runbook.words: runbook})
    assert grant.rule.is_allowed(("/usr/sbin/sysctl", "-w", "vm.swappiness=200"), {})
    for word in ("vm.swappiness=201", "vm.swappiness=", "kernel.panic=1", "vm.swappiness=1 x"):
        assert not grant.rule.is_allowed(("/usr/sbin/sysctl", "-w", word), {})
        assert not undo.rule.is_allowed(("/usr/sbin/sysctl", "-w", word), {})
    assert not grant.rule.read_only


def test_rule_of_a_reading_by_root_is_for_the_login_that_only_reads():
    text = change_text(CHECK, "file: /proc/swaps", "file: /proc/swaps\n    root: true")
    runbook = load_check_page(text)
    register_page(runbook)
    (grant,) = list_sudo_grants({runbook.words: runbook})
    assert grant.rule.read_only
    assert grant.rule.is_allowed(("/usr/bin/cat", "/proc/swaps"), {})


def test_script_of_a_step_is_shown_whole_and_gets_its_values_as_arguments():
    script = 'undo: {script: "echo $1 >/proc/sys/vm/swappiness", arguments: ["{now}"], root: true}'
    undo = 'undo: {run: [/usr/sbin/sysctl, -w, "vm.swappiness={now}"], root: true}'
    runbook = load_change_page(change_text(CHANGE, undo, script))
    (step,) = runbook.model_validate({"host": "web1", "value": 10}).plan(60).steps
    assert isinstance(step.undo, Shell)
    assert "echo $1 >/proc/sys/vm/swappiness" in str(step.undo)
    assert step.undo.words[-1] == "60"


def test_script_of_a_step_gets_its_standard_input_with_the_values():
    script = 'undo: {script: "cat >/x", stdin: "one {now}\\ntwo {{now}}\\n", root: true}'
    undo = 'undo: {run: [/usr/sbin/sysctl, -w, "vm.swappiness={now}"], root: true}'
    runbook = load_change_page(change_text(CHANGE, undo, script))
    (step,) = runbook.model_validate({"host": "web1", "value": 10}).plan(60).steps
    assert isinstance(step.undo, Shell)
    assert step.undo.stdin == "one 60\ntwo {60}\n"


def test_step_without_an_undo_says_why():
    undo = 'undo: {run: [/usr/sbin/sysctl, -w, "vm.swappiness={now}"], root: true}'
    text = change_text(CHANGE, undo, "no_undo: its value is unknown")
    text = change_text(text, "undo: sets what was set before\n", "")
    (step,) = load_change_page(text).model_validate({"host": "web1", "value": 9}).plan(60).steps
    assert step.undo == NoUndo("its value is unknown")


def test_page_says_what_it_takes_down():
    text = change_text(CHANGE, "takes_down: []", 'takes_down: ["{host}/swap"]')
    change = load_change_page(text).model_validate({"host": "web1", "value": 9})
    assert change.takes_down() == [Leg("web1", "swap")]


@pytest.mark.parametrize("output", ["", "x\n", "201\n", "-1\n", "6 0\n", "9" * 40])
def test_reading_that_is_not_understood_is_an_error(output: str):
    change = load_change_page().model_validate({"host": "web1", "value": 10})
    fleet = ScriptedFleet({("web1", "cat /proc/sys/vm/swappiness"): output})
    with pytest.raises(ParseError):
        change.read(fleet.run_query)


def test_row_that_is_not_understood_is_kept_as_odd():
    check = load_check_page().model_validate({"host": "web1"})
    fleet = ScriptedFleet({("web1", "cat /proc/swaps"): f"{SWAPS}/dev/sdb broken\n"})
    rows = check.read(fleet.run_query)
    assert len(rows) == 2
    assert [odd.text for odd in rows.odd] == ["/dev/sdb broken"]


_MORE = """\
  uptime: {file: /proc/uptime, may_fail: true}
state:"""


def test_reading_that_may_fail_is_a_finding_if_it_does():
    check = load_check_page(change_text(CHECK, "state:", _MORE)).model_validate({"host": "web1"})
    fleet = ScriptedFleet(
        {
            ("web1", "cat /proc/swaps"): SWAPS.splitlines()[0],
            ("web1", "cat /proc/uptime"): CommandError("no such file"),
        }
    )
    report = check.report(check.read(fleet.run_query))
    assert (report.healthy, report.findings) == (False, ["uptime could not be read: no such file"])


def test_text_with_a_pattern_that_sudo_would_misread_is_for_no_word():
    unit = "  unit: {pattern: '([a-z]+ ?){1,3}', default: a b}\n  most:"
    text = change_text(CHECK, "  most:", unit)
    given = {"host": "web1", "unit": "a b c"}
    assert load_check_page(text).model_validate(given).model_dump()["unit"] == "a b c"
    with pytest.raises(ValidationError):
        load_check_page(text).model_validate(given | {"unit": "a b c d"})
    with pytest.raises(PageError, match="repeats a group: repeat sets such as"):
        load(change_text(text, "file: /proc/swaps", 'run: [cat, "/x/{unit}"]'))


@pytest.mark.parametrize(
    "pattern", ["[^a]+", "([^a]+ ){2}", "( .){2}", "a b|", r"\\S+ \\S+", "-[a-z] "]
)
def test_text_has_no_pattern_that_could_match_anything(pattern: str):
    with pytest.raises(PageError, match=r"another meaning to sudo|would match an option"):
        load(change_text(CHECK, "  most:", f'  unit: {{pattern: "{pattern}"}}\n  most:'))


def test_optional_field_has_its_title_and_description_in_forms():
    text = change_text(CHECK, "default: 80", "optional: true, title: Limit")
    field = load_check_page(text).model_fields["most"]
    assert (field.title, field.description) == ("Limit", "Per cent that is too much")


def test_reading_that_may_fail_has_a_title():
    more = "  uptime: {file: /proc/uptime, may_fail: true, title: Its clock}\nstate:"
    check = load_check_page(change_text(CHECK, "state:", more)).model_validate({"host": "web1"})
    files = {"cat /proc/swaps": SWAPS.splitlines()[0], "cat /proc/uptime": CommandError("no file")}
    fleet = ScriptedFleet({("web1", command): answer for command, answer in files.items()})
    assert check.report(check.read(fleet.run_query)).findings == [
        "Its clock could not be read: no file"
    ]


def test_check_whose_readings_all_fail_raises_the_first_error():
    text = change_text(CHECK, "    skip: 1", "    skip: 1\n    may_fail: true")
    check = load_check_page(text).model_validate({"host": "web1"})
    fleet = ScriptedFleet({("web1", "cat /proc/swaps"): CommandError("no such file")})
    with pytest.raises(CommandError, match=r"^no such file$"):
        check.read(fleet.run_query)


def test_reading_refuses_a_request_that_makes_no_sense_before_the_next_one():
    more = """\
    refuse:
      - {when: areas.size() == 0, because: "{host} has no swap: add some"}
  uptime: {file: /proc/uptime}
state:"""
    check = load_check_page(change_text(CHECK, "state:", more)).model_validate({"host": "web1"})
    fleet = ScriptedFleet({("web1", "cat /proc/swaps"): SWAPS.splitlines()[0]})
    with pytest.raises(Refused, match=r"^web1 has no swap: add some$"):
        check.read(fleet.run_query)
    fleet.script("web1", "cat /proc/swaps", SWAPS)
    fleet.script("web1", "cat /proc/uptime", "1.0 2.0")
    assert check.read(fleet.run_query)[1] == "1.0 2.0"


def test_time_of_a_reading_is_a_text_of_which_expressions_make_a_time():
    more = """\
  unit: {query: systemd.query_service, with: {name: '"web"'}}
state:
  start: timestamp(unit.started_at)
"""
    text = change_text(CHECK, "state:\n", more)
    text = change_text(text, "summary: '", "summary: '{unit.started_at}, {as_date(start)}: ")
    check = load_check_page(text).model_validate({"host": "web1"})
    report = check.report(((), recorded("running")))
    assert report.summary.startswith("2026-11-21T11:47:09Z, 2026-11-21: web1 has 0 swap")


def test_reason_of_a_reading_has_only_what_was_read_before():
    more = "    refuse: [{when: full.size() == 0, because: no}]\nstate:"
    with pytest.raises(PageError, match="nothing has the name full"):
        load(change_text(CHECK, "state:", more))


@pytest.mark.parametrize(
    ("reading", "output", "value"),
    [
        ("as: text", "on\n", "on"),
        ("as: pairs, separator: ':'", "a: 1\nb:  2 \n", {"a": "1", "b": "2"}),
        ("as: json, path: a.0.b", '{"a": [{"b": [1, 2]}]}', (1, 2)),
        (
            "as: match, pattern: '(?P<a>[a-z]+) (?P<b>[0-9]+)', numbers: [b]",
            "x 7\n",
            {"a": "x", "b": 7},
        ),
        ("as: lines, pattern: '(?P<a>[a-z]+)=.*'", "x=1\n\ny=2\n", ({"a": "x"}, {"a": "y"})),
    ],
)
def test_output_is_parsed(reading: str, output: str, value: object):
    text = change_text(
        CHECK, _find(CHECK, "  areas:", "state:"), f"  areas: {{file: /x, {reading}}}\n"
    )
    text = change_text(text, _find(text, "state:", "report:"), "")
    text = text[: text.index("  summary:")] + "  summary: it was read\n"
    check = load_check_page(text).model_validate({"host": "web1"})
    assert check.read(ScriptedFleet({("web1", "cat /x"): output}).run_query) == value


def _find(text: str, begin: str, end: str) -> str:
    return text[text.index(begin) : text.index(end)]


def test_pages_that_come_with_keyturn_have_nothing_to_lint():
    assert lint_runbook(load_change_page()) == []
    assert lint_runbook(load_check_page()) == []


# --- what is refused, with its place ---


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("words: swapp", "words: Swapp", "line 1, column 1: words must match"),
        ("examples: [web1 10]\n", "", "examples is missing: add it"),
        ("undo: sets", "undos: sets", "line 22, column 1: undos is not a key of this part"),
        (
            "now != value",
            "now != valu",
            "line 17, column 5: character 8: nothing has the name valu",
        ),
        ("now != value", "now", "is a whole number: write an expression that is true or false"),
        (
            "now != value",
            '"true"',
            "line 17, column 5: `when` has nothing that was read, so",
        ),
        ('before: "{now}"', 'before: "{now"', "line 20, column 5: has a { without a }"),
        ("={value}", "={values}", "line 18, column 5: 'vm.swappiness={values}': nothing has"),
        ("/usr/sbin/sysctl, -w", "sysctl, -w", "name sysctl by its path, such as"),
        (
            "file: /proc/sys/vm/swappiness",
            "run: [touch, /x]",
            "does not know that touch only reads",
        ),
        ("file: /proc/sys/vm/swappiness", "file: proc", "'proc' is not the path of a file"),
        ("takes_down: []\n", "", "add `takes_down`"),
        ("    undo: {run", "    undone: {run", "undone is not a key of this part"),
        ("type: number", "type: numeral", "must be one of 'number'"),
        ("  value: {", "  words: {", "words cannot be the name of a field"),
        ("  now: {", "  value: {", "value is there twice: choose another name"),
        ("is {now}", "is TODO", "current_state is not answered yet: swappiness is TODO"),
        (
            'run: [/usr/sbin/sysctl, -w, "vm.swappiness={value}"]',
            'script: "cat <<EOF"',
            "a here-document (<<) cannot be sent as one line",
        ),
        (
            'run: [/usr/sbin/sysctl, -w, "vm.swappiness={value}"]',
            "command: nfsd.set_threads, stdin: x",
            "`stdin` goes with `run` or `script`",
        ),
        ('={value}"], ', '={value}"], arguments: [x], ', "`arguments` go with `script`"),
        ('={value}"], ', '={value}"], with: {a: "1"}, ', "`with` goes with `command`"),
    ],
)
def test_page_with_an_error_is_refused_with_its_place(before: str, after: str, problem: str):
    with pytest.raises(PageError) as error:
        load(change_text(CHANGE, before, after))
    assert problem in str(error.value)


def test_loading_pages_is_quick(tmp_path: Path):
    begun = time.process_time()
    for number in range(60):
        text = f"{CHANGE if number % 2 else CHECK}# {number}\n"
        load_page(tmp_path / f"page{number}.yaml", text.encode())
    # A third of a second for 300 pages, and three times as long at most.
    assert time.process_time() - begun < 0.3


# --- pages of an installation's own ---


@pytest.fixture
def own_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEYTURN_RUNBOOKS", str(tmp_path))
    (tmp_path / "runbooks").mkdir(mode=0o755)
    return tmp_path / "runbooks" / "swappiness_set.yaml"


def write(file: Path, text: str) -> Path:
    file.write_text(text)
    file.chmod(0o644)
    return file


def test_own_page_has_its_words_and_the_digest_of_its_bytes(own_page: Path):
    write(own_page, CHANGE)
    (file,) = read_own_files()
    file.check_page()
    assert (file.words, file.module) == (("swappiness set",), "runbooks.swappiness_set")
    assert (file.digest, file.is_shared) == (sha256(CHANGE.encode()).hexdigest(), False)


def test_own_page_with_an_error_is_named_with_file_line_and_column(own_page: Path):
    write(own_page, change_text(CHANGE, "examples:", "example:"))
    with pytest.raises(
        OwnRunbookError, match=r"swappiness_set.yaml: line 3, column 1: example is"
    ):
        read_own_files()
    write(own_page, change_text(CHANGE, "now != value", "now != valu"))
    (file,) = read_own_files()
    with pytest.raises(OwnRunbookError, match=r"swappiness_set.yaml: line 17, column 5: char"):
        file.check_page()


@pytest.mark.parametrize("name", ["conntrack_check.yaml", "bond_check.yaml", "_shared.yaml"])
def test_own_page_cannot_replace_a_runbook_of_keyturn(own_page: Path, name: str):
    write(own_page.with_name(name), CHANGE)
    with pytest.raises(OwnRunbookError, match=r"Keyturn has a module|a page is a runbook"):
        read_own_files()
