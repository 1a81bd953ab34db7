"""The preview of a runbook that is being written: problems with places, form, words, plan."""

import gc
import json
import sys

import pytest

from bot.features.runbook_preview.preview import build_preview
from runbooks._declared import PageSource
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.runbooks.pages import CHANGE, CHECK, change_text

RECORDING = json.dumps(
    {
        "runbook": "swappiness set",
        "values": {"host": "web1", "value": 10},
        "answers": [{"host": "web1", "command": "cat /proc/sys/vm/swappiness", "output": "60\n"}],
    }
)


def test_page_without_a_fault_shows_its_form_its_words_and_an_example_plan():
    preview = build_preview(CHANGE, RECORDING)
    assert (preview.problems, preview.kind) == ([], "change")
    assert preview.usage == "swappiness set HOST VALUE"
    assert preview.example == "swappiness set web1 10"
    assert [(one.name, one.hint) for one in preview.fields][1] == ("value", "0 to 200")
    assert "  step 1, if now != value: Set swappiness to {value}" in preview.lines
    assert any("NOPASSWD: /usr/sbin/sysctl ^-w vm" in line for line in preview.lines)
    assert preview.outcome
    (step,) = preview.outcome.steps
    assert (step.title, step.before, step.after) == ("Set swappiness to 10", "60", "10")
    assert (step.command, step.undo) == (
        "/usr/sbin/sysctl -w vm.swappiness=10",
        "/usr/sbin/sysctl -w vm.swappiness=60",
    )


@pytest.mark.parametrize(
    ("text", "place", "message", "shown"),
    [
        ("words: [\n", (2, 1), "check the indentation", ""),
        (change_text(CHANGE, "now != value", "now != valu"), (17, 5), "valu", "now != valu"),
        (change_text(CHANGE, "is {now}", "is TODO"), (11, 1), "not answered yet", "TODO"),
        (change_text(CHANGE, "words: swap", "words: Swap"), (1, 1), "must match", "Swap"),
        (change_text(CHANGE, '"0 to 200"', '""'), (0, 0), "no description", ""),
        ("x" * 70000, (1, 1), "64 KiB", "xxx"),
    ],
)
def test_page_with_a_fault_shows_it_with_its_line_and_column(
    text: str, place: tuple[int, int], message: str, shown: str
):
    first = build_preview(text).problems[0]
    assert (first.line, first.column) == place
    assert message in first.message
    assert shown in first.text


@pytest.mark.parametrize(
    ("recording", "problem"),
    [
        ("{}", "not the file of a recording"),
        (RECORDING.replace("swappiness set", "swap check"), "is of swap check"),
        (RECORDING.replace('"value": 10', '"value": 1'), "1 means something else"),
        (RECORDING.replace('"value": 10', '"value": "x"'), "the values of the recording"),
        (RECORDING.replace("60\\n", "160\\n"), "refused: web1 swaps to memory"),
        (RECORDING.replace("60\\n", "lots"), "'lots' is not a whole number"),
        (RECORDING.replace("cat /proc", "cat /etc"), "has no output of"),
    ],
)
def test_recording_that_leads_to_no_plan_says_why(recording: str, problem: str):
    outcome = build_preview(CHANGE, recording).outcome
    assert outcome
    assert problem in outcome.problem


def test_page_that_was_typed_on_takes_no_memory():
    for number in range(3):
        assert build_preview(change_text(CHANGE, "examples: [", f"examples: [a{number}, ")).words
    gc.collect()
    shown = [one for one in gc.get_objects() if isinstance(one, PageSource)]
    assert not [one for one in shown if one.path.name == "this page.yaml"]


def test_page_is_shown_to_those_who_may_enable_runbooks_and_nothing_of_it_stays(site: Site):
    modules = {name for name in sys.modules if "declared" in name or "this page" in name}
    browser = site.browser("olga")
    assert 'href="/draft"' in browser.get("/runbooks").text
    answer = browser.post("/draft", data={"page": CHECK, "recording": ""})
    page = Page(answer.text)
    assert (answer.status_code, page.strange) == (200, [])
    for words in (
        "swap check: Check how much swap",
        "In Slack: /keyturn swap check HOST [most=80]",
    ):
        assert words in page.text
    wrong = browser.post("/draft", data={"page": "words: <script>alert(1)</script>"})
    assert "<script>alert" not in wrong.text
    assert modules == {name for name in sys.modules if "declared" in name or "this page" in name}
    assert "swap check" not in browser.get("/runbooks").text
    entries = browser.get("/changelog.json").text
    assert "swap check" not in entries


def test_page_is_refused_to_those_who_may_not_enable_runbooks(site: Site):
    browser = site.browser("dora")
    assert 'href="/draft"' not in browser.get("/runbooks").text
    for answer in (browser.get("/draft"), browser.post("/draft", data={"page": CHECK})):
        assert answer.status_code == 403
        assert "people who may resume what was stopped" in answer.text
