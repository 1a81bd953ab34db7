"""A power strip: a real SNMP agent (Net-SNMP's) that serves the outlet tables of a MIB."""

from pathlib import Path

from connectors.pdu import TABLES
from tests.playground.daemon import Daemon, find_free_port, find_program

USER, AUTH, PRIVACY, COMMUNITY = "keyturn", "auth-passphrase", "privacy-passphrase", "two-see"
NAMES = ("web1 A", "web2 \u00e9;\n$(id)", "")
# What snmpd asks it on standard input: see snmpd.conf(5), pass_persist. A cycle is off, and on
# again at the next reading but one.
_STRIP = """
import sys
name_column, state_column, command_column, index, on, off = sys.argv[1:7]
turn_on, turn_off, cycle = sys.argv[7:10]
names = sys.argv[10:]
state = {str(n): on for n in range(1, len(names) + 1)}
cycling = {}
def read(oid):
    column, _, number = oid.rpartition("." + index)
    if number not in state: return None
    if column == name_column: return "string", names[int(number) - 1].replace(chr(10), " ")
    if column == command_column: return "integer", turn_on if state[number] == on else turn_off
    if column != state_column: return None
    if number in cycling:
        cycling[number] -= 1
        if cycling[number] < 0: del cycling[number]; state[number] = on
    return "integer", state[number]
def key(oid): return [int(part) for part in oid.strip(".").split(".")]
oids = sorted(
    [f"{column}.{index}{number}" for column in (name_column, state_column, command_column)
     for number in state], key=key)
def line(): return sys.stdin.readline().strip()
for word in iter(sys.stdin.readline, ""):
    word = word.strip()
    if not word: continue
    if word == "PING": print("PONG", flush=True); continue
    oid = line().strip(".")
    if word == "set":
        value = line().split()[1]
        number = oid.rpartition("." + index)[2]
        if oid.startswith(command_column + ".") and value in (turn_on, turn_off, cycle):
            state[number] = on if value == turn_on else off
            if value == cycle: cycling[number] = 2
            print("DONE", flush=True)
        else: print("not-writable", flush=True)
        continue
    if word == "getnext": oid = next((one for one in oids if key(one) > key(oid)), "")
    found = read(oid)
    print("NONE" if found is None else f".{oid}\\n{found[0]}\\n{found[1]}", flush=True)
"""


class PowerStrip(Daemon):
    """A strip with three outlets, all on. mib: one of connectors.pdu.TABLES."""

    def __init__(self, mib: str, *, read_only: bool = False) -> None:
        self._snmpd = find_program("/usr/sbin/snmpd", package="snmpd")
        super().__init__()
        self._mib, self._read_only = mib, read_only
        self.port = 0
        for name, text in (("auth", AUTH), ("privacy", PRIVACY), ("community", COMMUNITY)):
            file = self.directory / name
            file.write_text(f"{text}\n")
            file.chmod(0o600)

    @property
    def entry(self) -> dict[str, object]:
        """Its entry of the inventory. Its files are relative to its directory."""
        files = {"auth_file": "auth", "privacy_file": "privacy"}
        return {
            **{"address": "127.0.0.1", "port": self.port, "platform": "snmp", "tags": ["pdu"]},
            "snmp": {"user": USER, "auth": "sha", "privacy": "aes", **files},
            "settings": {"power.outlets": "1=web1/psu1 2=web2,switch3 3=-"},
        }

    def _choose_ports(self) -> None:
        self.port = find_free_port("127.0.0.1")

    def _configure(self) -> list[str]:
        table = TABLES[self._mib]
        strip = self.directory / "strip.py"
        strip.write_text(_STRIP)
        values = (table.on, table.off, *(table.commands[one] for one in ("on", "off", "cycle")))
        columns = (table.name_column, table.state_column, table.command_column)
        index = "1." if self._mib == "PDU2-MIB" else ""
        start = self.directory / "strip"
        words = [*columns, index, *map(str, values), *NAMES]
        quoted = " ".join("'" + word.replace("\n", " ") + "'" for word in words)
        start.write_text(f"#!/bin/sh\nexec python3 -I {strip} {quoted}\n")
        start.chmod(0o755)
        root = ".".join(table.state_column.split(".")[:7])
        access = "ro" if self._read_only else "rw"
        (self.directory / "snmpd.conf").write_text(
            f"createUser {USER} SHA {AUTH} AES {PRIVACY}\n"
            f"{access}user {USER} priv\n"
            f"{access}community {COMMUNITY}\n"
            f"pass_persist .{root} {start}\n"
        )
        options = ["-f", "-Lo", "-C", "-c", str(self.directory / "snmpd.conf")]
        return [
            *("/usr/bin/env", "MIBS=", f"SNMP_PERSISTENT_DIR={self.directory / 'state'}"),
            *(self._snmpd, *options, f"udp:127.0.0.1:{self.port}"),
        ]

    def _answers(self) -> bool:
        return "NET-SNMP version" in Path(self._log).read_text()
