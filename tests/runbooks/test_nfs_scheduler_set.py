import pytest
from pydantic import ValidationError

from connectors import block, block_rule, block_tree, iostat
from connectors.command import Answer, Shell
from runbooks import NoUndo, Plan, Refused
from runbooks.nfs_scheduler_set import SetScheduler
from tests.connectors.storage import recorded
from tests.runbooks.file_server import LOAD, QUEUES, build_file_server_fleet, only, queues
from tests.scripted_fleet import ScriptedFleet

NONE = only("sda")
BFQ = recorded("queue-bfq-linux-6.1") + "/sys/block/sda/device/wwid:naa.5000c50000000001\n"
MODULE = "/lib/modules/6.1.0-56-amd64/kernel/block/bfq.ko\n"
RULE_FILE = "/etc/udev/rules.d/60-keyturn-naa.5000c50000000001.rules"


def make_request(**fields: object) -> SetScheduler:
    values = {"host": "nas1", "device": "sda", "scheduler": "bfq"}
    return SetScheduler.model_validate(values | fields)


def server(queue: str = NONE, *, module: str | Answer = MODULE, rule: str = "") -> ScriptedFleet:
    return build_file_server_fleet(
        {
            queues("sda"): queue,
            "modinfo -n bfq-iosched": module,
            str(block_rule.query_rule(RULE_FILE).command): rule,
        }
    )


def plan(request: SetScheduler, queue: str = NONE, *, rule: str = "") -> Plan:
    return request.plan(request.read(server(queue, rule=rule).run_query))


def lines(steps: Plan) -> list[tuple[str, ...]]:
    words: list[tuple[str, ...]] = []
    for step in steps.steps:
        assert isinstance(step.do, Shell)
        words.append(step.do.words[-2:])
    return words


def test_nfs_scheduler_set_plans_one_step_a_value_and_the_scheduler_first():
    made_plan = plan(make_request(slice_idle="0", read_ahead_kb=4096, nr_requests=512))
    assert lines(made_plan) == [
        ("sda", "scheduler=bfq"),
        ("sda", "nr_requests=512"),
        ("sda", "iosched/slice_idle=0"),
        ("sda", "read_ahead_kb=4096"),
    ]
    assert made_plan.current_state == "sda uses none with read_ahead_kb 128, nr_requests 256"
    assert [(step.before, step.after) for step in made_plan.steps] == [
        ("none", "bfq"),
        ("256", "512"),
        ("none", "0"),
        ("128", "4096"),
    ]


def test_nfs_scheduler_switch_sets_values_that_it_would_reset():
    back = make_request(scheduler="mq-deadline", nr_requests=512)
    assert lines(plan(back, BFQ))[1] == ("sda", "nr_requests=512")


def test_undo_of_a_scheduler_switch_restores_all_tunables():
    made_plan = plan(make_request(scheduler="mq-deadline", nr_requests=64, read_ahead_kb=128), BFQ)
    before = block.parse_queues(BFQ, ["sda"])["sda"]
    switch, requests, ahead = made_plan.steps
    assert switch.undo == requests.undo == block.restore_queue(before)
    assert "iosched/low_latency=0" in str(switch.undo)
    assert ahead.undo == block.set_queue_setting("sda", "read_ahead_kb", "4096")


def test_read_ahead_outside_the_sudo_rules_has_no_undo():
    wide = BFQ.replace("read_ahead_kb:4096", "read_ahead_kb:131072")
    assert wide != BFQ
    (step,) = plan(make_request(read_ahead_kb=128), wide).steps
    assert isinstance(step.undo, NoUndo)
    assert "was 131072" in step.undo.reason


def test_tunable_without_a_scheduler_switch_has_its_own_undo():
    made_plan = plan(make_request(slice_idle=1, nr_requests=512), BFQ)
    (step,) = made_plan.steps
    assert step.do == block.set_queue_setting("sda", "iosched/slice_idle", 1)
    assert step.undo == block.set_queue_setting("sda", "iosched/slice_idle", "0")


def test_nfs_scheduler_set_plans_no_steps_when_values_are_as_requested():
    assert not plan(make_request(slice_idle=0, read_ahead_kb=4096, nr_requests=512), BFQ).steps


def test_slice_idle_that_the_kernel_changed_is_not_verified():
    coerced = BFQ.replace("slice_idle:0", "slice_idle:4293")
    left = plan(make_request(slice_idle=0), coerced)
    assert left.steps
    assert "slice_idle 4293" in left.current_state


