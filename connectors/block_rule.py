"""The udev rule that keeps a block device's settings across reboots. No I/O.

Format: udev(7). Each device has a file that belongs to Keyturn: its first line says so.
"""

import re
from collections.abc import Mapping

from connectors.block_settings import VALUES
from connectors.command import Hint, Query, Shell
from connectors.script import load_script
from connectors.sudo import SudoRule, WordPattern
from connectors.visible_text import InvisibleCharacterError, refuse_invisible

_FOLDER = "/etc/udev/rules.d"
_HEADER = "# Written by Keyturn, which replaces this file: change it by `nfs scheduler set`."
_VALUE = re.compile(r"[a-z0-9._-]+|\d+", re.ASCII)
_IDENTITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9!._-]{0,127}", re.ASCII)
_SETTING = re.compile(r"[a-z_/]+", re.ASCII)

_READ = 'if [ -e "$1" ]; then exec cat -- "$1"; fi'
# A udev rule can run any program, so the host accepts only lines that format_rule can write.
_SETTINGS = "|".join(f'{name}[}}]="({values})"' for name, values in VALUES.items())
_LINE = (
    'ACTION=="add[|]change", SUBSYSTEM=="block", ENV[{]DEVTYPE[}]=="disk", '
    f'(KERNEL|ATTR[{{][a-z/]+[}}])=="[A-Za-z0-9!._-]+"(, ATTR[{{]queue/({_SETTINGS}))+'
)
_REPLACE = load_script(
    "block-rule", argument_count=1, HEADER=_HEADER.replace("`", "."), RULE=_LINE
)
_HINTS = (
    Hint(r"Read-only file system", "the host's /etc is read-only: request it without persist"),
    Hint(r"No space left", "the host's /etc is full"),
)

Identity = tuple[str, str] | None


def make_rule_path(device: str, identity: Identity) -> str:
    """Return the rule's file, named by the device's identity if it has one, else by its name."""
    name = identity[1] if identity else device
    if not _IDENTITY.fullmatch(name):
        raise ValueError(f"{name!r} cannot be part of a file name")
    return f"{_FOLDER}/60-keyturn-{name}.rules"


def format_rule(device: str, identity: Identity, settings: Mapping[str, str | int]) -> str:
    """Return the rule's text. settings: by file below `queue`, in the order to write them."""
    match = f'ATTR{{{identity[0]}}}=="{identity[1]}"' if identity else f'KERNEL=="{device}"'
    for name, value in settings.items():
        if not (_SETTING.fullmatch(name) and _VALUE.fullmatch(str(value))):
            raise ValueError(f"{name}={value} is not allowed in a udev rule")
    written = [f'ATTR{{queue/{name}}}="{value}"' for name, value in settings.items()]
    # Partitions have their disk's identity and no queue.
    conditions = ['ACTION=="add|change"', 'SUBSYSTEM=="block"', 'ENV{DEVTYPE}=="disk"', match]
    return f"{_HEADER}\n{', '.join([*conditions, *written])}\n"


def query_rule(file: str) -> Query[str]:
    """Query the text of a rule; "" if there is none."""
    return Query(Shell(("sh", "-c", _READ, "keyturn", file)), lambda answer: answer)


def is_own_rule(text: str) -> bool:
    """Return whether Keyturn may replace this file, and can restore it."""
    try:
        for line in text.split("\n"):
            refuse_invisible(line)
    except InvisibleCharacterError:
        return False
    header, _, lines = text.partition("\n")
    plain = all(re.fullmatch(_LINE, line, re.ASCII) for line in lines.splitlines())
    return not text or (header == _HEADER and text.endswith("\n") and plain)


def replace_rule(file: str, text: str) -> Shell:
    """Replace the file with this text atomically, or remove it if the text is empty."""
    return Shell((_REPLACE, file), stdin=text, root=True, hints=_HINTS)


_FILE = WordPattern(_IDENTITY.pattern, prefix=f"{_FOLDER}/60-keyturn-", suffix=".rules")
SUDO = (SudoRule(_REPLACE, _FILE),)
