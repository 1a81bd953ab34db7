"""What the runbooks of BMCs share: reading a server by Redfish or IPMI, and whose it is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from connectors import ipmi, redfish
from connectors.command import Query, QueryRunner, Setting
from connectors.errors import CommandError, HostError, ParseError
from connectors.ipmi import Controller, IpmiMachine
from connectors.machine import BmcEvent, Machine, Sensor
from connectors.redfish import RedfishMachine, Resource
from runbooks._plan import Refused

# More servers behind one BMC, logs of one server, pages or unread entries of one log are not read.
_MOST = 16
# Large servers have some hundred sensors.
_MOST_SENSORS = 500


@dataclass(frozen=True)
class BmcState:
    """A server and its sensors."""

    machine: Machine
    sensors: tuple[Sensor, ...]
    errors: Sequence[str] = ()
    """What could not be read, as sentences."""


@dataclass(frozen=True)
class BmcLog:
    """The newest events, the newest first."""

    events: tuple[BmcEvent, ...]
    errors: Sequence[str] = ()
    """What could not be read, as sentences."""


def read_state(run_query: QueryRunner, host: str) -> BmcState:
    machine = read_machine(run_query, host)
    return BmcState(machine, *read_sensors(run_query, host, machine))


def read_log(run_query: QueryRunner, host: str, newest: int) -> BmcLog:
    machine = read_machine(run_query, host)
    return BmcLog(*read_events(run_query, host, machine, newest))


def get_field(run_query: QueryRunner, host: str, name: str) -> str:
    """Return a field of the host's `bmc` in the inventory, or another derived setting."""
    return run_query(host, Query(Setting(name, ""), str))


def read_machine(run_query: QueryRunner, host: str) -> Machine:
    """Read the server of a host. Raises Refused if it is not the one that the inventory names."""
    machine = (
        _read_by_ipmi(run_query, host)
        if get_field(run_query, host, "bmc.ipmi_from")
        else _read_by_redfish(run_query, host)
    )
    _refuse_other_machine(run_query, host, machine)
    return machine


def get_step_host(run_query: QueryRunner, host: str) -> str:
    """Return the host whose commands reach the BMC: the one with ipmitool, or the host itself."""
    return get_field(run_query, host, "bmc.ipmi_from") or host


def _read_by_ipmi(run_query: QueryRunner, host: str) -> IpmiMachine:
    controller, via = _make_controller(run_query, host)
    return ipmi.make_machine(
        controller,
        run_query(via, ipmi.query_chassis(controller)),
        run_query(via, ipmi.query_inventory(controller)),
        run_query(via, ipmi.query_boot_once(controller)),
    )


def _make_controller(run_query: QueryRunner, host: str) -> tuple[Controller, str]:
    """Return how to reach the BMC by IPMI, and the host that does."""
    names = ("address", "port", "user", "password_file", "ipmi_cipher", "ipmi_from")
    address, port, user, file, cipher, via = (
        get_field(run_query, host, f"bmc.{name}") for name in names
    )
    return Controller(address, port or "623", user, file, cipher), via


def _read_by_redfish(run_query: QueryRunner, host: str) -> RedfishMachine:
    root = run_query(host, redfish.query_resource(redfish.ROOT))
    systems = [*_read_members(run_query, host, root.get_link("Systems"))]
    machines = [_make_machine(run_query, host, system) for system in systems]
    if len(machines) == 1:
        return machines[0]
    wanted = get_field(run_query, host, "bmc.serial"), get_field(run_query, host, "bmc.uuid")
    found = [one for one in machines if any(wanted) and not _list_mismatches(one, *wanted)]
    if len(found) != 1:
        names = ", ".join(serial for one in machines for serial in one.serials) or "none"
        raise Refused(
            f"the BMC of {host} manages {len(machines)} servers with the serial numbers {names}: "
            "set the serial of this one in the inventory"
        )
    return found[0]


def _make_machine(run_query: QueryRunner, host: str, system: Resource) -> RedfishMachine:
    reader = _ResourceReader(run_query, host)
    path = redfish.find_action_info(system)
    machine = redfish.make_machine(system, reader.read(path) if path else None)
    return replace(machine, error="; ".join(reader.errors))


def _read_members(run_query: QueryRunner, host: str, path: str) -> Iterator[Resource]:
    """Yield the members of a collection, with those that it only links to."""
    for member in run_query(host, redfish.query_resource(path)).list_parts("Members")[:_MOST]:
        is_link = member.content.keys() <= {"@odata.id"}
        yield run_query(host, redfish.query_resource(member.path)) if is_link else member


def _refuse_other_machine(run_query: QueryRunner, host: str, machine: Machine) -> None:
    serial = get_field(run_query, host, "bmc.serial")
    uuid = get_field(run_query, host, "bmc.uuid")
    if mismatches := _list_mismatches(machine, serial, uuid):
        raise Refused(
            f"the BMC of {host} manages another server than the inventory names: "
            f"{'; '.join(mismatches)}. Nothing was sent: correct its address, or what the "
            "inventory records of the server"
        )


def _list_mismatches(machine: Machine, serial: str, uuid: str) -> list[str]:
    there = ", ".join(machine.serials) or "none"
    found: list[str] = []
    if serial and serial.lower() not in {one.lower() for one in machine.serials}:
        found.append(f"its serial number is {there}, not {serial}")
    if uuid and machine.uuid.lower() != uuid.lower():
        found.append(f"its UUID is {machine.uuid or 'none'}, not {uuid}")
    return found


