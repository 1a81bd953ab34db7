from connectors import haproxy
from connectors.command import Ask
from connectors.stick_table import TableHead
from runbooks import Check, Host, Report, Table, tagged

# A full table forgets its oldest entries, marks among them, to take new ones.
_NEARLY_FULL = 0.9


class ListStickTables(Check[tuple[TableHead, ...]], words="abusers tables", example="lb1"):
    """See which stick tables HAProxy keeps, what they hold and how full they are."""

    host: Host = tagged("haproxy")

    def read(self, ask: Ask) -> tuple[TableHead, ...]:
        return ask(self.host, haproxy.tables())

    def report(self, heads: tuple[TableHead, ...]) -> Report:
        if not heads:
            return Report(f"{self.host} keeps no stick tables")
        fullest = sorted(heads, key=_filled, reverse=True)
        full = [head for head in fullest if _filled(head) >= _NEARLY_FULL]
        return Report(
            f"{self.host} keeps {len(heads)} stick table{'s' if len(heads) > 1 else ''}: "
            f"the fullest is {fullest[0].name} with {fullest[0].used:,} of "
            f"{fullest[0].size:,} entries",
            healthy=not full,
            findings=[
                f"{head.name} is {_percent(head)} full: once there is no room HAProxy forgets the "
                "entries that are nearest to expiry, marked or not; give the table a larger size"
                for head in full
            ],
            table=Table(
                ("Table", "Holds", "Size", "Used", "Full"),
                [
                    (head.name, head.holds, f"{head.size:,}", f"{head.used:,}", _percent(head))
                    for head in fullest
                ],
            ),
        )


def _filled(head: TableHead) -> float:
    return head.used / head.size if head.size else 0.0


def _percent(head: TableHead) -> str:
    return f"{100 * _filled(head):.1f} %"
