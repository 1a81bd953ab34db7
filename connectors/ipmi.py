"""Servers by IPMI, for BMCs without Redfish: ipmitool, run on a host that reaches them. No I/O.

The forms are those of ipmitool 1.8.19, and bits of boot flags those of the IPMI 2.0 specification,
table 28-14: https://www.intel.com/content/www/us/en/products/docs/servers/ipmi/ipmi-home.html
"""

import re
from dataclasses import dataclass

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.machine import POWER_SECONDS, BmcEvent, Machine, PowerAction, Sensor
from connectors.rows import Rows, parse_each
from connectors.script import load_script

_HINTS = (
    Hint(
        r"Unable to establish IPMI|Error: Unable to establish LAN",
        "the BMC does not answer, or refuses the login: check its address, user and "
        "password_file in the inventory, and that IPMI over LAN is enabled",
    ),
    Hint(r"Unable to read password from file", "the host cannot read the password_file"),
    Hint(r"Could not build SDRR|Unable to open SDR", "the BMC has no list of its sensors"),
)
# What power and boot flags need, even to read them.
_CHANGE = "OPERATOR"
_VERBS = {"on": "on", "shutdown": "soft", "off": "off", "cycle": "cycle"}
_STATES = {"on": "on", "shutdown": "off", "off": "off", "cycle": "on"}
_CONTROL = load_script("ipmi-power")
# By bits 5 to 2 of the second byte of the boot flags.
_BOOT_DEVICES = {0: "", 1: "pxe", 2: "disk", 5: "cd", 6: "setup"}
_BOOT_WORDS = {"": "none", "pxe": "pxe", "disk": "disk", "cd": "cdrom", "setup": "bios"}
_FLAGS = re.compile(r"^Boot parameter data: ([0-9A-Fa-f]{2})([0-9A-Fa-f]{2})", re.MULTILINE)
_FAULTS = ("Power Overload", "Main Power Fault", "Power Control Fault", "Drive Fault")
_FAN_FAULT = "Cooling/Fan Fault"
# What a sensor with thresholds has crossed; ns is one without a reading.
_THRESHOLDS = {
    **{"ok": "ok", "ns": "", "lnc": "low", "unc": "high", "lcr": "critically low"},
    **{"ucr": "critically high", "lnr": "critically low", "unr": "critically high"},
}
# Other sensors have a list of states, and ipmitool prints ok beside each of them. These are the
# states of tables 42-2 and 42-3 that need a person, by the words in which ipmitool names them.
_TROUBLE = re.compile(
    r"\b(?:fail(?:ed|ure)?|fault|error|lost|critical|non-(?:critical|recoverable|redundant)|degraded"
    r"|ierr|trip|hang|timeout|nmi|[ps]err|(?:un)?correctable|parity|exceeded|lags|abort(?:ed)?"
    r"|out-of-range|intrusion|overtemperature|rebuild|throttled|device disabled|low)\b",
    re.IGNORECASE,
)
_NO_TROUBLE = re.compile(r"predictive failure deasserted|limit not exceeded", re.IGNORECASE)
_SENSOR_SECONDS = 120


@dataclass(frozen=True)
class Controller:
    """How ipmitool reaches a BMC."""

    address: str
    port: str
    user: str
    password_file: str
    """On the host that runs ipmitool."""
    cipher: str = ""

    def run(self, *words: str, level: str = "USER", seconds: int = 30) -> Shell:
        return Shell((*self.get_argv(level), *words), hints=_HINTS, deadline=seconds)

    def get_argv(self, level: str) -> tuple[str, ...]:
        """Return the words before a command. level: the rights to log in with.

        Where the list of sensors is empty, ipmitool would make the BMC build it again before it
        reads the event log: the rights of USER do not suffice for that.
        """
        login = ("-U", self.user, "-f", self.password_file, "-L", level)
        suite = ("-C", self.cipher) if self.cipher else ()
        return ("ipmitool", "-I", "lanplus", "-H", self.address, "-p", self.port, *login, *suite)


@dataclass(frozen=True)
class IpmiMachine(Machine):
    """A server, and how to reach its BMC."""

    controller: Controller = Controller("", "", "", "")

    def control_power(self, action: PowerAction) -> Shell:
        seconds = POWER_SECONDS[action]
        words = (_VERBS[action], _STATES[action], str(seconds), *self.controller.get_argv(_CHANGE))
        return Shell((_CONTROL, *words), hints=_HINTS, deadline=seconds + 60)

    def set_boot_once(self, device: str) -> Shell | None:
        if device not in _BOOT_WORDS:
            return None
        return self.controller.run("chassis", "bootdev", _BOOT_WORDS[device], level=_CHANGE)


