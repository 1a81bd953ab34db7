"""The stylesheet of the pages, which those of features use too."""

import re
from pathlib import Path

import bot
from bot.web.assets import STATIC_DIRECTORY

BOT = Path(bot.__file__).parent


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
