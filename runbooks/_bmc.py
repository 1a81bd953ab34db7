"""What the runbooks of BMCs share: reading a server by Redfish or IPMI, and whose it is."""

from collections.abc import Iterator

from connectors import ipmi, redfish
from connectors.command import Query, QueryRunner, Setting
from connectors.ipmi import Controller, IpmiMachine
from connectors.machine import BmcEvent, Machine, Sensor
from connectors.redfish import RedfishMachine, Resource
from runbooks._plan import Refused

# More servers behind one BMC, logs of one server, pages or unread entries of one log are not read.
_MOST = 16
# Large servers have some hundred sensors.
_MOST_SENSORS = 500


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
    path = redfish.find_action_info(system)
    return redfish.make_machine(
        system, run_query(host, redfish.query_resource(path)) if path else None
    )


def _read_members(
    run_query: QueryRunner, host: str, path: str, *, most: int = _MOST
) -> Iterator[Resource]:
    """Yield the members of a collection, with those that it only links to."""
    for member in run_query(host, redfish.query_resource(path)).list_parts("Members")[:most]:
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


def read_sensors(run_query: QueryRunner, host: str, machine: Machine) -> tuple[Sensor, ...]:
    """Read temperatures, fans and power supplies; none by IPMI, which has only faults."""
    if not isinstance(machine, RedfishMachine):
        return ()
    system = run_query(host, redfish.query_resource(machine.path))
    return tuple(
        sensor
        for link in system.list_parts("Chassis", within="Links")[:_MOST]
        for sensor in _list_chassis_sensors(run_query, host, link.path)
    )


def _list_chassis_sensors(run_query: QueryRunner, host: str, path: str) -> Iterator[Sensor]:
    """Yield the sensors of a chassis, from the resources of its generation of Redfish."""
    chassis = run_query(host, redfish.query_resource(path))
    older = [chassis.get_link(name) for name in ("Thermal", "Power")]
    newer = [chassis.get_link(name) for name in ("ThermalSubsystem", "PowerSubsystem")]
    for old, new in zip(older, newer, strict=True):
        if old:
            yield from redfish.list_sensors(run_query(host, redfish.query_resource(old)))
        elif new:
            yield from _list_subsystem_sensors(run_query, host, new)
    if not any(older + newer):
        yield from _list_single_sensors(run_query, host, chassis.get_link("Sensors"))


def _list_subsystem_sensors(run_query: QueryRunner, host: str, path: str) -> Iterator[Sensor]:
    subsystem = run_query(host, redfish.query_resource(path))
    if metrics := subsystem.get_link("ThermalMetrics"):
        yield from redfish.list_sensors(run_query(host, redfish.query_resource(metrics)))
    for name in ("Fans", "PowerSupplies"):
        yield from _list_single_sensors(run_query, host, subsystem.get_link(name))


def _list_single_sensors(run_query: QueryRunner, host: str, path: str) -> Iterator[Sensor]:
    """Yield the sensors of a collection, in which each has a resource of its own."""
    if not path:
        return
    for part in _read_members(run_query, host, path, most=_MOST_SENSORS):
        if sensor := redfish.make_sensor(part):
            yield sensor


def read_events(
    run_query: QueryRunner, host: str, machine: Machine, newest: int
) -> tuple[BmcEvent, ...]:
    """Read the newest events of the hardware, the newest first."""
    if isinstance(machine, RedfishMachine):
        found = [*_list_redfish_events(run_query, host, machine, newest)]
    else:
        controller, via = _make_controller(run_query, host)
        found = [*run_query(via, ipmi.query_events(controller, newest))]
    return tuple(sorted(found, key=lambda event: event.time, reverse=True)[:newest])


def _list_redfish_events(
    run_query: QueryRunner, host: str, machine: RedfishMachine, newest: int
) -> Iterator[BmcEvent]:
    system = run_query(host, redfish.query_resource(machine.path))
    managers = system.list_parts("ManagedBy", within="Links")[:_MOST]
    owners = [system, *(run_query(host, redfish.query_resource(each.path)) for each in managers)]
    services = [
        service
        for owner in owners
        if (path := owner.get_link("LogServices"))
        for service in _read_members(run_query, host, path)
        if redfish.is_hardware_log(service)
    ]
    for service in services[:_MOST]:
        yield from _list_entries(run_query, host, service.get_link("Entries"), newest)


def _list_entries(run_query: QueryRunner, host: str, path: str, newest: int) -> Iterator[BmcEvent]:
    """Yield the entries of a log. Some BMCs begin with the newest, and some with the oldest."""
    entries: list[Resource] = []
    for _ in range(_MOST):
        page = run_query(host, redfish.query_resource(path))
        entries += page.list_parts("Members")
        path = page.get_text("Members@odata.nextLink")
        if not path:
            break
    unread = [entry for entry in entries if entry.content.keys() <= {"@odata.id"}]
    for entry in unread[-newest:]:
        yield redfish.make_event(run_query(host, redfish.query_resource(entry.path)))
    yield from (redfish.make_event(entry) for entry in entries if entry not in unread)
