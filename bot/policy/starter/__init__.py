"""The starter policy: files with comments that explain each part."""

from importlib.resources import files
from pathlib import Path

from bot.policy.loader import REQUIRED_FILES

STARTER_FILES = (*REQUIRED_FILES, "freezes.yaml", "trees/example.yaml")


def write_starter_policy(directory: Path) -> list[Path]:
    """Write the starter files and return their paths. Raises FileExistsError if one exists."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    existing = [name for name in STARTER_FILES if (directory / name).exists()]
    if existing:
        raise FileExistsError(
            f"{directory} already contains {', '.join(existing)}: nothing was written"
        )
    (directory / "keys").mkdir(mode=0o700, exist_ok=True)
    (directory / "trees").mkdir(mode=0o755, exist_ok=True)
    for name in STARTER_FILES:
        file = directory / name
        file.write_text((files("bot.policy.starter") / name).read_text())
        file.chmod(0o644)
    return [directory / name for name in STARTER_FILES]
