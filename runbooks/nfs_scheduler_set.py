from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from connectors import block, block_rule, block_tree, iostat
from connectors.block import Queue
from connectors.block_settings import BOUNDS, Scheduler
from connectors.block_tree import Node, Tree
from connectors.command import Ask, Shell
from connectors.trouble import CommandFailed, NotUnderstood
from runbooks import Change, Host, NoUndo, Plan, Refused, Step, tagged

_WITH_SLICE_IDLE = ("bfq", "cfq")
_REQUESTS, _AHEAD, _IDLE = (
    BOUNDS[name] for name in ("nr_requests", "read_ahead_kb", "iosched/slice_idle")
)
# Seconds; they pass each time that the host is read.
_SAMPLE = 1


@dataclass(frozen=True)
class Disk:
    """One device and what is known of it.

    loadable: the scheduler that is asked for is offered, or its module is there. rule: the text
    of the udev rule, "" if there is none. lies_on: what uses the device. doing: a short look at
    its load, or why there is none.
    """

    queue: Queue
    loadable: bool
    rule: str
    lies_on: Sequence[Node]
    doing: str


class SetScheduler(
    Change[Disk],
    words="nfs scheduler set",
    example="nas1 sdb bfq slice_idle=0",
    undo="sets what was set before",
):
    """Choose how a disk orders its reads and writes, at once and without a pause."""

    host: Host = tagged("nfs")
    device: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$",
            description="The disk, such as sdb: `nfs scheduler show` names those behind exports",
            json_schema_extra={"lists": "disks"},
        ),
    ]
    scheduler: Annotated[Scheduler, Field(description="The kernel's I/O scheduler")]
    slice_idle: Annotated[
        int | None,
        Field(
            ge=_IDLE[0],
            le=_IDLE[1],
            title="Idle time between requests (ms)",
            description="Milliseconds that bfq waits for one process; 0 to 100",
        ),
    ] = None
    read_ahead_kb: Annotated[
        int | None,
        Field(
            ge=_AHEAD[0],
            le=_AHEAD[1],
            multiple_of=4,
            title="Read-ahead (KiB)",
            description="KiB read ahead of who reads in order; whole pages of 4, up to 65536",
        ),
    ] = None
    nr_requests: Annotated[
        int | None,
        Field(
            ge=_REQUESTS[0],
            le=_REQUESTS[1],
            title="Queued requests",
            description="Requests that may be queued; 4 to 10240",
        ),
    ] = None
    persist: Annotated[
        bool,
        Field(
            title="Keep after a restart",
            description="Also write a udev rule, so that it outlives a restart",
        ),
    ] = False

    def read(self, ask: Ask) -> Disk:
        tree = ask(self.host, block_tree.tree())
        node = self._named(tree)
        queue = ask(self.host, block.queues([node.kernel]))[node.kernel]
        rule_file = block_rule.file_of(node.kernel, queue.identity)
        return Disk(
            queue,
            self.scheduler in queue.offered or ask(self.host, block.module_of(self.scheduler)),
            ask(self.host, block_rule.read(rule_file)),
            tree.above(node),
            _load(ask, self.host, node.kernel),
        )

    def plan(self, disk: Disk) -> Plan:
        self._refuse(disk)
        queue = disk.queue
        switching = queue.scheduler != self.scheduler
        steps = [
            *([self._switch(queue)] if switching else []),
            *(
                self._setting(queue, name, value)
                for name, value in self._wanted().items()
                if self._forgotten(name, switching=switching) or queue.value(name) != str(value)
            ),
            *self._persisting(disk),
        ]
        used = f"{self.device} uses {_described(queue)}"
        # Where nothing is left to do, what the disk does now stands beside what it did before.
        because = used if steps else f"{used}. {disk.doing}".removesuffix(".")
        return Plan(because, steps, [*self._notes(disk)])

    def _named(self, tree: Tree) -> Node:
        node = tree.find(self.device)
        if node is None:
            raise Refused(
                f"{self.host} has no block device {self.device}; it has "
                f"{', '.join(sorted(tree.nodes)) or 'none'}"
            )
        if node.type == "part":
            raise Refused(
                f"{self.device} is a part of {', '.join(node.below)}, and only the whole disk "
                "has a scheduler"
            )
        return node

    def _refuse(self, disk: Disk) -> None:
        if not disk.loadable:
            raise Refused(
                f"{self.device} offers {', '.join(disk.queue.offered)}, and the host's kernel "
                f"has no module for {self.scheduler}"
            )
        if self.slice_idle is not None and self.scheduler not in _WITH_SLICE_IDLE:
            raise Refused(f"slice_idle is a tunable of bfq and cfq: {self.scheduler} has none")
        if self.nr_requests is not None and disk.queue.nr_requests is None:
            raise Refused(f"{self.device} passes its requests on: set nr_requests of its disks")
        if self.persist and not block_rule.ours(disk.rule):
            raise Refused(
                f"{self._rule_file(disk.queue)} was written by somebody else: move it away first"
            )

    def _wanted(self) -> Mapping[str, int]:
        """Return what else is asked for, in the order in which the kernel takes it."""
        asked = {
            "nr_requests": self.nr_requests,
            "iosched/slice_idle": self.slice_idle,
            "read_ahead_kb": self.read_ahead_kb,
        }
        return {name: value for name, value in asked.items() if value is not None}

    @staticmethod
    def _forgotten(name: str, *, switching: bool) -> bool:
        """Tell whether a switch sets this to a default, so that it is set in any case."""
        return switching and name != "read_ahead_kb"

    def _switch(self, queue: Queue) -> Step:
        return Step(
            f"Use {self.scheduler} on {self.device}",
            self.host,
            do=block.write(queue.device, "scheduler", self.scheduler),
            undo=block.restore(queue),
            before=queue.scheduler,
            after=self.scheduler,
        )

    def _setting(self, queue: Queue, name: str, value: int) -> Step:
        switching = queue.scheduler != self.scheduler
        before = queue.value(name)
        forgotten = self._forgotten(name, switching=switching)
        return Step(
            f"Set {name.removeprefix('iosched/')} of {self.device} to {value}",
            self.host,
            do=block.write(queue.device, name, value),
            # What this was set to is lost with the old scheduler, so both come back together.
            undo=block.restore(queue) if forgotten else _undo(queue.device, name, before),
            before=before or "not there",
            after=str(value),
        )

    def _rule_file(self, queue: Queue) -> str:
        return block_rule.file_of(queue.device, queue.identity)

    def _rule(self, queue: Queue) -> str:
        settings = {"scheduler": self.scheduler, **self._wanted()}
        return block_rule.text_of(queue.device, queue.identity, settings)

    def _persisting(self, disk: Disk) -> Iterator[Step]:
        wanted = self._rule(disk.queue)
        if self.persist and disk.rule != wanted:
            file = self._rule_file(disk.queue)
            yield Step(
                f"Keep it when {self.host} starts again",
                self.host,
                do=block_rule.replace(file, wanted),
                undo=block_rule.replace(file, disk.rule),
                before="another rule" if disk.rule else "no rule",
                after="a rule of udev",
            )

    def _notes(self, disk: Disk) -> Iterator[str]:
        queue = disk.queue
        yield disk.doing
        if queue.scheduler != self.scheduler:
            yield (
                f"Switching takes a moment in which {self.device} answers nobody, and forgets "
                "nr_requests and all tunables of the old scheduler; an undo brings them back."
            )
        if self.scheduler not in queue.offered:
            yield f"The kernel loads the module of {self.scheduler} as it is written."
        yield from self._about_the_rule(disk)
        paths = [node for node in disk.lies_on if node.type == "mpath"]
        if paths:
            yield (
                f"{self.device} is a path of {paths[0].name}: requests are ordered in the queue "
                f"of {paths[0].kernel}, unless it offers no scheduler."
            )
        whole = [node.kernel for node in disk.lies_on if node.type != "part"]
        if self.read_ahead_kb is not None and whole:
            yield (
                f"Files are read ahead by what is mounted. On {self.device} lies "
                f"{', '.join(whole)}, whose own read-ahead counts there."
            )

    def _about_the_rule(self, disk: Disk) -> Iterator[str]:
        if self.persist and disk.queue.identity is None:
            yield (
                f"{self.device} has no number of its own, so the rule goes by its name, which "
                "may be another disk's after a restart."
            )
        if not self.persist and disk.rule and disk.rule != self._rule(disk.queue):
            yield (
                f"A rule in {self._rule_file(disk.queue)} sets something else when {self.host} "
                "starts again: ask with persist=true to replace it."
            )
        if not self.persist and not disk.rule:
            yield f"It is forgotten when {self.host} starts again, unless asked with persist=true."


def _described(queue: Queue) -> str:
    told = {
        "slice_idle": queue.slice_idle,
        "read_ahead_kb": queue.read_ahead_kb,
        "nr_requests": queue.nr_requests,
    }
    values = [f"{name} {value}" for name, value in told.items() if value is not None]
    return f"{queue.scheduler} with {', '.join(values)}"


def _load(ask: Ask, host: str, device: str) -> str:
    """Watch the device for a moment. No change fails because this cannot be told."""
    try:
        seen = {use.device: use for use in iostat.sample(ask, host, _SAMPLE)}
    except (CommandFailed, NotUnderstood) as trouble:
        return f"How busy {device} is cannot be told: {trouble}."
    if device not in seen:
        return f"{device} has not been used since the host started."
    return f"In {_SAMPLE} s, {seen[device]}."


def _undo(device: str, name: str, before: str) -> Shell | NoUndo:
    if block.is_settable(name, before):
        return block.write(device, name, before)
    return NoUndo(f"{name} was {before}, which is not a value that Keyturn sets")
