from connectors import nfsd
from connectors.command import Answer
from runbooks.nfs_clients_show import NfsServer, ShowNfsClients
from tests.connectors.test_nfsd import NEW, OLD
from tests.scripted_fleet import ScriptedFleet

SHOW = ShowNfsClients.model_validate({"host": "nas1"})


def test_nfs_clients_of_every_version_are_listed_and_lost_ones_reported():
    fleet = ScriptedFleet(
        {
            ("nas1", nfsd.query_threads().command): "8\n",
            ("nas1", nfsd.query_clients().command): f"{NEW}{OLD}end\n",
            ("nas1", nfsd.query_connections().command): "0 0 192.0.2.1:2049 192.0.2.77:801\n",
        }
    )
    report = SHOW.report(SHOW.read(fleet.run_query))
    assert report.summary == "nas1 serves 3 NFS clients with 8 threads"
    assert [finding.partition(":")[0] for finding in report.findings] == [
        "192.0.2.10 does not answer any more (courtesy)"
    ]
    assert report.table
    assert [row[0] for row in report.table.rows] == ["192.0.2.10", "2001:db8::7", "192.0.2.77"]
    assert report.table.rows[1][4] == "unknown"


def test_nfs_callback_that_is_down_is_a_finding():
    (client,) = nfsd.parse_clients(NEW.replace("courtesy", "confirmed") + "end\n")
    (finding,) = SHOW.report(NfsServer(8, [client], [])).findings
    assert "cannot connect back to 192.0.2.10 (callback DOWN)" in finding


def test_nfs_server_without_clients_is_healthy_and_a_stopped_one_is_not():
    assert SHOW.report(NfsServer(8, [], [])).healthy
    assert not SHOW.report(NfsServer(0, [], [])).healthy


def test_nfs_clients_are_listed_when_their_connections_cannot_be_read():
    fleet = ScriptedFleet(
        {
            ("nas1", nfsd.query_threads().command): "8\n",
            ("nas1", nfsd.query_clients().command): f"{NEW}end\n",
            ("nas1", nfsd.query_connections().command): Answer(127, "", "sh: ss: not found"),
        }
    )
    report = SHOW.report(SHOW.read(fleet.run_query))
    assert report.summary == "nas1 serves 1 NFS client with 8 threads"
    assert report.findings[0].startswith(
        "the connections could not be read: the program ss is missing: install iproute2"
    )
