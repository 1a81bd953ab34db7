"""All generated pages of the documentation."""

from collections.abc import Mapping
from pathlib import Path

from tests.docs.api import build_api_pages
from tests.docs.cli import build_cli_pages
from tests.docs.entries import build_entries_page
from tests.docs.runbook_format import build_format_page

DOCS = Path(__file__).parents[2] / "docs"
_ENTRIES_PAGE = "change-log-entries.md"
_FORMAT_PAGE = "runbook-format.md"


def build_pages() -> Mapping[str, str]:
    """Return the text of each generated page, by its path in docs."""
    pages = {f"cli/{name}": text for name, text in build_cli_pages().items()}
    pages |= {f"api/{name}": text for name, text in build_api_pages().items()}
    return pages | {_ENTRIES_PAGE: build_entries_page(), _FORMAT_PAGE: build_format_page()}


def list_generated_files() -> set[str]:
    """Return the paths in docs of the generated pages that exist now."""
    return {
        str(file.relative_to(DOCS))
        for pattern in ("cli/*", "api/*", _ENTRIES_PAGE, _FORMAT_PAGE)
        for file in DOCS.glob(pattern)
    }


def write_pages() -> None:
    """Write all pages, and delete those that are no longer generated."""
    pages = build_pages()
    for name in list_generated_files() - pages.keys():
        (DOCS / name).unlink()
    for name, text in pages.items():
        file = DOCS / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
