from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from connectors import block, block_rule, block_tree, iostat
from connectors.block import BlockQueue
from connectors.block_settings import BOUNDS, Scheduler
from connectors.block_tree import BlockDevice, BlockTree
from connectors.command import QueryRunner, Shell
from connectors.errors import CommandError, ParseError
from runbooks import Change, Host, NoUndo, Plan, Refused, Step, make_host_field

_WITH_SLICE_IDLE = ("bfq", "cfq")
_REQUESTS, _AHEAD, _IDLE = (
    BOUNDS[name] for name in ("nr_requests", "read_ahead_kb", "iosched/slice_idle")
)
# Seconds; they pass each time that the host is read.
_SAMPLE = 1


@dataclass(frozen=True)
class SchedulerState:
    """One device and what is known of it.

    loadable: the scheduler that is asked for is offered, or its module is there. rule: the text
    of the udev rule, "" if there is none. lies_on: what uses the device. doing: a short look at
    its load, or why there is none.
    """

    queue: BlockQueue
    is_loadable: bool
    rule_text: str
    upper_devices: Sequence[BlockDevice]
    load: str


class SetScheduler(
    Change[SchedulerState],
    words="nfs scheduler set",
    example="nas1 sdb bfq slice_idle=0",
    undo="sets what was set before",
):
    """Choose how a disk orders its reads and writes, at once and without a pause."""

    host: Host = make_host_field("nfs")
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

    def read(self, run_query: QueryRunner) -> SchedulerState:
        tree = run_query(self.host, block_tree.query_tree())
        node = self._find_device(tree)
        queue = run_query(self.host, block.query_queues([node.kernel_name]))[node.kernel_name]
        rule_file = block_rule.make_rule_path(node.kernel_name, queue.identity)
        return SchedulerState(
            queue,
            self.scheduler in queue.available_schedulers
            or run_query(self.host, block.query_module(self.scheduler)),
            run_query(self.host, block_rule.query_rule(rule_file)),
            tree.list_upper_devices(node),
            _read_load(run_query, self.host, node.kernel_name),
        )

    def plan(self, disk: SchedulerState) -> Plan:
        self._refuse_unusable(disk)
        queue = disk.queue
        switching = queue.scheduler != self.scheduler
        steps = [
            *([self._make_switch_step(queue)] if switching else []),
            *(
                self._make_setting_step(queue, name, value)
                for name, value in self._list_settings().items()
                if self._is_reset_by_switch(name, switching=switching)
                or queue.get_setting(name) != str(value)
            ),
            *self._make_rule_steps(disk),
        ]
        used = f"{self.device} uses {_format_queue(queue)}"
        # Where nothing is left to do, what the disk does now stands beside what it did before.
        because = used if steps else f"{used}. {disk.load}".removesuffix(".")
        return Plan(because, steps, [*self._list_notes(disk)])

    def _find_device(self, tree: BlockTree) -> BlockDevice:
        node = tree.find(self.device)
        if node is None:
            raise Refused(
                f"{self.host} has no block device {self.device}; it has "
                f"{', '.join(sorted(tree.nodes)) or 'none'}"
            )
        if node.type == "part":
            raise Refused(
                f"{self.device} is a part of {', '.join(node.lower_devices)}, and only the "
                "whole disk "
                "has a scheduler"
            )
        return node

    def _refuse_unusable(self, disk: SchedulerState) -> None:
        if not disk.is_loadable:
            raise Refused(
                f"{self.device} offers {', '.join(disk.queue.available_schedulers)}, and the "
                "host's kernel "
                f"has no module for {self.scheduler}"
            )
        if self.slice_idle is not None and self.scheduler not in _WITH_SLICE_IDLE:
            raise Refused(f"slice_idle is a tunable of bfq and cfq: {self.scheduler} has none")
        if self.nr_requests is not None and disk.queue.nr_requests is None:
            raise Refused(f"{self.device} passes its requests on: set nr_requests of its disks")
        if self.persist and not block_rule.is_own_rule(disk.rule_text):
            raise Refused(
                f"{self._make_rule_path(disk.queue)} was written by somebody else: move it away "
                "first"
            )

    def _list_settings(self) -> Mapping[str, int]:
        """Return what else is asked for, in the order in which the kernel takes it."""
        asked = {
            "nr_requests": self.nr_requests,
            "iosched/slice_idle": self.slice_idle,
            "read_ahead_kb": self.read_ahead_kb,
        }
        return {name: value for name, value in asked.items() if value is not None}

    @staticmethod
    def _is_reset_by_switch(name: str, *, switching: bool) -> bool:
        """Tell whether a switch sets this to a default, so that it is set in any case."""
        return switching and name != "read_ahead_kb"

    def _make_switch_step(self, queue: BlockQueue) -> Step:
        return Step(
            f"Use {self.scheduler} on {self.device}",
            self.host,
            do=block.set_queue_setting(queue.device, "scheduler", self.scheduler),
            undo=block.restore_queue(queue),
            before=queue.scheduler,
            after=self.scheduler,
        )

    def _make_setting_step(self, queue: BlockQueue, name: str, value: int) -> Step:
        switching = queue.scheduler != self.scheduler
        before = queue.get_setting(name)
        forgotten = self._is_reset_by_switch(name, switching=switching)
        return Step(
            f"Set {name.removeprefix('iosched/')} of {self.device} to {value}",
            self.host,
            do=block.set_queue_setting(queue.device, name, value),
            # What this was set to is lost with the old scheduler, so both come back together.
            undo=block.restore_queue(queue)
            if forgotten
            else _make_undo(queue.device, name, before),
            before=before or "not there",
            after=str(value),
        )

    def _make_rule_path(self, queue: BlockQueue) -> str:
        return block_rule.make_rule_path(queue.device, queue.identity)

    def _make_rule(self, queue: BlockQueue) -> str:
        settings = {"scheduler": self.scheduler, **self._list_settings()}
        return block_rule.format_rule(queue.device, queue.identity, settings)

    def _make_rule_steps(self, disk: SchedulerState) -> Iterator[Step]:
        wanted = self._make_rule(disk.queue)
        if self.persist and disk.rule_text != wanted:
            file = self._make_rule_path(disk.queue)
            yield Step(
                f"Keep it when {self.host} starts again",
                self.host,
                do=block_rule.replace_rule(file, wanted),
                undo=block_rule.replace_rule(file, disk.rule_text),
                before="another rule" if disk.rule_text else "no rule",
                after="a rule of udev",
            )

    def _list_notes(self, disk: SchedulerState) -> Iterator[str]:
        queue = disk.queue
        yield disk.load
        if queue.scheduler != self.scheduler:
            yield (
                f"Switching takes a moment in which {self.device} answers nobody, and forgets "
                "nr_requests and all tunables of the old scheduler; an undo brings them back."
            )
        if self.scheduler not in queue.available_schedulers:
            yield f"The kernel loads the module of {self.scheduler} as it is written."
        yield from self._list_rule_notes(disk)
        paths = [node for node in disk.upper_devices if node.type == "mpath"]
        if paths:
            yield (
                f"{self.device} is a path of {paths[0].name}: requests are ordered in the queue "
                f"of {paths[0].kernel_name}, unless it offers no scheduler."
            )
        whole = [node.kernel_name for node in disk.upper_devices if node.type != "part"]
        if self.read_ahead_kb is not None and whole:
            yield (
                f"Files are read ahead by what is mounted. On {self.device} lies "
                f"{', '.join(whole)}, whose own read-ahead counts there."
            )

    def _list_rule_notes(self, disk: SchedulerState) -> Iterator[str]:
        if self.persist and disk.queue.identity is None:
            yield (
                f"{self.device} has no number of its own, so the rule goes by its name, which "
                "may be another disk's after a restart."
            )
        if not self.persist and disk.rule_text and disk.rule_text != self._make_rule(disk.queue):
            yield (
                f"A rule in {self._make_rule_path(disk.queue)} sets something else when "
                f"{self.host} "
                "starts again: ask with persist=true to replace it."
            )
        if not self.persist and not disk.rule_text:
            yield f"It is forgotten when {self.host} starts again, unless asked with persist=true."


def _format_queue(queue: BlockQueue) -> str:
    told = {
        "slice_idle": queue.slice_idle,
        "read_ahead_kb": queue.read_ahead_kb,
        "nr_requests": queue.nr_requests,
    }
    values = [f"{name} {value}" for name, value in told.items() if value is not None]
    return f"{queue.scheduler} with {', '.join(values)}"


def _read_load(run_query: QueryRunner, host: str, device: str) -> str:
    """Watch the device for a moment. No change fails because this cannot be told."""
    try:
        seen = {use.device: use for use in iostat.read_disk_use(run_query, host, _SAMPLE)}
    except (CommandError, ParseError) as trouble:
        return f"How busy {device} is cannot be told: {trouble}."
    if device not in seen:
        return f"{device} has not been used since the host started."
    return f"In {_SAMPLE} s, {seen[device]}."


def _make_undo(device: str, name: str, before: str) -> Shell | NoUndo:
    if block.is_settable(name, before):
        return block.set_queue_setting(device, name, before)
    return NoUndo(f"{name} was {before}, which is not a value that Keyturn sets")
