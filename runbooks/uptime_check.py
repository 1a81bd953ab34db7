from collections.abc import Iterator

from connectors import uptime
from connectors.command import QueryRunner
from connectors.uptime import Uptime
from runbooks import Check, Host, Report

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
# Nobody who is up for longer runs the kernel that its packages say it has.
_LONG = 400 * _DAY


class UptimeCheck(Check[Uptime], words="uptime check", example="web1"):
    """See how long a host has been up, how busy it is, and whether it waits for a restart."""

    host: Host

    def read(self, run_query: QueryRunner) -> Uptime:
        return run_query(self.host, uptime.query_uptime())

    def report(self, up: Uptime) -> Report:
        findings = [*_list_findings(up)]
        load = " ".join(f"{value:.2f}" for value in up.load)
        on = f" on {up.cores} cores" if up.cores else ""
        return Report(
            f"{self.host} is up for {_format_span(up.seconds)}, load {load}{on}, kernel "
            f"{up.kernel}",
            healthy=not findings,
            findings=findings,
        )


def _list_findings(up: Uptime) -> Iterator[str]:
    if up.seconds < _HOUR:
        yield f"it started {_format_span(up.seconds)} ago: somebody or something restarted it"
    if up.seconds > _LONG:
        yield "it is up for over a year: mends of its kernel since then are not in force"
    if up.reboot_packages is not None:
        because = f" for {', '.join(up.reboot_packages)}" if up.reboot_packages else ""
        yield f"its packages ask for a restart{because}"
    one, _, fifteen = up.load
    if up.cores is None:
        return
    if fifteen > 2 * up.cores:
        yield f"more than two tasks wait for each core, for a quarter of an hour ({fifteen:.2f})"
    elif one > 4 * up.cores:
        yield f"more than four tasks wait for each core just now ({one:.2f})"


def _format_span(seconds: float) -> str:
    days, rest = divmod(int(seconds), _DAY)
    hours, rest = divmod(rest, _HOUR)
    if days:
        return f"{days} d {hours} h"
    minutes = rest // _MINUTE
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
