"""Static files of the pages, some of which are downloaded by `make assets`."""

from pathlib import Path

STATIC_DIRECTORY = Path(__file__).parent / "static"
_VENDOR_FILES = ("vendor/tabler.min.css", "vendor/htmx.min.js")


def describe_missing_assets(static_directory: Path = STATIC_DIRECTORY) -> str:
    """Return a message about missing files and how to fix it; "" if none are missing."""
    missing = [name for name in _VENDOR_FILES if not (static_directory / name).is_file()]
    if not missing:
        return ""
    return (
        f"lack {' and '.join(missing)}, so they have no layout and no live updates: run make "
        "assets in the source directory of Keyturn, then install it again"
    )
