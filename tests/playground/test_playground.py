import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

from bot.db.database import Database
from bot.features.drift import rows as drift
from bot.model.drift_state import DriftState
from bot.model.plan import PlannedStep, ResolvedPlan, create_nonce
from connectors.command import Shell
from connectors.inventory import Host
from tests.playground import daemon, demo_history, sample_company, stray_processes
from tests.playground import sshd as sshd_module
from tests.playground.daemon import DaemonDidNotStart, ProgramMissing, find_program
from tests.playground.demo_signing import Passkeys, can_enrol, try_as_thief
from tests.playground.enrolled import EnrolledLogins
from tests.playground.fleet import SHOP_PLACES, LoopbackFleet
from tests.playground.haproxy import ADDRESSES, Haproxy
from tests.playground.keys import make_key
from tests.playground.service import Service
from tests.playground.sshd import Sshd

pytestmark = pytest.mark.real

ABUSER = "203.0.113.9"
SHOPPER = "203.0.113.10"


def ssh(server: Sshd, key: Path, *words: str) -> list[str]:
    known_hosts = server.directory / "known_hosts"
    known_hosts.write_text(f"[{server.address}]:{server.port} {server.host_key}\n")
    options = {
        "UserKnownHostsFile": known_hosts,
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "BatchMode": "yes",
    }
    return [
        *("ssh", "-F", "none", "-i", str(key), "-p", str(server.port)),
        *(word for name, value in options.items() for word in ("-o", f"{name}={value}")),
        *(f"{server.user}@{server.address}", *words),
    ]


