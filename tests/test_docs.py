"""Code in the documentation works, and names in it exist.

A block of code that is marked `console` is run from the first block of its page to the last, in
one directory, and prints what the page shows.
"""

import importlib
import pkgutil
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner
from fastapi import APIRouter
from fastapi.routing import APIRoute

import bot.api
import connectors
from bot.__main__ import main
from bot.db.tables import metadata
from bot.features import load_chat, load_routes
from bot.model import request_form
from bot.model.run import NEXT_STATES, State
from bot.policy.annotations import ANNOTATION_MEANINGS
from bot.policy.cedar import SCHEMA
from bot.settings import Settings
from bot.slack.replies import render_command_help
from connectors.inventory import Host
from connectors.sudo import SudoRule
from runbooks import AnyRunbook, Change, NoUndo, load_catalogue
from tests.docs.reference import build_pages, list_generated_files
from tests.playground.pictures import PAGE_PICTURES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
MAX_LINES = 300
# Variables that are no settings: of the command line, of make, of tests, or examples.
_OTHER_VARIABLES = {"URL", "SETTINGS", "TOKEN", "PASSWORD", "IMAGE", "CHAOS", "OIDC_"}
_FENCE = re.compile(r"(?ms)^( *)```(\w*)\n(.*?)^ *```")


def _get_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _read(name: str) -> str:
    return (DOCS / name).read_text()


every_page = pytest.mark.parametrize("page", PAGES, ids=_get_name)


# --- pages ---


@every_page
def test_docs_page_is_within_its_line_limit(page: Path):
    assert len(page.read_text().splitlines()) <= MAX_LINES


@every_page
def test_links_of_a_page_point_to_existing_files_and_headings(page: Path):
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


def test_every_picture_is_shown_and_generated_by_the_script():
    files = {file.stem for file in (DOCS / "pictures").glob("*.png")}
    shown = {
        name for page in PAGES for name in re.findall(r"pictures/(\w+)\.png", page.read_text())
    }
    assert files == shown == {"chat", *PAGE_PICTURES}


@every_page
def test_files_that_a_page_names_exist(page: Path):
    text = page.read_text()
    named = re.findall(r"`((?:bot|tests|docs|migrations|requirements)/[\w/.-]+)`", text)
    missing = [name for name in named if not (ROOT / name).exists()]
    # The example adds these two.
    assert [name for name in missing if "hugepages" not in name and "answers/" not in name] == []


def test_generated_pages_are_up_to_date():
    """If this fails, run `make docs`."""
    pages = build_pages()
    assert list_generated_files() == set(pages)
    for name, text in pages.items():
        assert _read(name) == text, name


def test_every_generated_page_is_linked_from_its_index():
    for folder in ("cli", "api"):
        index = _read(f"{folder}/README.md")
        for page in DOCS.glob(f"{folder}/*.md"):
            assert page.name == "README.md" or f"({page.name.replace('-objects', '')}#" in index


# --- commands and settings ---


def _list_snippets(text: str) -> Iterator[str]:
    """Yield each line of code blocks, and each code span, on one line."""
    for _, _, block in _FENCE.findall(text):
        yield from block.replace("\\\n", " ").splitlines()
    for span in re.findall(r"(?s)(?<!`)`([^`]+)`(?!`)", _FENCE.sub("", text)):
        yield re.sub(r"\s+", " ", span)


def _list_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of every `keyturn …` of the text, without its name."""
    for snippet in _list_snippets(text):
        typed = re.search(
            r"(?:^|\$ |\| |&& |= )(?:[A-Z_]+=\S+ )*(?:\S*/bin/)?keyturn ([a-z-].*)", snippet
        )
        if typed and not snippet.lstrip().startswith("#"):
            for one in re.split(r" \| | && | > ", typed[1].partition("  #")[0])[:1]:
                yield shlex.split(
                    one.replace("'{", "{").replace("…", ""), comments=False, posix=False
                )


def _find_unknown_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command that the command line does not know."""
    command: click.Command = main
    options: set[str] = set()
    for n, word in enumerate(words):
        if isinstance(command, click.Group) and not word.startswith("-"):
            known = command.get_command(click.Context(command), word)
            if known is None:
                # The number of a run stands for `run show`.
                is_known = word.isupper() or word.isdecimal()
                return [] if is_known else [" ".join(words[: n + 1])]
            command = known
        options |= {option for one in command.params for option in one.opts + one.secondary_opts}
        if word == "--":
            break
        name = word.partition("=")[0].strip("[]")
        if name.startswith("--") and name not in options | {"--help", "--version"}:
            return [f"{' '.join(words)}: {name}"]
    return []


@every_page
def test_commands_of_a_page_exist(page: Path):
    commands = [*_list_commands(page.read_text())]
    assert [word for words in commands for word in _find_unknown_words(words)] == []


def test_commands_are_found_in_code_blocks_and_code_spans():
    text = (
        "Run `keyturn policy\ncheck`.\n\n```\n$ A=b keyturn frob --now\nx | keyturn nope -\n```\n"
    )
    commands = [*_list_commands(text)]
    assert commands == [["frob", "--now"], ["nope", "-"], ["policy", "check"]]
    assert [_find_unknown_words(words) for words in commands] == [["frob"], ["nope"], []]
    assert _find_unknown_words(["policy", "check", "--wrong"]) == ["policy check --wrong: --wrong"]