def test_nfs_scheduler_set_notes_that_the_kernel_loads_a_module():
    assert any("loads the module of bfq" in note for note in plan(make_request()).notes)
    assert not any("loads the module" in note for note in plan(make_request(), BFQ).notes)


def test_nfs_scheduler_set_queries_no_module_for_an_available_scheduler():
    fleet = server()
    make_request(scheduler="mq-deadline").read(fleet.run_query)
    assert not any("modinfo" in command for _, command in fleet.asked)


def test_scheduler_that_the_kernel_does_not_have_is_refused():
    gone = server(module=Answer(1, "", "modinfo: ERROR: Module bfq-iosched not found."))
    with pytest.raises(Refused, match=r"sda offers none, mq-deadline, and .* no module for bfq"):
        make_request().plan(make_request().read(gone.run_query))


def test_slice_idle_of_a_scheduler_without_it_is_refused():
    with pytest.raises(Refused, match="only bfq and cfq have slice_idle"):
        plan(make_request(scheduler="mq-deadline", slice_idle=0))


def test_cfq_of_an_old_kernel_is_accepted():
    old = NONE.replace("[none] mq-deadline", "noop deadline [cfq]")
    old += "/sys/block/sda/queue/iosched/slice_idle:8\n"
    assert lines(plan(make_request(scheduler="cfq", slice_idle=0), old)) == [
        ("sda", "iosched/slice_idle=0")
    ]


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ("sdzz", "no block device sdzz; it has dm-0, dm-1, md0"),
        ("sdc1", "sdc1 is a partition: only the disk sdc"),
    ],
)
def test_nfs_scheduler_set_refuses_an_unlisted_device_before_reading_it(device: str, why: str):
    fleet = server()
    with pytest.raises(Refused, match=why):
        make_request(device=device).read(fleet.run_query)
    assert [command for _, command in fleet.asked] == [str(block_tree.query_tree().command)]


def test_nr_requests_of_a_device_without_a_queue_is_refused():
    kept = ("read_ahead_kb", "rotational", "wwid")
    text = "".join(f"{line}\n" for line in NONE.splitlines() if any(k in line for k in kept))
    with pytest.raises(Refused, match="has no queue of its own"):
        plan(make_request(scheduler="none", nr_requests=64), text)


def test_nfs_scheduler_set_accepts_the_mapper_name_of_a_device():
    fleet = build_file_server_fleet(
        {queues("dm-0"): QUEUES, str(block_rule.query_rule(DM_RULE).command): ""}
    )
    made_plan = make_request(device="vg0-export", scheduler="none", read_ahead_kb=4096)
    (step,) = made_plan.plan(made_plan.read(fleet.run_query)).steps
    assert step.do == block.set_queue_setting("dm-0", "read_ahead_kb", 4096)


DM_RULE = "/etc/udev/rules.d/60-keyturn-dm-0.rules"


def test_udev_rule_is_written_last_and_removed_by_undo():
    made_plan = plan(make_request(slice_idle=0, persist="true"))
    rule = made_plan.steps[-1]
    text = block_rule.format_rule(
        "sda",
        ("device/wwid", "naa.5000c50000000001"),
        {"scheduler": "bfq", "iosched/slice_idle": 0},
    )
    assert rule.do == block_rule.replace_rule(RULE_FILE, text)
    assert rule.undo == block_rule.replace_rule(RULE_FILE, "")
    assert not plan(make_request(slice_idle=0, persist=True), BFQ, rule=text).steps
    assert not any("forgotten" in note for note in made_plan.notes)


def test_undo_of_a_udev_rule_restores_the_previous_rule():
    old = block_rule.format_rule("sda", None, {"scheduler": "none"})
    (step,) = plan(make_request(persist=True), BFQ, rule=old).steps
    assert step.undo == block_rule.replace_rule(RULE_FILE, old)
    assert step.before == "another rule"
    (note,) = [
        note for note in plan(make_request(), BFQ, rule=old).notes if "sets other values" in note
    ]
    assert RULE_FILE in note


def test_udev_rule_that_keyturn_did_not_write_is_refused():
    with pytest.raises(Refused, match="not written by Keyturn"):
        plan(make_request(persist=True), BFQ, rule='KERNEL=="sda"\n')
    assert plan(make_request(slice_idle=1), BFQ, rule='KERNEL=="sda"\n').steps


def test_nfs_scheduler_set_notes_a_disk_without_a_wwid():
    text = NONE.replace("naa.5000c50000000001", "t10.A DISK")
    fleet = build_file_server_fleet(
        {
            queues("sda"): text,
            "modinfo -n bfq-iosched": MODULE,
            str(block_rule.query_rule("/etc/udev/rules.d/60-keyturn-sda.rules").command): "",
        }
    )
    notes = make_request(persist=True).plan(make_request(persist=True).read(fleet.run_query)).notes
    assert any("uses its name" in note for note in notes)


