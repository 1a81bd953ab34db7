"""Which commands a declared runbook may read with. No I/O.

A check runs without an approval, so its commands must not be able to change anything. Each program
is here with the arguments with which it only reads; any other is refused.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from runbooks._declared_parsers import compile_pattern

# Placeholders of values are in braces.
_PATH = r"/?[A-Za-z0-9_{][A-Za-z0-9_.@:+{}/-]*"
_NAME = r"[A-Za-z0-9_{/][A-Za-z0-9_.@:+{}/*,%=-]*"
_PORT = r"[A-Za-z0-9_{][A-Za-z0-9_{}/-]*"
_KEY = r"[A-Za-z0-9_{][A-Za-z0-9_.{}/-]*"
# Programs that cannot change anything or run another program, whatever their arguments are.
_HARMLESS = frozenset(
    """
    cat df du free getent grep groups hostid id iostat last ls lsblk lscpu lsmod md5sum mpstat
    nproc pgrep pidof ps pwd readlink sha256sum stat tail uname uptime vmstat w wc
    who zcat dpkg-query
    """.split()  # noqa: SIM905
)
_IPTABLES = r"(-t [a-z]+ )?(-w )?(-S|-L)( [A-Za-z0-9_-]{1,30})?( -[nvx]+)*"
_VOLUMES = (
    rf"((--noheadings|--nosuffix|--reportformat json|--units [a-z]|-o [a-z0-9_,+]+|{_KEY})( |$))*"
)
_UNIT_OPTION = (
    r"(--no-pager|--plain|--no-legend|--all|--full|--quiet|--value|-[alq]"
    r"|-p [A-Za-z,]+|--(property|state|type|output|lines)=[A-Za-z0-9_,.-]+)"
)
_POOL_WORDS = rf"( (-[HpPvxTLgLrt]+|-[ostd] [a-z0-9:_,]+|{_KEY}))*"
# Of find: each test and action, with as many words as find takes for it, of which none looks like
# an action. Other actions write files, remove them or run programs.
# https://www.gnu.org/software/findutils/manual/html_mono/find.html
_FOUND = r"[A-Za-z0-9_{/.*?\[][A-Za-z0-9_.@:+{}/*?,%=\[\]-]*"
_COUNT = r"([0-9]+|\{[a-z0-9_]+\})"
_FIND_TEST = (
    r"(!|\(|\)|-(a|and|o|or|not|true|false|empty|nouser|nogroup|readable|writable|executable"
    r"|xdev|mount|depth|daystart|follow|prune|print|print0|ls|quit)"
    rf"|-(i?name|i?path|i?lname|user|group|samefile|fstype|newer([aBcm][aBcmt])?) {_FOUND}"
    rf"|-type [bcdpfls](,[bcdpfls])*|-(max|min)depth {_COUNT}"
    rf"|-(uid|gid|links|inum|[acm]min|[acm]time) [-+]?{_COUNT}|-size [-+]?{_COUNT}[bcwkMG]?"
    rf"|-perm [-/]?({_COUNT}|[ugoa]+[-+=][rwxst]*(,[ugoa]+[-+=][rwxst]*)*)"
    r"|-printf [A-Za-z0-9_%][A-Za-z0-9_%.:,/@+=\\-]*)"
)
# Of sed: a number of a line, the last one, or a pattern, in which no sign ends it or its word.
_SED_ADDRESS = r"([0-9]+|\$|/([A-Za-z0-9_.^$:@={}-]|\\[.*^$\[\]])+/)"
_DIRECTORIES = frozenset({"", "/bin", "/sbin", "/usr/bin", "/usr/sbin"})
# Of the others: the arguments with which they only read. A blank is the end of a word.
_ARGUMENTS: Mapping[str, str] = {
    "apt-cache": r"policy( [A-Za-z0-9{][A-Za-z0-9.+:_{}-]*)+",
    # It says what it would do. Another login than root takes no lock for it.
    "apt-get": r"-s( --(with-new-pkgs|auto-remove|purge))* "
    r"(upgrade|dist-upgrade|autoremove)",
    "apachectl": r"-[SMVvt]",
    "apache2ctl": r"-[SMVvt]",
    "chronyc": r"(-n )?(-c )?(tracking|sources|sourcestats|activity)( -v)?",
    "crontab": rf"(-u {_KEY} )?-l",
    "date": r"(-u )?\+[A-Za-z0-9%:._-]+",
    "dmidecode": rf"(-[qs] ?{_KEY} ?|-t {_KEY} ?)*",
    "ethtool": rf"(-[akgcliSTm] |--show-[a-z-]+ )?{_KEY}",
    "exim": r"-bpc?|-bV|-bP( [a-z_]+)*",
    "exim4": r"-bpc?|-bV|-bP( [a-z_]+)*",
    "find": rf"(-[HLP] )?(/|{_PATH})( {_PATH})*( {_FIND_TEST})*",
    "findmnt": rf"((-[A-Za-z]+|--[a-z-]+|{_NAME})( |$))*",
    "getsebool": rf"{_KEY}( {_KEY})*|-a",
    "head": rf"(-[nc] ?[0-9]+ )?(-[qv] )?(-- )?{_PATH}( {_PATH})*",
    "firewall-cmd": rf"(--permanent )?(--zone={_KEY} )?--query-(service|port)={_PORT}",
    "hostname": r"(-[fsdIiA])?",
    "hostnamectl": r"(status|--static|--json=[a-z]+)?",
    "ip": r"((-[46jsdop]|-json|-details|-stats|-brief|-oneline|-br) )*"
    rf"(a|addr|address|l|link|r|route|n|neigh|rule)( (show|list|get)( {_NAME})*)?",
    "ip6tables": _IPTABLES,
    "iptables": _IPTABLES,
    "ipset": rf"(list|save)( {_KEY})?( -n| -t)*|test {_KEY} {_NAME}",
    "journalctl": r"((-[kbqraxe]|--no-pager|--utc|-[untop] [A-Za-z0-9_.@:{}*-]+"
    r"|--(unit|since|until|lines|output|priority|identifier)=[A-Za-z0-9_.@:{}*+-]+)( |$))*",
    "locale": r"-a",
    "loginctl": r"(list-(sessions|users|seats)|show-(session|user)( [A-Za-z0-9{}_]+)?)"
    r"( --no-[a-z]+)*",
    "lvs": _VOLUMES,
    "mailq": r"",
    "mdadm": rf"(--detail|--examine|-D|-E)( --[a-z-]+)*( {_PATH})*",
    "nft": rf"((-j|-a|-n|-s) )*list( {_KEY})*",
    "nginx": r"-[vVtT]",
    "postconf": rf"((-n|-h|-d|-m|{_KEY})( |$))*",
    "postqueue": r"-[pj]",
    "pvs": _VOLUMES,
    "rpm": rf"-q[ail]*( {_KEY})*",
    "sed": rf"-n( -E)? -e {_SED_ADDRESS}(,{_SED_ADDRESS})?p -- {_PATH}( {_PATH})*",
    "sensors": r"(-[uj])?",
    "smartctl": rf"((-[HAicaxj]+|-l [a-z]+) )*{_PATH}",
    "ss": rf"((-[aHlntuxpiemosS046]+|[=:]|:[0-9]+|{_NAME})( |$))*",
    "swanctl": r"--(list|stats)[a-z-]*( --(raw|pretty|noblock))*",
    "sysctl": rf"(-[nNb] )*{_KEY}( {_KEY})*|-a",
    "systemctl": rf"({_UNIT_OPTION} )*"
    r"(show|is-active|is-enabled|is-failed|is-system-running|status|cat|list-units|list-timers|list-unit-files|list-sockets|list-dependencies|get-default)"
    rf"( ({_UNIT_OPTION}|{_NAME}))*",
    "timedatectl": r"(show|status|timesync-status|show-timesync)( --no-pager| --value)*",
    "tune2fs": rf"-l {_PATH}",
    "ufw": r"status( (verbose|numbered))?|show added",
    "vgs": _VOLUMES,
    "vtysh": r"-c show([\x20][A-Za-z0-9./:_-]+)+",
    "zfs": rf"(list|get){_POOL_WORDS}",
    "zpool": rf"(list|status|get|iostat){_POOL_WORDS}",
}


def refuse_change(run: Sequence[str | int]) -> None:
    """Raise ValueError if a command of a reading could change something."""
    program, *rest = map(str, run)
    directory, _, name = program.rpartition("/")
    if directory not in _DIRECTORIES:
        raise ValueError(f"{program} is not where programs of the system are: name {name} alone")
    if name in _HARMLESS:
        return
    if name not in _ARGUMENTS:
        raise ValueError(
            f"Keyturn does not know that {name} only reads: use `file`, a `query` of a connector, "
            "or one of the programs that docs/runbooks.md lists"
        )
    if not _compile(name).fullmatch("\n".join(rest)):
        raise ValueError(
            f"Keyturn does not know that `{name} {' '.join(rest)}` only reads: use other arguments"
        )


@cache
def _compile(name: str) -> Any:
    return compile_pattern(_ARGUMENTS[name].replace(" ", r"\n").replace(r"[\x20]", " "))


def list_readers() -> Sequence[str]:
    """Return the programs that a reading may use."""
    return sorted({*_HARMLESS, *_ARGUMENTS})
