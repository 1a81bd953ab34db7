"""BMCs of servers: Redfish by sushy-tools' emulator, and IPMI by OpenIPMI's simulator."""

import socket
import sys
from pathlib import Path

import bcrypt

from tests.playground.daemon import Daemon, find_free_port, find_program
from tests.playground.tls import create_certificate

USER, PASSWORD = "keyturn", "secret-of-tests"
UUID = "27946b59-9e44-4fa7-8e91-f3527a1ef094"
SERIAL = "CZJ0000001"


def write_password(directory: Path) -> Path:
    file = directory / "bmc.password"
    file.write_text(f"{PASSWORD}\n")
    file.chmod(0o600)
    return file


class RedfishBmc(Daemon):
    """A server that is on, behind a BMC with Redfish.

    The emulator changes the power after up to eleven seconds; its clock runs a hundred times as
    fast as ours. authority: the CA of its certificate, in `directory` like the password file.
    """

    def __init__(self) -> None:
        self._faketime = find_program("/usr/bin/faketime", package="faketime")
        super().__init__()
        made = create_certificate(self.directory, names=("127.0.0.1",))
        self.authority, self._chain = made.authority, made.chain
        write_password(self.directory)
        self.port = 0

    def _choose_ports(self) -> None:
        self.port = find_free_port("127.0.0.1")

    def _configure(self) -> list[str]:
        here = self.directory
        login = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
        (here / "logins").write_text(f"{USER}:{login}\n")
        system = {"uuid": UUID, "name": "nas1", "power_state": "On", "nics": list[str]()}
        settings = {
            "FAKE_DRIVER": True,
            "STATE_DIR": str(here),
            "LISTEN_IP": "127.0.0.1",
            "LISTEN_PORT": self.port,
            "SSL_CERT": str(self._chain),
            "SSL_KEY": str(self._chain),
            "AUTH_FILE": str(here / "logins"),
            "FAKE_SYSTEMS": [system],
        }
        lines = [f"SUSHY_EMULATOR_{name} = {value!r}\n" for name, value in settings.items()]
        (here / "emulator.conf").write_text("".join(lines))
        emulator = str(Path(sys.executable).with_name("sushy-emulator"))
        words = [emulator, "--config", str(here / "emulator.conf")]
        return [self._faketime, "-f", "+0 x100", sys.executable, *words]

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


# What OpenIPMI's simulator asks about the power and the boot device, and tells them.
_CHASSIS = """\
#!/bin/sh
cd "$(dirname "$0")" || exit
shift
verb=$1; shift
if [ "$verb" = get ]; then
    for name; do echo "$name:$(cat "$name")"; done
else
    while [ $# -gt 1 ]; do
        case $1 in shutdown) echo 0 >power;; reset) ;; *) echo "$2" >"$1";; esac
        shift 2
    done
fi
"""
_LAN = """\
name "server"
startlan 1
  addr 127.0.0.1 {port}
  priv_limit admin
  allowed_auths_callback none md2 md5 straight
  allowed_auths_user none md2 md5 straight
  allowed_auths_operator none md2 md5 straight
  allowed_auths_admin none md2 md5 straight
  guid a123456789abcdefa123456789abcdef
endlan
user 2 true "{user}" "{password}" admin 10 none md2 md5 straight
chassis_control "{here}/chassis 0x20"
"""
_EMULATED = """\
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
mc_add_fru_data 0x20 0 {size} file 0 "{here}/fru"
mc_enable 0x20
sel_add 0x20 0x02 0x00 0x00 0x00 0x00 0x20 0x00 0x04 0x08 0x64 0x6f 0x01 0xff 0xff
{sensors}
"""


class IpmiBmc(Daemon):
    """A server that is on, behind a BMC with IPMI alone, with one entry in its event log.

    It has a temperature of 24 °C, and a power supply that has lost its cable.
    """

    def __init__(self) -> None:
        self._simulator = find_program("/usr/bin/ipmi_sim", package="openipmi")
        find_program("/usr/bin/ipmitool", package="ipmitool")
        super().__init__()
        self.password_file = write_password(self.directory)
        self.port = 0

    def _choose_ports(self) -> None:
        self.port = find_free_port("127.0.0.1")

    def _configure(self) -> list[str]:
        here = self.directory
        fru = _make_fru(("HP", "ProLiant DL380 G6", "", "", SERIAL, "", ""))
        (here / "fru").write_bytes(fru)
        (here / "state").mkdir(exist_ok=True)
        (here / "power").write_text("1\n")
        (here / "boot").write_text("default\n")
        (here / "chassis").write_text(_CHASSIS)
        (here / "chassis").chmod(0o755)
        lan = _LAN.format(port=self.port, user=USER, password=PASSWORD, here=here)
        (here / "lan.conf").write_text(lan)
        sensors = _make_sensors()
        emulated = _EMULATED.format(size=len(fru), here=here, sensors=sensors)
        (here / "commands").write_text(emulated)
        files = ["-c", str(here / "lan.conf"), "-f", str(here / "commands")]
        return [self._simulator, "-n", *files, "-s", str(here / "state")]

    def _answers(self) -> bool:
        """Tell whether the port is taken: the simulator takes it once it can answer."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(("127.0.0.1", self.port))
            except OSError:
                return True
        return False


def _make_sensors() -> str:
    """Return the simulator's commands for two sensors: sections 43.1 and 43.2 of IPMI 2.0."""
    # Owner, number, entity, capabilities, type, events, unit, factors, limits, and names of bytes.
    temperature = "20 00 01 07 01 7f 68 01 01 95 7a 95 7a 3f 3f 00 01 00 00 01 00 00 00 00 00 07"
    temperature += " 20 40 10 ff 00 5f 5a 50 00 05 0a 00 00 00 00 00"
    supply = "20 00 02 0a 02 67 40 08 6f 0f 00 0f 00 0f 00 c0 00 00 00 00 00 00 00 00 00 00"
    scanned = (
        "sensor_set_event_support 0x20 0 2 enable scanning per-state" + " 000000000001111" * 4
    )
    return "\n".join(
        [
            _make_record(1, 0x01, temperature, "Ambient Temp"),
            "sensor_add 0x20 0 1 1 1",
            "sensor_set_value 0x20 0 1 24 0",
            _make_record(2, 0x02, supply, "PS2 Status"),
            "sensor_add 0x20 0 2 8 0x6f",
            scanned,
            *(f"sensor_set_bit 0x20 0 2 {bit} 1 0" for bit in (0, 1, 3)),
        ]
    )


def _make_record(number: int, kind: int, body: str, name: str) -> str:
    content = bytes.fromhex(body) + bytes([0xC0 | len(name)]) + name.encode()
    record = bytes([number, 0, 0x51, kind, len(content)]) + content
    return f"main_sdr_add 0x20 {' '.join(f'{byte:#04x}' for byte in record)}"


def _make_fru(fields: tuple[str, ...]) -> bytes:
    """Return a FRU device with a product area, as IPMI's Platform Management FRU document says."""
    packed = b"".join(bytes([0xC0 | len(each)]) + each.encode() for each in fields) + b"\xc1"
    length = (3 + len(packed)) // 8 + 1
    area = (bytes([1, length, 0]) + packed).ljust(8 * length - 1, b"\0")
    header = bytes([1, 0, 0, 0, 1, 0, 0])
    return b"".join(part + bytes([-sum(part) & 0xFF]) for part in (header, area))