def run(server: Sshd, *words: str, key: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = ssh(server, key or server.client_key, *words)
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def wait_until(claim: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)


# The abuser


def test_haproxy_marks_an_abuser_and_returns_503(haproxy: Haproxy):
    assert haproxy.get(ABUSER) == 200
    assert haproxy.abuse(ABUSER) == 42
    assert haproxy.marked(ABUSER)
    assert haproxy.get(ABUSER) == 503


def test_haproxy_serves_other_clients_while_an_abuser_is_blocked(haproxy: Haproxy):
    haproxy.abuse(ABUSER)
    assert haproxy.get(SHOPPER) == 200
    assert not haproxy.marked(SHOPPER)


def test_haproxy_marks_a_client_above_the_byte_limit():
    with Haproxy(bytes_limit=100_000) as haproxy:
        assert haproxy.abuse(ABUSER, path="/bytes/60000") == 3


def test_haproxy_does_not_mark_a_client_below_the_limits(haproxy: Haproxy):
    with pytest.raises(RuntimeError, match=r"42 requests of 203\.0\.113\.9 did not mark it"):
        haproxy.abuse(ABUSER, requests=42)


def test_haproxy_table_lists_a_rate_above_the_limit(haproxy: Haproxy):
    haproxy.abuse(ABUSER)
    over = haproxy.runtime("show table www data.conn_rate gt 42", level="operator")
    assert re.search(rf"key={ABUSER} .*conn_rate\(100000\)=43 ", over)


def test_clearing_both_haproxy_entries_unblocks_the_client(haproxy: Haproxy):
    haproxy.abuse(ABUSER)
    haproxy.clear(ABUSER)
    assert haproxy.get(ABUSER) == 200


def test_cleared_haproxy_mark_returns_while_the_rate_is_high(haproxy: Haproxy):
    haproxy.abuse(ABUSER)
    haproxy.runtime(f"clear table http key {ABUSER}", level="operator")
    assert not haproxy.marked(ABUSER)
    assert haproxy.get(ABUSER) == 503
    assert haproxy.marked(ABUSER)


def test_cleared_haproxy_mark_unblocks_after_the_rate_has_fallen():
    with Haproxy(period=1) as haproxy:
        haproxy.abuse(ABUSER)
        wait_until(lambda: f"key={ABUSER}" not in haproxy.table("www"))
        assert haproxy.get(ABUSER) == 503
        haproxy.runtime(f"clear table http key {ABUSER}")
        assert haproxy.get(ABUSER) == 200


def test_haproxy_sockets_enforce_their_levels(haproxy: Haproxy):
    haproxy.abuse(ABUSER)
    clear = f"clear table http key {ABUSER}"
    assert "Permission denied" in haproxy.runtime(clear, level="user")
    assert "insufficient privileges" in haproxy.runtime("show table http", level="user")
    assert haproxy.marked(ABUSER)
    assert haproxy.runtime(clear, level="operator") == "\n"
    assert "Permission denied" in haproxy.runtime("disable frontend http", level="operator")


def test_haproxy_has_tables_with_string_and_ipv6_keys(haproxy: Haproxy):
    assert "# table: tbl-string, type: string" in haproxy.tables()
    texts = haproxy.table("tbl-string")
    assert all(rf" key={key} " in texts for key in ("alice", r"bob\ smith", r"x\=1\ key\=evil"))
    assert all(f" key={address} " in haproxy.table("tbl-ipv6") for address in ADDRESSES)


def test_haproxy_starts_with_empty_tables(haproxy: Haproxy):
    assert "key=" not in haproxy.table("http") + haproxy.table("www")


def test_haproxy_socket_paths_fit_into_a_unix_socket_address(haproxy: Haproxy):
    assert len(haproxy.socket("operator")) < 108
    assert stat.S_ISSOCK(Path(haproxy.socket("operator")).stat().st_mode)


# The SSH server


def test_sshd_runs_a_command_for_its_client_key(sshd: Sshd):
    done = run(sshd, "id -un; command -v sshd")
    assert (done.returncode, done.stdout) == (0, f"{sshd.user}\n/usr/sbin/sshd\n"), done.stderr
    assert (sshd.accepted, sshd.connections) == (1, 1)


def test_sshd_refuses_another_client_key(sshd: Sshd):
    done = run(sshd, "true", key=make_key().write(sshd.directory / "stranger"))
    assert done.returncode == 255
    assert "Permission denied" in done.stderr
    assert (sshd.accepted, sshd.connections) == (0, 1)


def test_ssh_refuses_another_sshd_at_the_same_port_by_its_host_key(sshd: Sshd):
    place = ssh(sshd, sshd.client_key, "true")
    sshd.stop()
    with Sshd(address=sshd.address, port=sshd.port, client=sshd.client) as pretender:
        done = subprocess.run(place, capture_output=True, text=True, timeout=30, check=False)
        assert "HOST IDENTIFICATION HAS CHANGED" in done.stderr
        assert (pretender.connections, pretender.accepted) == (1, 0)


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_sshd_serves_host_keys_of_every_kind(kind: str):
    with Sshd(host_key_types=("ecdsa", "rsa", "ed25519")) as server:
        scan = ["ssh-keyscan", "-t", kind, "-p", str(server.port), server.address]
        shown = subprocess.run(scan, capture_output=True, text=True, timeout=30, check=True)
        known = {name: key.public for name, key in server.host_keys.items()}
        assert shown.stdout.split(maxsplit=1)[1].strip() == known[kind]
        assert server.host_key == known["ecdsa"]


def test_sshd_options_take_precedence_and_variables_reach_the_login():
    with Sshd(options=["ForceCommand echo $COLOUR"], env={"COLOUR": "deep blue"}) as server:
        assert run(server, "id").stdout == "deep blue\n"


def test_sshd_login_has_an_empty_home_directory(sshd: Sshd):
    assert run(sshd, 'echo "$HOME"; ls -A "$HOME"').stdout == f"{sshd.home}\n"


def test_sshd_client_key_has_mode_600(sshd: Sshd):
    assert stat.S_IMODE(sshd.client_key.stat().st_mode) == 0o600


def test_sshd_inventory_entry_is_a_valid_host(sshd: Sshd):
    entry = sshd.inventory_entry(area="web", tags=["web"], settings={"haproxy.socket": "/run/x"})
    host = Host.model_validate({"name": "web1", **entry})
    assert (host.address, host.port, host.user) == (sshd.address, sshd.port, sshd.user)
    assert host.host_key == sshd.host_key
    assert host.settings == {"haproxy.socket": "/run/x"}


def test_sshd_picks_another_port_when_the_free_port_is_taken(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as quicker:
        taken = int(quicker.getsockname()[1])
        offers = iter([taken, taken])

        def stale(address: str) -> int:
            return next(offers, 0) or daemon.find_free_port(address)

        monkeypatch.setattr(sshd_module, "find_free_port", stale)
        with Sshd() as server:
            assert server.port != taken
            assert run(server, "true").returncode == 0


def test_sshd_does_not_start_when_its_given_port_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as holder:
        server = Sshd(port=int(holder.getsockname()[1]))
        with pytest.raises(DaemonDidNotStart, match="in use"):
            server.start()
        server.close()


def test_sshd_start_error_shows_the_bad_configuration_option():
    server = Sshd(options=["NoSuchKeyword yes"])
    with pytest.raises(DaemonDidNotStart, match="Bad configuration option: NoSuchKeyword"):
        server.start()
    server.close()


def test_sshd_restarts_at_the_same_port(sshd: Sshd):
    port = sshd.port
    sshd.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((sshd.address, port), timeout=5)
    sshd.start()
    assert sshd.port == port
    assert run(sshd, "true").returncode == 0


def test_missing_program_error_names_the_debian_package():
    with pytest.raises(ProgramMissing, match="install the Debian package openssh-server"):
        find_program("/usr/sbin/no-such-sshd", package="openssh-server")


# The fleet


def test_loopback_fleet_starts_within_a_second():
    # The fastest of three, because other tests share the machine.
    assert min(_seconds_to_start() for _ in range(3)) < 1.0


def _seconds_to_start() -> float:
    began = time.monotonic()
    with LoopbackFleet(places=SHOP_PLACES):
        return time.monotonic() - began


def test_loopback_fleet_inventory_lists_every_host():
    with LoopbackFleet(places=SHOP_PLACES) as fleet:
        inventory = fleet.inventory
    assert {host.name: host.area for host in inventory} == {
        "lb1": "edge",
        "lb2": "edge",
        "web1": "web",
        "db1": "storage",
        "nas1": "storage",
    }
    assert len({host.host_key for host in inventory}) == 5
    assert len({host.address for host in inventory}) == 5
    assert [host.name for host in inventory.list_tagged("haproxy")] == ["lb1", "lb2"]


def test_demo_schedules_no_reading_of_its_drift_value_in_its_first_23_hours(tmp_path: Path):
    # Some hours after the value's own time of day for a reading.
    start = round(datetime(2026, 11, 26, 6, tzinfo=UTC).timestamp() * 1_000_000)
    sample_company.create_policy(tmp_path / "policy")
    with LoopbackFleet(tmp_path / "policy", places=SHOP_PLACES):
        demo_history.record_history(sample_company.add_fault_tree(tmp_path), now=start)
    with Database(f"sqlite:///{tmp_path / 'var' / 'keyturn.db'}").reading() as tx:
        (key,) = drift.list_keys(tx)
    hour = 3_600_000_000
    assert key.state is DriftState.AS_SET
    assert key.read_at <= start - hour // 60
    assert key.next_at >= start + 23 * hour


def test_loopback_fleet_hosts_accept_one_client_key(loopback_fleet: LoopbackFleet):
    for host in loopback_fleet.inventory:
        key = loopback_fleet.directory / host.key
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert run(loopback_fleet.hosts[host.name], "true", key=key).returncode == 0


def test_loopback_fleet_login_on_lb1_reaches_the_haproxy_socket(loopback_fleet: LoopbackFleet):
    loopback_fleet.haproxy.abuse(ABUSER)
    path = loopback_fleet.inventory["lb1"].settings["haproxy.socket"]
    say = f"echo 'show table http data.gpc0 gt 0' | socat stdio {path}"
    assert f"key={ABUSER} " in run(loopback_fleet.hosts["lb1"], say).stdout


def test_loopback_fleet_keeps_inventory_and_keys_in_a_given_directory(tmp_path: Path):
    with LoopbackFleet(tmp_path):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inventory.yaml", "keys"]


# Nothing leaks


def test_sshd_stop_ends_processes_that_a_login_left_running(sshd: Sshd):
    run(sshd, "setsid sleep 600 < /dev/null > /dev/null 2>&1 &")
    with subprocess.Popen(ssh(sshd, sshd.client_key, "sleep 600"), stderr=subprocess.DEVNULL):
        wait_until(lambda: len(_running(sshd.processes(), "sleep")) == 2)
        processes = sshd.processes()
        sshd.stop()
    assert _running(processes, "sshd") == _running(processes, "sleep") == []
    assert sshd.processes() == []


def test_closing_a_daemon_removes_its_directory():
    with Sshd() as server, Haproxy() as haproxy:
        directories = (server.directory, haproxy.directory)
        assert all(directory.is_dir() for directory in directories)
    assert not any(directory.exists() for directory in directories)


OWNER = """
import sys
from tests.playground.daemon import root
from tests.playground.fleet import LoopbackFleet
fleet = LoopbackFleet().start()
print(root(), *(pid for host in fleet.hosts.values() for pid in host.processes()),
      fleet.haproxy.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, None])
def test_loopback_fleet_ends_with_its_owner_process(end: signal.Signals | None):
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        directory, *pids = owner.stdout.readline().split()
        daemons = [int(pid) for pid in pids]
        assert len(_running(daemons, "sshd")) == 4
        assert len(_running(daemons, "haproxy")) == 1
        if end is not None:
            owner.send_signal(end)
        else:
            owner.stdin.close()
    wait_until(lambda: not _running(daemons, "sshd") and not _running(daemons, "haproxy"))
    wait_until(lambda: not Path(directory).exists())


def test_sweep_spares_a_process_whose_pid_file_is_stale(tmp_path: Path):
    with subprocess.Popen(["sleep", "600"]) as bystander:
        (tmp_path / stray_processes.PID_FILE).write_text(f"{bystander.pid}\n")
        assert stray_processes.kill_processes(tmp_path) == []
        assert bystander.poll() is None
        bystander.kill()


def test_sweep_ends_only_processes_marked_with_its_directory(tmp_path: Path):
    mine = {**os.environ, stray_processes.DIRECTORY_VARIABLE: str(tmp_path / "sshd")}
    other = {**os.environ, stray_processes.DIRECTORY_VARIABLE: f"{tmp_path}-other"}
    with (
        subprocess.Popen(["sleep", "600"], env=mine) as marked,
        subprocess.Popen(["sleep", "600"], env=other) as bystander,
    ):
        wait_until(lambda: stray_processes.find_processes(tmp_path) == [marked.pid])
        assert stray_processes.kill_processes(tmp_path) == []
        assert marked.wait(timeout=10) == -signal.SIGKILL
        assert bystander.poll() is None
        bystander.kill()


def _running(pids: list[int], name: str) -> list[int]:
    """Return those that still run this program; a number may have gone to another since."""
    return [pid for pid in pids if _name(pid) == name]


def _name(pid: int) -> str:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""
    return "" if "\nState:\tZ" in status else status.split("\n", 1)[0].split("\t")[1]


def _make_plan(step: PlannedStep) -> ResolvedPlan:
    return ResolvedPlan(
        runbook="abusers clear",
        runbook_version="1",
        values={},
        requested_by="dora",
        expires_at=4_000_000_000_000_000,
        policy_version="1",
        current_state="",
        steps=(step,),
        policy_result="1",
        installation="keyturn.example.com",
        run=1,
        reason="a customer called",
        not_before=time.time_ns() // 1000 // 1_000_000 * 1_000_000,
        nonce=create_nonce(),
    )


@pytest.mark.skipif(not can_enrol(), reason="only root can give a host logins of its own")
def test_enrolled_host_of_the_demo_refuses_its_thief_and_root(tmp_path: Path):
    enrolled = {"lb1": Passkeys(8080).enrolment}
    with LoopbackFleet(tmp_path, places=SHOP_PLACES[:1], enrolled=enrolled) as fleet:
        host = fleet.hosts["lb1"]
        assert isinstance(host, EnrolledLogins)
        assert fleet.inventory["lb1"].user == "root"
        host.type_by_hand("true")
        fleet.enrol()
        assert fleet.inventory["lb1"].signed
        with pytest.raises(subprocess.CalledProcessError):
            host.type_by_hand("true")
        step = PlannedStep("Unblock", "lb1", host.host().fingerprint, Shell(("true",)), None, "no")
        socket = fleet.haproxy.socket("operator")
        answers = dict(try_as_thief(host, socket, _make_plan(step)))
        expected = ("Permission denied", "password is required", "signers does not name")
        for words, (what, answer) in zip(expected, answers.items(), strict=True):
            assert words in answer, what


def test_service_is_restarted_at_its_address_with_its_data(tmp_path: Path):
    sample_company.create_policy(tmp_path / "policy")
    with Service(tmp_path, slack="") as service:
        address, link = service.address, service.sign_in_link("dora")
        service.restart()
        assert service.address == address
        assert httpx2.get(f"{address}/readyz").status_code == 200
        assert httpx2.get(link).status_code == 200