@every_page
def test_variables_of_a_page_exist(page: Path):
    known = {name.upper() for name in Settings.model_fields} | _OTHER_VARIABLES
    named = set(re.findall(r"KEYTURN_([A-Z_]+)", page.read_text()))
    assert sorted(named - known) == []


@every_page
def test_chat_commands_of_a_page_exist(page: Path):
    runbook_words = {words.split()[0] for words in load_catalogue()}
    named = set(re.findall(r"(?<!\w)/keyturn ([a-z][a-z-]*)", page.read_text())) - runbook_words
    added = load_chat().help
    assert sorted(word for word in named if render_command_help(word, added) is None) == []


@cache
def _list_routes() -> list[re.Pattern[str]]:
    """Return a pattern for the address of every route of the API."""
    modules = pkgutil.iter_modules(bot.api.__path__, "bot.api.")
    routers = [
        *load_routes(),
        *(getattr(importlib.import_module(one.name), "router", None) for one in modules),
    ]
    return [
        re.compile(re.sub(r"\{\w+(:\w+)?\}", r"[^/]+", route.path))
        for router in routers
        if isinstance(router, APIRouter)
        for route in router.routes
        if isinstance(route, APIRoute)
    ]


@every_page
def test_addresses_of_the_api_on_a_page_exist(page: Path):
    routes = _list_routes()
    assert routes
    for address in re.findall(r"/api/v1(/[-\w/.]+)", page.read_text()):
        known = address == "/openapi.json" or any(route.fullmatch(address) for route in routes)
        assert known, address


@every_page
def test_metrics_of_a_page_exist(page: Path):
    for name in re.findall(r"`keyturn_(\w+)`", page.read_text()):
        assert name.removesuffix("_total") in _read_source(), name


@cache
def _read_source() -> str:
    return "".join(file.read_text() for file in sorted((ROOT / "bot").rglob("*.py")))


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


def test_every_rule_annotation_and_context_attribute_is_documented():
    page = _read("policy.md")
    attributes = re.findall(
        r"(?m)^  (\w+): ", SCHEMA.partition("type Request")[2].partition("};")[0]
    )
    assert "first_time" in attributes
    for word in [f"`@{name}" for name in ANNOTATION_MEANINGS] + [
        f"`context.{name}`" for name in attributes
    ]:
        assert word in page, word


@pytest.mark.parametrize("name", ["policy.md", "runbooks.md"])
def test_console_examples_print_what_the_page_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for variable in [f"KEYTURN_{setting.upper()}" for setting in Settings.model_fields]:
        monkeypatch.delenv(variable, raising=False)
    blocks = _FENCE.findall(_read(name))
    shown = [_hide_version(block) for _, language, block in blocks if language == "console"]
    assert shown
    assert [_hide_version(block) for block in run_examples(_read(name))] == shown


def _hide_version(text: str) -> str:
    """Replace the version of a policy, which changes with each remark in the starter policy."""
    return re.sub(r"version [0-9a-f]{12}", "version …", text)


def run_examples(page: str) -> Iterator[str]:
    """Yield the `console` blocks of a page as they are when run in the current directory.

    Between them a block of `yaml` with hosts becomes the inventory, and the first rule in `cedar`
    is added to the rules.
    """
    rules_added = False
    for _, language, block in _FENCE.findall(page):
        policy = Path("policy")
        if language == "yaml" and "\nhosts:" in block:
            (policy / "inventory.yaml").write_text(block)
        elif language == "cedar" and not rules_added:
            with (policy / "policy.cedar").open("a") as rules:
                rules.write(f"\n{block}")
            rules_added = True
        elif language == "console":
            yield "".join(_run_command(line) for line in block.splitlines() if line[:2] == "$ ")


def _run_command(line: str) -> str:
    words = shlex.split(line.removeprefix("$ keyturn "))
    result = CliRunner().invoke(main, words)
    return f"{line}\n{result.output.strip()}\n"


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


def test_every_table_is_documented():
    rows = _list_table(_read("architecture.md"), "Tables")
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(documented) == sorted(metadata.tables)


def test_functions_named_in_the_request_walkthrough_exist():
    rows = _list_table(_read("architecture.md"), "A request from chat to the host and back")
    for _, places, text in rows:
        files = [ROOT / "bot" / name for name in re.findall(r"`([\w/]+\.py)`", places)]
        files += [ROOT / "bot" / name for name in re.findall(r"`(workflow/\w+\.py)`", text)]
        assert all(file.exists() for file in files), places
        source = "".join(file.read_text() for file in sorted(set(files[0].parent.glob("*.py"))))
        source += "".join(file.read_text() for file in files)
        for name in re.findall(r"`(?:\w+\.)?([a-z]+_[a-z_]+)`", text):
            assert f"def {name}(" in source, name


# --- runbooks ---


def test_every_runbook_is_in_the_docs_table():
    rows = _list_table(_read("runbooks.md"), "Runbooks that come with Keyturn")
    listed = " ".join(row[0] for row in rows)
    for words in load_catalogue():
        for word in words.split():
            assert word in listed, words


def _list_example_code() -> list[str]:
    """Return the code of the example: connector, runbook, test."""
    section = _read("runbooks-in-python.md").partition("## Four steps\n")[2]
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


def test_runbook_example_in_four_steps_passes_its_own_tests(example_modules: list[ModuleType]):
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