class _ResourceReader:
    """Reads resources of a BMC, and keeps the errors of those that cannot be read.

    Other errors than those of one resource, such as of a BMC that does not answer, are raised.
    """

    def __init__(self, run_query: QueryRunner, host: str) -> None:
        self._run_query, self._host = run_query, host
        self.errors: list[str] = []

    def read(self, path: str) -> Resource | None:
        try:
            return self._run_query(self._host, redfish.query_resource(path))
        except (CommandError, ParseError) as error:
            self.errors.append(f"{path} could not be read: {error}")
            return None

    def read_members(self, path: str, *, most: int = _MOST) -> Iterator[Resource]:
        """Yield the members of a collection, with those that it only links to."""
        collection = self.read(path)
        for member in collection.list_parts("Members")[:most] if collection else ():
            is_link = member.content.keys() <= {"@odata.id"}
            if part := self.read(member.path) if is_link else member:
                yield part


def read_sensors(
    run_query: QueryRunner, host: str, machine: Machine
) -> tuple[tuple[Sensor, ...], Sequence[str]]:
    """Read temperatures, fans and power supplies.

    Returns the sensors, and what could not be read.
    """
    if not isinstance(machine, RedfishMachine):
        controller, via = _make_controller(run_query, host)
        try:
            return run_query(via, ipmi.query_sensors(controller)), ()
        except (CommandError, ParseError) as error:
            return (), [f"the sensors could not be read, so their health is unknown: {error}"]
    reader, found = _ResourceReader(run_query, host), list[Sensor]()
    try:
        for sensor in _list_sensors(reader, machine.path):
            found.append(sensor)
    except HostError as error:
        reader.errors.append(f"further sensors were not read: {error}")
    return tuple(found), reader.errors


def _list_sensors(reader: _ResourceReader, path: str) -> Iterator[Sensor]:
    system = reader.read(path)
    for link in system.list_parts("Chassis", within="Links")[:_MOST] if system else ():
        if chassis := reader.read(link.path):
            yield from _list_chassis_sensors(reader, chassis)


def _list_chassis_sensors(reader: _ResourceReader, chassis: Resource) -> Iterator[Sensor]:
    """Yield the sensors of a chassis, from the resources of its generation of Redfish."""
    older = [chassis.get_link(name) for name in ("Thermal", "Power")]
    newer = [chassis.get_link(name) for name in ("ThermalSubsystem", "PowerSubsystem")]
    for old, new in zip(older, newer, strict=True):
        if old and (listed := reader.read(old)):
            yield from redfish.list_sensors(listed)
        elif new:
            yield from _list_subsystem_sensors(reader, new)
    if not any(older + newer):
        yield from _list_single_sensors(reader, chassis.get_link("Sensors"))


def _list_subsystem_sensors(reader: _ResourceReader, path: str) -> Iterator[Sensor]:
    subsystem = reader.read(path)
    if subsystem is None:
        return
    if (link := subsystem.get_link("ThermalMetrics")) and (metrics := reader.read(link)):
        yield from redfish.list_sensors(metrics)
    for name in ("Fans", "PowerSupplies"):
        yield from _list_single_sensors(reader, subsystem.get_link(name))


def _list_single_sensors(reader: _ResourceReader, path: str) -> Iterator[Sensor]:
    """Yield the sensors of a collection, in which each has a resource of its own."""
    for part in reader.read_members(path, most=_MOST_SENSORS) if path else ():
        if sensor := redfish.make_sensor(part):
            yield sensor


def read_events(
    run_query: QueryRunner, host: str, machine: Machine, newest: int
) -> tuple[tuple[BmcEvent, ...], Sequence[str]]:
    """Read the newest events of the hardware, the newest first, and what could not be read."""
    errors: Sequence[str] = ()
    if isinstance(machine, RedfishMachine):
        reader = _ResourceReader(run_query, host)
        found = [*_list_redfish_events(reader, machine, newest)]
        errors = reader.errors
    else:
        controller, via = _make_controller(run_query, host)
        found = [*run_query(via, ipmi.query_events(controller, newest))]
    return tuple(sorted(found, key=lambda event: event.time, reverse=True)[:newest]), errors


def _list_redfish_events(
    reader: _ResourceReader, machine: RedfishMachine, newest: int
) -> Iterator[BmcEvent]:
    system = reader.read(machine.path)
    managers = system.list_parts("ManagedBy", within="Links")[:_MOST] if system else ()
    owners = filter(None, (system, *(reader.read(each.path) for each in managers)))
    services = [
        service
        for owner in owners
        if (path := owner.get_link("LogServices"))
        for service in reader.read_members(path)
        if redfish.is_hardware_log(service)
    ]
    for service in services[:_MOST]:
        yield from _list_entries(reader, service.get_link("Entries"), newest)


def _list_entries(reader: _ResourceReader, path: str, newest: int) -> Iterator[BmcEvent]:
    """Yield the entries of a log. Some BMCs begin with the newest, and some with the oldest."""
    entries: list[Resource] = []
    for _ in range(_MOST):
        page = reader.read(path)
        if page is None:
            break
        entries += page.list_parts("Members")
        path = page.get_text("Members@odata.nextLink")
        if not path:
            break
    unread = [entry for entry in entries if entry.content.keys() <= {"@odata.id"}]
    for entry in unread[-newest:]:
        if read := reader.read(entry.path):
            yield redfish.make_event(read)
    yield from (redfish.make_event(entry) for entry in entries if entry not in unread)
