"""The README is short, complete and true."""

import re
from pathlib import Path

import pytest

from tests.runbooks.pages import load_change_page

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
MAX_LINES = 220


def _list_code_blocks(text: str, language: str = "") -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", text)


def test_readme_is_short():
    assert len(README.splitlines()) <= MAX_LINES


def test_readme_has_its_five_main_sections():
    headings = re.findall(r"(?m)^## (.*)$", README)
    needed = ["Install", "Connect Slack", "Write the policy", "Add hosts", "Write a runbook"]
    assert [heading for heading in headings if heading in needed] == needed


@pytest.mark.parametrize("index", ["README.md", "docs/README.md"])
def test_contents_list_every_page(index: str):
    file = ROOT / index
    linked = {
        (file.parent / link.partition("#")[0]).resolve()
        for link in re.findall(r"\]\(([^)\s]+)\)", file.read_text())
        if "://" not in link
    }
    pages = {page for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"}
    assert sorted(page.name for page in pages - linked) == []


def test_make_targets_of_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"(?m)(?:^|`)make ([a-z]+)\b", README))
    assert {"demo", "test", "package"} <= targets
    for target in targets:
        assert re.search(rf"(?m)^{target}:.*## ", makefile), target


def test_runbook_of_readme_is_one():
    (page,) = _list_code_blocks(README, "yaml")
    change = load_change_page(page).model_validate({"host": "web1", "value": 10})
    [step] = change.plan(60).steps
    assert str(step.do).endswith("sysctl -w vm.swappiness=10")
    assert change.plan(10).steps == ()
