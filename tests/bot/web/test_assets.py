"""Static assets: complete, or named when missing."""

import re
import shutil
from pathlib import Path

from bot.web.assets import STATIC_DIRECTORY, describe_missing_assets

BOT = Path(__file__).parents[3] / "bot"


def test_static_assets_are_complete_in_this_checkout():
    assert describe_missing_assets() == ""


def test_missing_static_asset_is_named_with_make_assets(tmp_path: Path):
    assert describe_missing_assets(tmp_path).startswith(
        "lack vendor/tabler.min.css and vendor/htmx.min.js, so they have no layout"
    )
    (tmp_path / "vendor").mkdir()
    shutil.copy(STATIC_DIRECTORY / "vendor" / "tabler.min.css", tmp_path / "vendor")
    assert "lack vendor/htmx.min.js, so" in describe_missing_assets(tmp_path)
    assert "make assets" in describe_missing_assets(tmp_path)


def test_every_class_of_the_stylesheet_is_used():
    """A rule about a class that no page has any more does nothing, and no one notices."""
    files = [file for end in ("html", "js", "py") for file in BOT.rglob(f"*.{end}")]
    used = "\n".join(file.read_text() for file in files if "vendor" not in file.parts)
    classes = set(re.findall(r"\.(kt-[a-z0-9-]+)", (STATIC_DIRECTORY / "keyturn.css").read_text()))
    # The last part of some is put in: kt-ansi-{{ colour }}.
    unused = [
        name
        for name in sorted(classes)
        if not re.search(rf"{name}(?![a-z0-9-])|{'-'.join(name.split('-')[:2])}-['\"{{]", used)
    ]
    assert len(classes) > 50
    assert unused == []
