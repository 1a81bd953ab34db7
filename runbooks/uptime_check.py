from collections.abc import Iterator

from connectors import uptime
from connectors.amounts import format_count, format_duration
from connectors.command import QueryRunner
from connectors.uptime import Uptime
from runbooks import Check, Host, Report

_HOUR, _DAY = 3600, 86400
# With a longer uptime, the running kernel lacks security fixes.
_LONG = 400 * _DAY


class UptimeCheck(
    Check[Uptime],
    words="uptime check",
    also_called=("load", "slow host", "pending reboot"),
    example="web1",
):
    """Check how long a host has been up, its load, and whether it needs a reboot."""

    host: Host

    def read(self, run_query: QueryRunner) -> Uptime:
        return run_query(self.host, uptime.query_uptime())

    def report(self, up: Uptime) -> Report:
        load = " ".join(f"{value:.2f}" for value in up.load)
        on = f" on {format_count(up.cores, 'core')}" if up.cores else ""
        return Report.from_findings(
            f"{self.host} has been up for {format_duration(int(up.seconds))}, load {load}{on}, "
            f"kernel {up.kernel}",
            _list_findings(up),
        )


def _list_findings(up: Uptime) -> Iterator[str]:
    if up.seconds < _HOUR:
        ago = format_duration(int(up.seconds))
        yield f"it was rebooted {ago} ago: check whether that was intended"
    if up.seconds > _LONG:
        yield "it has been up for over a year: its kernel lacks all fixes since then"
    if up.reboot_packages is not None:
        packages = f" for {', '.join(up.reboot_packages)}" if up.reboot_packages else ""
        yield f"it needs a reboot{packages}"
    one, _, fifteen = up.load
    if up.cores is None:
        return
    if fifteen > 2 * up.cores:
        yield f"the load is above 2 for each core for 15 minutes ({fifteen:.2f})"
    elif one > 4 * up.cores:
        yield f"the load is above 4 for each core now ({one:.2f})"
