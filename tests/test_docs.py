"""What the documentation shows as code works, and what it names exists."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import connectors
from bot.model import request_form
from bot.model.run import NEXT_STATES, State
from bot.policy.annotations import ANNOTATION_MEANINGS
from bot.policy.cedar import SCHEMA
from bot.settings import Settings
from connectors.inventory import Host
from connectors.sudo import SudoRule
from runbooks import AnyRunbook, Change, NoUndo, load_catalogue

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]
MAX_LINES = 300
_FENCE = re.compile(r"(?ms)^( *)```(\w*)\n(.*?)^ *```")


def _get_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _read(name: str) -> str:
    return (DOCS / name).read_text()


every_page = pytest.mark.parametrize("page", PAGES, ids=_get_name)


# --- pages ---


@every_page
def test_page_is_not_too_long(page: Path):
    assert len(page.read_text().splitlines()) <= MAX_LINES


@every_page
def test_links_lead_to_files_and_headings(page: Path):
    for link in re.findall(r"\]\(([^)\s]+)\)", _FENCE.sub("", page.read_text())):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in _list_anchors(target), link


def _list_anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as forges make them."""
    titles = re.findall(r"(?m)^#+ (.*)$", _FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@every_page
def test_files_that_a_page_names_exist(page: Path):
    text = page.read_text()
    named = re.findall(r"`((?:bot|tests|docs|migrations|requirements)/[\w/.-]+)`", text)
    missing = [name for name in named if not (ROOT / name).exists()]
    # The example adds these two.
    assert [name for name in missing if "hugepages" not in name and "answers/" not in name] == []


# --- commands and settings ---


def test_every_setting_is_documented():
    text = _read("settings.md") + _read("sign-in.md")
    for name in Settings.model_fields:
        assert f"`KEYTURN_{name.upper()}`" in text, name


def test_every_setting_and_field_of_a_host_is_documented():
    page = _read("hosts.md")
    named = {
        name
        for file in (ROOT / "connectors").glob("*.py")
        for name in re.findall(r'Setting\(\s*"([a-z_.]+)"', file.read_text())
    }
    assert {"haproxy.socket", "pingdom.feed_proxy"} <= named
    fields = Host.model_fields.keys() - {"name", "address", "port"}
    documented = {name for name in named | fields if f"`{name}`" in page or f"{name}: " in page}
    assert sorted((named | fields) - documented - {"reader"}) == []
    assert "  reader:  " in page


# --- policy ---


def test_everything_that_a_rule_can_say_and_read_is_documented():
    page = _read("policy.md")
    attributes = re.findall(
        r"(?m)^  (\w+): ", SCHEMA.partition("type Request")[2].partition("};")[0]
    )
    assert "first_time" in attributes
    for word in [f"`@{name}" for name in ANNOTATION_MEANINGS] + [
        f"`context.{name}`" for name in attributes
    ]:
        assert word in page, word


# --- states and tables ---


def _list_table(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    section = page.partition(f"\n## {heading}\n")[2]
    table = re.search(r"(?m)(?:^\|.*\n)+", section)
    assert table is not None
    rows = table[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_transition_between_states_is_documented():
    table = {
        State(first.strip("`")): {State(name) for name in re.findall(r"`(\w+)`", following)}
        for first, following in _list_table(_read("architecture.md"), "States of a run")
    }
    assert table == {first: set(following) for first, following in NEXT_STATES.items()}


def test_diagram_of_states_shows_transitions_that_exist():
    arrows = re.findall(r"(?m)^    (\w+) --> (\w+)", _read("concepts.md"))
    assert {state for arrow in arrows for state in arrow} == set(State) - {State.COUNTER_PROPOSED}
    for first, following in arrows:
        assert State(following) in NEXT_STATES[State(first)], (first, following)


def test_every_state_is_in_the_glossary():
    glossary = _read("words.md")
    for state in State:
        assert f"`{state}`" in glossary, state


# --- runbooks ---


def test_every_runbook_is_in_the_table():
    rows = _list_table(_read("runbooks.md"), "Runbooks that come with Keyturn")
    listed = " ".join(row[0] for row in rows)
    for words in load_catalogue():
        for word in words.split():
            assert word in listed, words


def _list_example_code() -> list[str]:
    """Return the code of the example: connector, runbook, test."""
    section = _read("runbooks.md").partition("## Write a runbook in four steps\n")[2]
    return re.findall(r"(?ms)^```python\n(.*?)^```", section.partition("\n## ")[0])


@pytest.fixture
def example_modules(monkeypatch: pytest.MonkeyPatch) -> list[ModuleType]:
    """The modules of a person who follows the four steps."""
    names = ("connectors.hugepages", "runbooks.hugepages_set", "test_hugepages_set")
    modules: list[ModuleType] = []
    for name, code in zip(names, _list_example_code(), strict=True):
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        if name.startswith("connectors."):
            monkeypatch.setattr(connectors, "hugepages", module, raising=False)
        exec(compile(code, name, "exec"), vars(module))  # noqa: S102 - the page's own code
        modules.append(module)
    return modules


def test_example_of_four_steps_passes_its_own_tests(example_modules: list[ModuleType]):
    connector, runbook, its_test = example_modules
    tests = [thing for name, thing in vars(its_test).items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()
    runbook_class: type[AnyRunbook] = vars(runbook)["SetHugePages"]
    request = request_form.parse_request(
        runbook_class, request_form.split_words(runbook_class.example)
    )
    assert isinstance(request, Change)
    (step,) = request.plan("always").steps
    assert not isinstance(step.undo, NoUndo)
    rule: SudoRule = vars(connector)["SUDO"][0]
    assert rule.is_allowed(("tee", "--", vars(connector)["_FILE"]), {})
    assert vars(connector)["parse_mode"]("always [madvise] never\n") == "madvise"
