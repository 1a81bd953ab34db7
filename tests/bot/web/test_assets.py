"""Static assets: complete, or named when missing."""

import shutil
from pathlib import Path

from bot.web.assets import STATIC_DIRECTORY, describe_missing_assets


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
