"""A program for root's shell that brings a host its scripts and its sudoers lines. Pure."""

from collections.abc import Iterable, Iterator

from bot.inventory import sudoers
from bot.inventory.sudoers import Grant
from connectors.inventory import Host
from connectors.script import FOLDER, Script

_END = "end-of-keyturn-file"
# sudo passes over files of its directory with a period in their names, and visudo judges before
# anything counts. Scripts of another version go last: until then their rules may still be used.
_PROGRAM = """\
#!/bin/sh
# Brings {host} the scripts that Keyturn's sudoers lines name, and these lines.
# Read it, and give it to root's shell there. To do so again changes nothing.
set -eu
umask 022
[ "$(id -u)" = 0 ] || {{ echo "this is for root: nothing was changed" >&2; exit 1; }}
mkdir -p {folder}
chown 0:0 {folder}
chmod 755 {folder}
rules=$(mktemp /etc/sudoers.d/.keyturn.XXXXXX)
trap 'rm -f -- "$rules"' EXIT

put() {{
    cat >"$1.new"
    chown 0:0 "$1.new"
    chmod 755 "$1.new"
    mv -f -- "$1.new" "$1"
}}

{files}
cat >"$rules" <<'{end}'
{rules}{end}
visudo -cf "$rules" >&2
chmod 440 "$rules"
mv -f -- "$rules" /etc/sudoers.d/keyturn

for file in {folder}/*; do
    case $file in
    {kept}) ;;
    *) rm -f -- "$file" ;;
    esac
done
echo "{host} has its scripts and sudoers lines"
"""


def scripts(granted: Iterable[Grant]) -> tuple[Script, ...]:
    """Return every script that rules name, by their names."""
    found = {script.name: script for grant in granted for script in grant.rule.scripts}
    return tuple(found[name] for name in sorted(found))


def program(host: Host) -> str:
    """Write the program for a host, as if its scripts lay there already."""
    there = host.model_copy(update={"scripts": True})
    granted = sudoers.granted_on(there)
    needed = scripts(granted)
    return _PROGRAM.format(
        host=host.name,
        folder=FOLDER,
        files="\n".join(_files(needed)),
        rules=sudoers.text(there, granted),
        kept=" | ".join(script.path for script in needed) or "''",
        end=_END,
    )


def _files(needed: Iterable[Script]) -> Iterator[str]:
    for script in needed:
        yield f"put {script.path} <<'{_END}'\n{script.file}{_END}\n"
