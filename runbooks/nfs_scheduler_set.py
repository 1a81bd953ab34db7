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
from runbooks import Change, Host, Leg, NoUndo, Plan, Refused, Step, make_host_field

_WITH_SLICE_IDLE = ("bfq", "cfq")
_REQUESTS, _AHEAD, _IDLE = (
    BOUNDS[name] for name in ("nr_requests", "read_ahead_kb", "iosched/slice_idle")
)
# Seconds of each measurement of the disk's load.
_SAMPLE = 1


@dataclass(frozen=True)
class SchedulerState:
    """One device with its queue and its udev rule."""

    queue: BlockQueue
    is_loadable: bool
    """Whether the requested scheduler is available or its module exists."""
    rule_text: str
    """The text of the udev rule, "" if there is none."""
    upper_devices: Sequence[BlockDevice]
    """The devices above it."""
    load: str
    """Its load as a sentence, or why it could not be measured."""


class SetScheduler(
    Change[SchedulerState],
    words="nfs scheduler set",
    example="nas1 sdb bfq slice_idle=0",
    undo="restores the previous settings",
    sets="scheduler {device}",
):
    """Set the I/O scheduler of a disk, immediately and without downtime."""

    host: Host = make_host_field("nfs")
    device: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$",
            description="The disk, such as sdb; `nfs scheduler show` lists those behind exports",
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
            description="KiB to read ahead of sequential reads; a multiple of 4, up to 65536",
        ),
    ] = None
    nr_requests: Annotated[
        int | None,
        Field(
            ge=_REQUESTS[0],
            le=_REQUESTS[1],
            title="Queued requests",
            description="The length of the queue; 4 to 10240",
        ),
    ] = None
    persist: Annotated[
        bool,
        Field(
            title="Keep after a reboot",
            description="Also write a udev rule, so that it stays after a reboot",
        ),
    ] = False

    def read(self, run_query: QueryRunner) -> SchedulerState:
        tree = run_query(self.host, block_tree.query_tree())
        node = self._find_device(tree)
        queue = run_query(self.host, block.query_queues([node.kernel_name])).require(
            node.kernel_name
        )
        rule_file = block_rule.make_rule_path(node.kernel_name, queue.identity)
        return SchedulerState(
            queue,
            self.scheduler in queue.available_schedulers
            or run_query(self.host, block.query_module(self.scheduler)),
            run_query(self.host, block_rule.query_rule(rule_file)),
            tree.list_upper_devices(node),
            _read_load(run_query, self.host, node.kernel_name),
        )

    def takes_down(self) -> Sequence[Leg]:
        return [Leg(self.host, "nfs")]

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
        # After the change, the verification also shows the load, to compare with that before.
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
                f"{self.device} is a partition: only the disk {', '.join(node.lower_devices)} "
                "has a scheduler"
            )
        return node

    def _refuse_unusable(self, disk: SchedulerState) -> None:
        if not disk.is_loadable:
            raise Refused(
                f"{self.device} offers {', '.join(disk.queue.available_schedulers)}, and the "
                f"host's kernel has no module for {self.scheduler}"
            )
        if self.slice_idle is not None and self.scheduler not in _WITH_SLICE_IDLE:
            raise Refused(f"only bfq and cfq have slice_idle: {self.scheduler} does not")
        if self.nr_requests is not None and disk.queue.nr_requests is None:
            raise Refused(f"{self.device} has no queue of its own: set nr_requests of its disks")
        if self.persist and not block_rule.is_own_rule(disk.rule_text):
            raise Refused(
                f"{self._make_rule_path(disk.queue)} was not written by Keyturn: move it away "
                "first"
            )

    def _list_settings(self) -> Mapping[str, int]:
        """Return the other requested settings, in the order in which the kernel accepts them."""
        settings = {
            "nr_requests": self.nr_requests,
            "iosched/slice_idle": self.slice_idle,
            "read_ahead_kb": self.read_ahead_kb,
        }
        return {name: value for name, value in settings.items() if value is not None}

    @staticmethod
    def _is_reset_by_switch(name: str, *, switching: bool) -> bool:
        """Return whether a switch of the scheduler resets this, so that it must be set again."""
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
        is_reset = self._is_reset_by_switch(name, switching=switching)
        return Step(
            f"Set {name.removeprefix('iosched/')} of {self.device} to {value}",
            self.host,
            do=block.set_queue_setting(queue.device, name, value),
            # The old value is lost with the old scheduler, so both are restored together.
            undo=block.restore_queue(queue)
            if is_reset
            else _make_undo(queue.device, name, before),
            before=before or "none",
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
                f"Keep it after a reboot of {self.host}",
                self.host,
                do=block_rule.replace_rule(file, wanted),
                undo=block_rule.replace_rule(file, disk.rule_text),
                before="another rule" if disk.rule_text else "no rule",
                after="a udev rule",
            )

    def _list_notes(self, disk: SchedulerState) -> Iterator[str]:
        queue = disk.queue
        yield disk.load
        if queue.scheduler != self.scheduler:
            yield (
                f"{self.device} does not answer for a short time during the switch, which resets "
                "nr_requests and all tunables of the old scheduler. Undo restores them."
            )
        if self.scheduler not in queue.available_schedulers:
            yield f"The kernel loads the module of {self.scheduler} when it is set."
        yield from self._list_rule_notes(disk)
        paths = [node for node in disk.upper_devices if node.type == "mpath"]
        if paths:
            yield (
                f"{self.device} is a path of {paths[0].name}: requests are ordered in the queue "
                f"of {paths[0].kernel_name}, unless it offers no scheduler."
            )
        upper = [node.kernel_name for node in disk.upper_devices if node.type != "part"]
        if self.read_ahead_kb is not None and upper:
            yield (
                "For files, the read-ahead of the mounted device counts. "
                f"{', '.join(upper)} uses {self.device} and has its own."
            )

    def _list_rule_notes(self, disk: SchedulerState) -> Iterator[str]:
        if self.persist and disk.queue.identity is None:
            yield (
                f"{self.device} has no ID of its own, so the rule uses its name, which may be "
                "another disk's after a reboot."
            )
        if not self.persist and disk.rule_text and disk.rule_text != self._make_rule(disk.queue):
            yield (
                f"A rule in {self._make_rule_path(disk.queue)} sets other values at the next boot "
                f"of {self.host}: request it with persist=true to replace the rule."
            )
        if not self.persist and not disk.rule_text:
            yield f"A reboot of {self.host} resets it, unless requested with persist=true."


def _format_queue(queue: BlockQueue) -> str:
    settings = {
        "slice_idle": queue.slice_idle,
        "read_ahead_kb": queue.read_ahead_kb,
        "nr_requests": queue.nr_requests,
    }
    values = [f"{name} {value}" for name, value in settings.items() if value is not None]
    return f"{queue.scheduler} with {', '.join(values)}"


def _read_load(run_query: QueryRunner, host: str, device: str) -> str:
    """Measure the load of the device. A change does not fail because this fails."""
    try:
        uses = {use.device: use for use in iostat.read_disk_use(run_query, host, _SAMPLE)}
    except (CommandError, ParseError) as error:
        return f"The load of {device} could not be measured: {error}."
    if device not in uses:
        return f"{device} has not been used since the host started."
    return f"In {_SAMPLE} s, {uses[device]}."


def _make_undo(device: str, name: str, before: str) -> Shell | NoUndo:
    if block.is_settable(name, before):
        return block.set_queue_setting(device, name, before)
    return NoUndo(f"{name} was {before}, which Keyturn cannot set")