def test_nfs_scheduler_set_notes_reset_tunables_and_reboot():
    notes = plan(make_request(read_ahead_kb=1024)).notes
    assert notes[0] == "In 1 s, sda was idle."
    assert any("resets nr_requests and all tunables" in note for note in notes)
    assert any("A reboot of nas1 resets it" in note for note in notes)
    assert any("dm-0, dm-1, md0 uses sda and has its own" in note for note in notes)


def test_nfs_scheduler_set_notes_the_multipath_device_of_a_path():
    fleet = server(NONE)
    fleet.script("nas1", block_tree.query_tree().command, recorded("lsblk-multipath"))
    file = "/etc/udev/rules.d/60-keyturn-naa.5000c50000000004.rules"
    fleet.script("nas1", queues("sdd"), only("sdd"))
    fleet.script("nas1", block_rule.query_rule(file).command, "")
    notes = make_request(device="sdd").plan(make_request(device="sdd").read(fleet.run_query)).notes
    assert any("sdd is a path of mpatha" in note and "of dm-0" in note for note in notes)


@pytest.mark.parametrize(
    ("reply", "note"),
    [
        (
            Answer(127, "", "timeout: failed to run command 'iostat': No such file"),
            "install sysstat",
        ),
        ("{}", "could not be measured: iostat printed"),
        (LOAD.replace('"sda"', '"sdq"'), "sda has not been used since the host started."),
    ],
)
def test_nfs_scheduler_set_plans_without_iostat(reply: str | Answer, note: str):
    fleet = server()
    fleet.script("nas1", iostat.query_json(1).command, reply)
    assert note in make_request().plan(make_request().read(fleet.run_query)).notes[0]


HOSTILE_DEVICES = (
    "",
    ".",
    "..",
    "../sda",
    "sda/../../etc",
    "/dev/sda",
    "sda/queue",
    "sda;reboot",
    "sda reboot",
    "sda\n",
    "sda\0",
    "sda\u202e",
    "-sda",
    "--help",
    "s*a",
    "$(reboot)",
    "`reboot`",
    "sd{a,b}",
    "ｓda",
    "a" * 65,
    1,
    None,
    ["sda"],
)
HOSTILE_SCHEDULERS = (
    "",
    "BFQ",
    "bfq ",
    " bfq",
    "bfq\n",
    "bfq none",
    "[bfq]",
    "-bfq",
    "bfq;reboot",
    "../bfq",
    "anticipatory",
    "bfq\0",
    0,
    None,
)
HOSTILE_NUMBERS = (
    "-1",
    -1,
    "101 0",
    "0x1",
    "1e2",
    "5000000000",
    "99999999999999999999",
    "1 2",
    "1\n",
    "abc",
    "1;reboot",
    "٣x",
    "$(1)",
    1.5,
    "--1",
    [1],
)


@pytest.mark.parametrize("device", HOSTILE_DEVICES)
def test_nfs_scheduler_set_refuses_an_invalid_device_before_any_query(device: object):
    with pytest.raises(ValidationError):
        make_request(device=device)


@pytest.mark.parametrize("scheduler", HOSTILE_SCHEDULERS)
def test_nfs_scheduler_set_refuses_an_invalid_scheduler(scheduler: object):
    with pytest.raises(ValidationError):
        make_request(scheduler=scheduler)


@pytest.mark.parametrize("number", HOSTILE_NUMBERS)
@pytest.mark.parametrize("name", ["slice_idle", "read_ahead_kb", "nr_requests"])
def test_nfs_scheduler_set_refuses_numbers_out_of_range(name: str, number: object):
    with pytest.raises(ValidationError):
        make_request(**{name: number})


@pytest.mark.parametrize(
    ("name", "number"),
    [("slice_idle", 101), ("read_ahead_kb", 5), ("read_ahead_kb", 65540), ("nr_requests", 3)],
)
def test_nfs_scheduler_set_refuses_numbers_that_the_kernel_would_change(name: str, number: int):
    with pytest.raises(ValidationError):
        make_request(**{name: number})


def test_nfs_scheduler_set_shows_disk_use_once_verified():
    done = plan(make_request(slice_idle=0, read_ahead_kb=4096, nr_requests=512), BFQ)
    assert not done.steps
    assert done.current_state.startswith("sda uses bfq with ")
    assert done.current_state.endswith(". In 1 s, sda was idle")
    assert "In 1 s" not in plan(make_request(), NONE).current_state
