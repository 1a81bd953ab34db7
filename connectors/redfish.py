"""Servers by Redfish, the HTTPS interface of BMCs. No I/O.

Names of properties are those of the schemas ComputerSystem, ActionInfo, Chassis, Thermal, Power,
ThermalSubsystem, ThermalMetrics, Fan, PowerSubsystem, PowerSupply, Sensor, LogService and
LogEntry: https://redfish.dmtf.org/schemas. Resources are found by their links, as the standard
requires (https://www.dmtf.org/dsp/DSP0266): only the root has a fixed path.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from connectors.command import ApiCall, Query
from connectors.errors import ParseError
from connectors.machine import (
    POWER_SECONDS,
    UNKNOWN_POWER,
    BmcEvent,
    Machine,
    PowerAction,
    Sensor,
)
from connectors.visible_text import quote_text

ROOT = "/redfish/v1/"
# The values of ResetType for each action, the best first.
_RESET_TYPES: Mapping[PowerAction, Sequence[str]] = {
    "on": ("On", "ForceOn"),
    "shutdown": ("GracefulShutdown",),
    "off": ("ForceOff",),
    "cycle": ("PowerCycle", "ForceRestart"),
}
_POWER_STATES = {"on": "On", "shutdown": "Off", "off": "Off", "cycle": "On"}
_BOOT_TARGETS = {"pxe": "Pxe", "disk": "Hdd", "cd": "Cd", "setup": "BiosSetup"}
_RESET = "#ComputerSystem.Reset"
_BOOT_DEVICES = {target: device for device, target in _BOOT_TARGETS.items()}
# The logs of hardware: the standard SEL, HPE's Integrated Management Log, and those of BMCs that
# have only one of another name.
_HARDWARE_LOGS = ("sel", "iml", "eventlog", "log1")


@dataclass(frozen=True)
class Resource:
    """A document of the BMC."""

    path: str
    content: Mapping[str, Any]

    def get_text(self, *names: str) -> str:
        """Return a property, within others; "" if it is missing or null."""
        value: object = self.content
        for name in names:
            value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, dict) else None
        return "" if value is None else str(value).strip()

    def get_health(self) -> str:
        """Return ok or the BMC's own word, in lower case; "" if it does not say."""
        rollup, own = self.get_text("Status", "HealthRollup"), self.get_text("Status", "Health")
        return (rollup or own).lower()

    def get_link(self, name: str) -> str:
        """Return the path of another resource; "" if there is none."""
        return self.get_text(name, "@odata.id")

    def list_parts(self, name: str, *, within: str = "") -> Sequence["Resource"]:
        """Return the objects of a list, which may be links to resources or the whole of them."""
        place: Any = self.content.get(within) if within else self.content
        parts: Any = place.get(name) if isinstance(place, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        listed = cast("list[Any]", parts) if isinstance(parts, list) else []
        found = [cast("dict[str, Any]", part) for part in listed if isinstance(part, dict)]
        return [Resource(str(part.get("@odata.id", "")), part) for part in found]


@dataclass(frozen=True)
class RedfishMachine(Machine):
    """A server, and what its BMC can do with it."""

    path: str = ""
    """Of its ComputerSystem."""
    reset_path: str = ""
    reset_types: tuple[str, ...] = ()
    boot_targets: tuple[str, ...] = ()
    boot_override: tuple[str, str] = ("", "")
    """BootSourceOverrideEnabled and BootSourceOverrideTarget."""

    def control_power(self, action: PowerAction) -> ApiCall | None:
        wanted = [one for one in _RESET_TYPES[action] if one in self.reset_types]
        if not wanted or not self.reset_path:
            return None
        return ApiCall(
            self.reset_path,
            "POST",
            json.dumps({"ResetType": wanted[0]}),
            watched_path=self.path,
            power_state=_POWER_STATES[action],
            deadline=POWER_SECONDS[action],
        )

    def set_boot_once(self, device: str) -> ApiCall | None:
        target = _BOOT_TARGETS.get(device, device) or "None"
        if device and target not in self.boot_targets:
            return None
        return self._override_boot("Once" if device else "Disabled", target)

    def restore_boot(self) -> ApiCall:
        enabled, target = self.boot_override
        return self._override_boot(enabled or "Disabled", target or "None")

    def _override_boot(self, enabled: str, target: str) -> ApiCall:
        boot = {"BootSourceOverrideEnabled": enabled, "BootSourceOverrideTarget": target}
        return ApiCall(self.path, "PATCH", json.dumps({"Boot": boot}))


def query_resource(path: str) -> Query[Resource]:
    """Query one resource. Raises ParseError for a link that is not a path of the BMC."""
    try:
        call = ApiCall(path)
    except ValueError as error:
        raise ParseError(f"the BMC returned a bad link: {error}") from None
    return Query(call, lambda answer: _parse_resource(path, answer))


def _parse_resource(path: str, answer: str) -> Resource:
    try:
        content = json.loads(answer)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ParseError(f"the BMC returned {quote_text(answer[:80])} for {path}: not a resource")
    return Resource(path, cast("dict[str, Any]", content))


def find_action_info(system: Resource) -> str:
    """Return the path of the document that lists the reset types; "" if the system does."""
    reset = _get_actions(system)
    listed = _list_texts(reset, _RESET, "ResetType@Redfish.AllowableValues")
    return "" if listed else reset.get_text(_RESET, "@Redfish.ActionInfo")


def make_machine(system: Resource, action_info: Resource | None = None) -> RedfishMachine:
    """Return the server that a ComputerSystem describes.

    action_info: what find_action_info names, for BMCs that list their reset types only there.
    """
    reset = _get_actions(system)
    listed = _list_texts(reset, _RESET, "ResetType@Redfish.AllowableValues")
    parameters = action_info.list_parts("Parameters") if action_info else ()
    boot = Resource(system.path, cast("Any", system.content.get("Boot")) or {})
    target = boot.get_text("BootSourceOverrideTarget")
    enabled = boot.get_text("BootSourceOverrideEnabled")
    once = enabled == "Once" and target != "None"
    maker = system.get_text("Manufacturer")
    # Dell has the service tag in SKU; others the part number, which many servers share.
    tag = system.get_text("SKU") if maker.startswith("Dell") else ""
    serials = (system.get_text("SerialNumber"), tag)
    return RedfishMachine(
        # null, or missing, where the BMC does not know it.
        power=system.get_text("PowerState").lower() or UNKNOWN_POWER,
        health=system.get_health(),
        model=" ".join(filter(None, (maker, system.get_text("Model")))),
        serials=tuple(filter(None, serials)),
        uuid=system.get_text("UUID"),
        boot_once=_BOOT_DEVICES.get(target, target) if once else "",
        path=system.path,
        reset_path=reset.get_text(_RESET, "target"),
        reset_types=listed or _list_reset_types(parameters),
        boot_targets=_list_texts(boot, "BootSourceOverrideTarget@Redfish.AllowableValues"),
        boot_override=(enabled, target),
    )


def _get_actions(system: Resource) -> Resource:
    return Resource(system.path, cast("Any", system.content.get("Actions")) or {})


def _list_reset_types(parameters: Sequence[Resource]) -> tuple[str, ...]:
    return tuple(
        value
        for parameter in parameters
        if parameter.get_text("Name") == "ResetType"
        for value in _list_texts(parameter, "AllowableValues")
    )


def _list_texts(resource: Resource, *names: str) -> tuple[str, ...]:
    value: Any = resource.content
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return tuple(map(str, cast("list[Any]", value))) if isinstance(value, list) else ()


def list_sensors(resource: Resource) -> Iterator[Sensor]:
    """Yield what a Thermal, Power or ThermalMetrics resource lists and has installed."""
    for name, reading, unit in (
        ("Temperatures", "ReadingCelsius", "°C"),
        ("Fans", "Reading", ""),
        ("PowerSupplies", "LastPowerOutputWatts", "W"),
        ("TemperatureReadingsCelsius", "Reading", "°C"),
    ):
        for part in resource.list_parts(name):
            if not _is_absent(part):
                value = part.get_text(reading)
                yield _make_sensor(part, value, part.get_text("ReadingUnits") or unit)


def make_sensor(part: Resource) -> Sensor | None:
    """Return what a Fan, PowerSupply or Sensor resource describes; None if it is not installed."""
    if _is_absent(part):
        return None
    percent = part.get_text("SpeedPercent", "Reading")
    if percent:
        return _make_sensor(part, percent, "Percent")
    return _make_sensor(part, part.get_text("Reading"), part.get_text("ReadingUnits"))


def _is_absent(part: Resource) -> bool:
    return part.get_text("Status", "State") == "Absent"


def _make_sensor(part: Resource, value: str, unit: str) -> Sensor:
    names = ("Name", "FanName", "DeviceName", "MemberId", "Id")
    named = next((text for name in names if (text := part.get_text(name))), "")
    # A reading of ThermalMetrics may have no name but that of its sensor.
    source = part.get_text("DataSourceUri").rpartition("/")[2]
    unit = "°C" if unit == "Cel" else unit
    return Sensor(named or source, f"{value} {unit}".strip() if value else "", part.get_health())


def is_hardware_log(service: Resource) -> bool:
    """Return whether a LogService holds the events of the hardware."""
    kind, name = service.get_text("LogEntryType"), service.get_text("Id")
    return kind == "SEL" or name.lower() in _HARDWARE_LOGS


def make_event(entry: Resource) -> BmcEvent:
    """Return the event of a LogEntry."""
    return BmcEvent(
        entry.get_text("Created"),
        entry.get_text("Severity").lower(),
        entry.get_text("Message") or entry.get_text("MessageId"),
    )
