"""A scripted fleet with a HAProxy that has the tables `http` and `www`."""

import shlex
from collections.abc import Mapping

from connectors import haproxy, haproxy_limits
from connectors.command import Answer, Command, Shell
from connectors.stick_table import parse_heads
from runbooks import NoUndo
from tests.scripted_fleet import Replies, ScriptedFleet

CONFIG = """\
frontend http
    tcp-request connection track-sc1 src if ! { src_get_gpc0(http) gt 0 }
backend www
    tcp-request content track-sc2 src
    acl conn_rate_abuse sc2_conn_rate gt 42
    acl data_rate_abuse sc2_bytes_out_rate gt 5000000
"""
TABLES = """\
# table: other, type: ip, size:1024, used:0
# table: users, type: string, size:1024, used:3
# table: six, type: ipv6, size:1024, used:1
# table: www, type: ip, size:204800, used:5
# table: http, type: ip, size:204800, used:5

"""
HTTP, WWW, SIX = (parse_heads(TABLES)[place] for place in (4, 3, 2))
UNREADABLE = Answer(2, "", "grep: /etc/haproxy/haproxy.cfg: Permission denied")

LIMITS = haproxy_limits.TableLimits(haproxy_limits.parse_limits(CONFIG))


def build_table_output(table: str, *entries: str) -> str:
    """Return the output of `show table`; each entry is given from its key on."""
    head = f"# table: {table}, type: {'ipv6' if table == 'six' else 'ip'}, size:204800, used:5\n"
    lines = [f"0x558f53c1e008: key={entry}\n" for entry in entries]
    return head + "".join(lines) + "\n"


def build_balancer_fleet(answers: Mapping[str, Replies] | None = None) -> ScriptedFleet:
    """Return a fleet whose lb1 answers queries of its tables and configuration.

    answers: further answers by the line that is sent.
    """
    fleet = ScriptedFleet(hosts=["lb1"])
    fleet.script("lb1", haproxy.query_tables().command, TABLES)
    fleet.script("lb1", haproxy_limits.query_limits().command, CONFIG)
    fleet.script("lb1", haproxy.query_peers().command, "\n")
    fleet.script(
        "lb1", haproxy.query_has_counter("http", "gpc0").command, build_table_output("http")
    )
    for line, replies in (answers or {}).items():
        words = f"socat -t5 stdio UNIX-CONNECT:/run/haproxy/admin.sock <<< {shlex.quote(line)}"
        fleet.script("lb1", words, replies)
    return fleet


def get_sent_lines(fleet: ScriptedFleet) -> list[str]:
    """Return every line that HAProxy was sent."""
    return [shlex.split(words)[-1] for _, words in fleet.asked if words.startswith("socat")]


def get_sent_line(command: Command | NoUndo) -> str:
    """Return the line that a command sends."""
    return command.stdin if isinstance(command, Shell) else ""
