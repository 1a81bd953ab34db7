"""What the README shows as code is code that works."""

import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

import connectors
from bot.model import request_form
from bot.policy.annotations import ANNOTATION_MEANINGS
from bot.policy.cedar import SCHEMA
from bot.settings import Settings
from connectors.inventory import Host
from connectors.sudo import SudoRule
from runbooks import AnyRunbook, Change, NoUndo

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _moves() -> list[str]:
    """Return the code of the four moves: dialect, runbook, test."""
    section = README.partition("## Add a runbook in four moves\n")[2].partition("\n## ")[0]
    return [textwrap.dedent(code) for code in re.findall(r"(?s) *```python\n(.*?) *```", section)]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[ModuleType]:
    """The modules that who follows the README has made."""
    names = ("connectors.hugepages", "runbooks.hugepages_set", "test_hugepages_set")
    modules: list[ModuleType] = []
    for name, code in zip(names, _moves(), strict=True):
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        if name.startswith("connectors."):
            monkeypatch.setattr(connectors, "hugepages", module, raising=False)
        exec(compile(code, name, "exec"), vars(module))  # noqa: S102 - the README's own words
        modules.append(module)
    return modules


def test_who_follows_the_four_moves_has_a_runbook_that_passes_its_tests(made: list[ModuleType]):
    dialect, runbook, its_test = made
    tests = [thing for name, thing in vars(its_test).items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()
    made_class: type[AnyRunbook] = vars(runbook)["SetHugePages"]
    request = request_form.parse_request(made_class, request_form.split_words(made_class.example))
    assert isinstance(request, Change)
    (step,) = request.plan("always").steps
    assert not isinstance(step.undo, NoUndo)
    rule: SudoRule = vars(dialect)["SUDO"][0]
    assert rule.is_allowed(("tee", "--", vars(dialect)["_FILE"]), {})
    assert vars(dialect)["parse_mode"]("always [madvise] never\n") == "madvise"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), link
        assert not anchor or anchor in _anchors(there), link


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as forges make them."""
    titles = re.findall(r"(?m)^#+ (.*)$", page.read_text())
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_all_that_a_rule_can_say_and_look_at_is_told():
    told = (ROOT / "docs" / "policy.md").read_text()
    looks_at = re.findall(
        r"(?m)^  (\w+): ", SCHEMA.partition("type Request")[2].partition("};")[0]
    )
    assert "novel" in looks_at
    for word in [f"`@{note}" for note in ANNOTATION_MEANINGS] + [
        f"`context.{fact}`" for fact in looks_at
    ]:
        assert word in told, word


def test_every_setting_is_told():
    told = "".join((ROOT / "docs" / name).read_text() for name in ("settings.md", "sign-in.md"))
    for name in Settings.model_fields:
        assert f"`KEYTURN_{name.upper()}`" in told, name


def test_every_setting_and_field_of_a_host_is_documented():
    page = (ROOT / "docs" / "hosts.md").read_text()
    named = {
        name
        for file in (ROOT / "connectors").glob("*.py")
        for name in re.findall(r'Setting\(\s*"([a-z_.]+)"', file.read_text())
    }
    assert {"haproxy.socket", "pingdom.feed_proxy"} <= named
    fields = Host.model_fields.keys() - {"name", "address", "port"}
    told = {name for name in named | fields if f"`{name}`" in page or f"{name}: " in page}
    assert sorted((named | fields) - told - {"reader"}) == []
    assert "  reader:  " in page
