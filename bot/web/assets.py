"""What the pages wear that is fetched before they are installed: their stylesheet and scripts."""

from pathlib import Path

STATIC_DIRECTORY = Path(__file__).parent / "static"
_VENDOR_FILES = ("vendor/tabler.min.css", "vendor/htmx.min.js")


def describe_missing_assets(static_directory: Path = STATIC_DIRECTORY) -> str:
    """Return what is so, and what to do, where some of it is not there; "" if all is."""
    missing = [name for name in _VENDOR_FILES if not (static_directory / name).is_file()]
    if not missing:
        return ""
    return (
        f"lack {' and '.join(missing)}, so they look bare and follow nothing by themselves: run "
        "make assets where Keyturn is installed from, and install it anew"
    )
