"""What the pages wear is there, or is said to be missing."""

import shutil
from pathlib import Path

from bot.web.assets import STATIC, lacking


def test_pages_are_dressed_as_they_are_here():
    assert lacking() == ""


def test_what_was_not_fetched_is_named_and_what_to_do(tmp_path: Path):
    assert lacking(tmp_path).startswith(
        "lack vendor/tabler.min.css and vendor/htmx.min.js, so they look bare"
    )
    (tmp_path / "vendor").mkdir()
    shutil.copy(STATIC / "vendor" / "tabler.min.css", tmp_path / "vendor")
    assert "lack vendor/htmx.min.js, so" in lacking(tmp_path)
    assert "make assets" in lacking(tmp_path)
