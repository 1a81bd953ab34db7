"""A policy directory to start from: the product's rule, explained where it stands."""

from importlib.resources import files
from pathlib import Path

from bot.policy.loader import POLICY_FILES


def write_starter_policy(directory: Path) -> list[Path]:
    """Write the starter's files and return them. Raises FileExistsError rather than overwrite."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    taken = [name for name in POLICY_FILES if (directory / name).exists()]
    if taken:
        raise FileExistsError(f"{directory} holds {', '.join(taken)} already: nothing was written")
    (directory / "keys").mkdir(mode=0o700, exist_ok=True)
    for name in POLICY_FILES:
        file = directory / name
        file.write_text((files("bot.policy.starter") / name).read_text())
        file.chmod(0o644)
    return [directory / name for name in POLICY_FILES]
