"""Servers behind BMCs, for a scripted fleet: nas1 with Redfish, old1 with IPMI through gate1.

System and sensors are those of an iLO 5, and the event log that of a Cisco IMC, from public dumps
reduced to what is read here.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from connectors import ipmi, redfish
from connectors.inventory import Inventory
from connectors.ipmi import Controller
from tests.playground.bmc import SERIAL
from tests.scripted_fleet import ScriptedFleet, build_inventory

ANSWERS = Path(__file__).parent.parent / "connectors" / "answers" / "bmc"
CERTIFICATE = ":".join(["AB"] * 32)
SYSTEM = "/redfish/v1/Systems/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
CONTROLLER = Controller("192.0.2.7", "623", "keyturn", "/etc/keyturn/old1.password", "3")
STATUS = "System Power         : on\nMain Power Fault     : false\nCooling/Fan Fault    : false\n"
FRU = f" Product Manufacturer : HP\n Product Name : DL380 G6\n Product Serial : {SERIAL}\n"
SENSORS = "Ambient Temp     | 0Eh | ok  |  7.1 | 23 degrees C\n"
FLAGS = "Boot parameter data: {}00000000\n"


def recorded(name: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((ANSWERS / f"{name}.json").read_text())
    return answers


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def build_server_fleet(
    bmc: Mapping[str, object] | None = None,
    *,
    tags: Sequence[str] = ("bmc", "nfs", "zfs"),
    **system: object,
) -> ScriptedFleet:
    """Return the fleet.

    bmc: more fields of nas1's BMC. tags: of nas1. system: other properties of nas1.
    """
    entry = build_inventory("nas1")["nas1"].model_dump(exclude={"name"})
    by_redfish = {
        "address": "nas1-ilo.example",
        "user": "keyturn",
        "password_file": "nas1.password",
    }
    by_ipmi = {
        **{"address": CONTROLLER.address, "user": "keyturn", "ipmi_from": "gate1"},
        **{"password_file": CONTROLLER.password_file, "ipmi_cipher": "3", "serial": SERIAL},
    }
    hosts = {
        "nas1": {
            **entry,
            "tags": tags,
            "bmc": {**by_redfish, "certificate": CERTIFICATE, **(bmc or {})},
        },
        "old1": {**entry, "bmc": by_ipmi},
        "gate1": entry,
        "web1": entry,
    }
    fleet = ScriptedFleet(inventory=Inventory.model_validate({"hosts": hosts}))
    script(fleet, redfish.ROOT, {"Systems": link("/redfish/v1/Systems")})
    script(fleet, "/redfish/v1/Systems", {"Members": [link(SYSTEM)]})
    script(fleet, SYSTEM, {**recorded("ilo5-system"), **system})
    fleet.script("gate1", ipmi.query_chassis(CONTROLLER).command, STATUS)
    fleet.script("gate1", ipmi.query_inventory(CONTROLLER).command, FRU)
    fleet.script("gate1", ipmi.query_boot_once(CONTROLLER).command, FLAGS.format("0000"))
    fleet.script("gate1", ipmi.query_sensors(CONTROLLER).command, SENSORS)
    return fleet


def script(fleet: ScriptedFleet, path: str, content: Mapping[str, object]) -> None:
    fleet.script("nas1", redfish.query_resource(path).command, json.dumps(content))