def query_chassis(controller: Controller) -> Query[dict[str, str]]:
    """Query power and faults: the fields of `chassis status` by their names."""
    return Query(controller.run("chassis", "status"), _parse_fields)


def query_inventory(controller: Controller) -> Query[dict[str, str]]:
    """Query names and serial numbers: the fields of `fru print 0` by their names."""
    return Query(controller.run("fru", "print", "0"), _parse_fields)


def query_boot_once(controller: Controller) -> Query[str]:
    return Query(
        controller.run("chassis", "bootparam", "get", "5", level=_CHANGE), parse_boot_once
    )


def query_sensors(controller: Controller) -> Query[Rows[Sensor]]:
    """Query temperatures, fans, power supplies and whatever else the BMC watches."""
    return Query(controller.run("sdr", "elist", seconds=_SENSOR_SECONDS), parse_sensors)


def query_events(controller: Controller, newest: int) -> Query[tuple[BmcEvent, ...]]:
    return Query(controller.run("sel", "list", "last", str(newest)), parse_events)


def make_machine(
    controller: Controller, chassis: dict[str, str], fru: dict[str, str], boot_once: str
) -> IpmiMachine:
    """Return the server that these answers describe."""
    if "System Power" not in chassis:
        raise ParseError("ipmitool printed no System Power")
    faults = [name for name in (*_FAULTS, _FAN_FAULT) if chassis.get(name) == "true"]
    names = (fru.get("Product Manufacturer", ""), fru.get("Product Name", ""))
    serials = (fru.get("Product Serial", ""), fru.get("Chassis Serial", ""))
    return IpmiMachine(
        power=chassis["System Power"],
        health=", ".join(faults).lower() or "ok",
        model=" ".join(filter(None, names)),
        serials=tuple(filter(None, serials)),
        uuid="",  # its byte order differs between makers
        boot_once=boot_once,
        controller=controller,
    )


def _parse_fields(answer: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in answer.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def parse_boot_once(answer: str) -> str:
    """Return the device of the next boot from the boot flags; "" if none is set."""
    found = _FLAGS.search(answer)
    if found is None:
        raise ParseError(f"ipmitool printed no boot flags: {answer[:120]!r}")
    valid, device = int(found[1], 16), int(found[2], 16) >> 2 & 0xF
    is_once = valid & 0x80 and not valid & 0x40
    return _BOOT_DEVICES.get(device, f"device {device}") if is_once else ""


def parse_sensors(answer: str) -> Rows[Sensor]:
    """Parse `sdr elist`: name, number, threshold status, entity, and reading or states."""
    sensors = parse_each(filter(str.strip, answer.splitlines()), _parse_sensor)
    if not sensors and not sensors.odd:
        raise ParseError("the BMC lists no sensors")
    return sensors


def _parse_sensor(line: str) -> Sensor:
    name, _number, status, _entity, reading = (word.strip() for word in line.split("|"))
    if status not in _THRESHOLDS:
        raise ParseError("it has no known status")
    # A power supply may have both: `0 Watts, Presence detected, Failure detected`.
    amount = re.match(r"-?[\d.]+ [^,]+(?:, |$)", reading)
    states = reading[amount.end() :] if amount else reading
    health = _THRESHOLDS[status] if amount or status != "ok" else ""
    if health in {"ok", ""} and _has_trouble(states):
        health = "not ok"
    return Sensor(name, reading.replace("degrees C", "°C"), health)


def _has_trouble(states: str) -> bool:
    return bool(_TROUBLE.search(_NO_TROUBLE.sub("", states)))


def parse_events(answer: str) -> Rows[BmcEvent]:
    """Parse `sel list`: number, date, time, sensor, event, and Asserted or Deasserted."""
    return parse_each(filter(str.strip, answer.splitlines()), _parse_event)


def _parse_event(line: str) -> BmcEvent:
    _, *rest = (word.strip() for word in line.split("|"))
    if len(rest) < 3:
        raise ParseError("it is no event")
    # 03/14/2023; Pre-Init where the BMC had no clock yet.
    month, _, day_year = rest[0].partition("/")
    day, _, year = day_year.partition("/")
    date = f"{year}-{month}-{day}" if year else rest[0]
    return BmcEvent(f"{date} {rest[1]}", "", ", ".join(rest[2:]))
