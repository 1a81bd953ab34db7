from connectors import ipmi, redfish
from connectors.errors import CommandError
from runbooks._bmc import BmcLog
from tests.runbooks.declared import load_check
from tests.runbooks.servers import CONTROLLER, build_server_fleet, link, recorded, script
from tests.scripted_fleet import ScriptedFleet

ShowBmcEvents = load_check("bmc sel")

LOG = ShowBmcEvents.model_validate({"host": "nas1", "newest": 2})
SERVICES = "/redfish/v1/Managers/1/LogServices"
ENTRIES = f"{SERVICES}/SEL/Entries"


def with_log(*pages: dict[str, object]) -> ScriptedFleet:
    """Return the servers; the manager of nas1 has a hardware log and an audit log of its own."""
    fleet = build_server_fleet(LogServices={})
    script(fleet, "/redfish/v1/Managers/1", {"LogServices": link(SERVICES)})
    hardware = {"Id": "SEL", "LogEntryType": "SEL", "Entries": link(ENTRIES)}
    script(fleet, SERVICES, {"Members": [link(f"{SERVICES}/SEL"), link(f"{SERVICES}/Lclog")]})
    script(fleet, f"{SERVICES}/SEL", hardware)
    script(fleet, f"{SERVICES}/Lclog", {"Id": "Lclog", "Entries": link("/never")})
    for number, page in enumerate(pages):
        path = f"{ENTRIES}?$skip={number}" if number else ENTRIES
        is_last = number + 1 == len(pages)
        more = {} if is_last else {"Members@odata.nextLink": f"{ENTRIES}?$skip={number + 1}"}
        script(fleet, path, {**page, **more})
    return fleet


def entry(day: int) -> dict[str, object]:
    return {"Id": str(day), "Created": f"2026-03-{day:02}T00:00:00Z", "Message": f"event {day}"}


def test_bmc_sel_lists_hardware_events_newest_first():
    report = LOG.report(LOG.read(with_log(recorded("cimc-sel")).run_query))
    assert report.summary.startswith("The newest event of nas1 is of 2022-06-13 12:19:21")
    assert report.table
    assert [row[0] for row in report.table.rows] == ["2022-06-13 12:19:21", "2022-06-13 12:19:16"]


def test_bmc_sel_reads_the_last_page_when_the_log_is_oldest_first():
    fleet = with_log({"Members": [entry(1), entry(2)]}, {"Members": [entry(3), entry(4)]})
    assert [event.message for event in LOG.read(fleet.run_query).events] == ["event 4", "event 3"]


def test_bmc_sel_follows_links_to_single_entries():
    fleet = with_log({"Members": [link(f"{ENTRIES}/{day}") for day in (1, 2, 3)]})
    for day in (2, 3):
        script(fleet, f"{ENTRIES}/{day}", entry(day))
    assert [event.message for event in LOG.read(fleet.run_query).events] == ["event 3", "event 2"]


def test_bmc_sel_reports_an_empty_event_log():
    assert LOG.report(BmcLog(())).summary == "The event log of nas1 is empty"


def test_bmc_sel_reports_the_rest_when_one_entry_is_dead():
    fleet = with_log({"Members": [link(f"{ENTRIES}/{day}") for day in (1, 2)]})
    script(fleet, f"{ENTRIES}/1", entry(1))
    error = CommandError("the BMC of nas1 returned status 404")
    fleet.script("nas1", redfish.query_resource(f"{ENTRIES}/2").command, error)
    report = LOG.report(LOG.read(fleet.run_query))
    assert report.findings == [
        f"{ENTRIES}/2 could not be read: the BMC of nas1 returned status 404"
    ]
    assert report.table
    assert [row[2] for row in report.table.rows] == ["event 1"]


def test_bmc_sel_is_not_empty_when_the_log_cannot_be_read():
    fleet = with_log()
    fleet.script("nas1", redfish.query_resource(ENTRIES).command, CommandError("status 500"))
    report = LOG.report(LOG.read(fleet.run_query))
    assert report.summary == "The event log of nas1 could not be read"
    assert not report.healthy


def test_bmc_sel_uses_ipmitool_for_a_server_with_ipmi():
    fleet = build_server_fleet()
    output = (
        "   1 |  Pre-Init  |0000040365| Power Supply #0x64 | Failure detected | Asserted\n"
        "   2 | 03/14/2023 | 10:11:12 | Temperature #0x30 | Upper Critical going high | Asserted\n"
    )
    fleet.script("gate1", ipmi.query_events(CONTROLLER, 2).command, output)
    events = LOG.model_copy(update={"host": "old1"}).read(fleet.run_query).events
    assert [(event.time, event.message) for event in events] == [
        ("Pre-Init 0000040365", "Power Supply #0x64, Failure detected, Asserted"),
        ("2023-03-14 10:11:12", "Temperature #0x30, Upper Critical going high, Asserted"),
    ]
