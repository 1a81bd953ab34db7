import pytest

from connectors import iostat
from connectors.command import Answer, find_failure
from connectors.iostat import DiskUse, parse_json, parse_text
from tests.connectors.storage import recorded
from tests.connectors.understanding import is_understood
from tests.scripted_fleet import ScriptedFleet

JSON = recorded("iostat-12.6-json")
TEXT = recorded("iostat-12.6")
OLD = recorded("iostat-11.2")


def use(**changed: float) -> DiskUse:
    values = {"reads": 100.0, "writes": 0.0, "read_kib": 400.0, "written_kib": 0.0}
    values |= {"read_await": 1.0, "write_await": 0.0, "queue": 1.0, "busy": 50.0}
    return DiskUse("sda", **(values | changed))


def by_name(uses: tuple[DiskUse, ...] | None) -> dict[str, DiskUse]:
    return {each.device: each for each in uses or ()}


def test_iostat_json_is_parsed():
    disks = by_name(parse_json(JSON))
    assert len(disks) == 12
    assert disks["sdh"] == DiskUse(
        "sdh", 1.0, 105.33, 4.0, 107861.33, 0.33, 4.72, queue=0.5, busy=49.07
    )
    assert disks["sdh"].request_kib == pytest.approx(1014.4, abs=0.1)
    assert disks["sdh"].pattern == "sequential"
    assert disks["sdc"].pattern == "random"
    assert str(disks["sda"]) == "sda was idle"


def test_iostat_text_of_the_same_version_is_parsed():
    disks = by_name(parse_text(TEXT))
    assert disks.keys() == by_name(parse_json(JSON)).keys()
    assert disks["sdh"] == DiskUse(
        "sdh", 16.94, 169.1, 350.83, 173161.46, 0.57, 1.44, queue=0.25, busy=29.24
    )


def test_iostat_text_of_an_old_version_is_parsed():
    disks = by_name(parse_text(OLD))
    assert list(disks) == ["loop0", "sdb", "sda", "scd0"]
    assert disks["sda"] == DiskUse("sda", 0, 65, 0, 504, 0, 3.02, queue=0.01, busy=0.8)
    # It tells 15.51 sectors of half a KiB.
    assert disks["sda"].request_kib == pytest.approx(15.51 / 2, abs=0.01)


def test_iostat_without_json_is_queried_again_for_text():
    fleet = ScriptedFleet(
        {
            ("nas1", "iostat -x -y -o JSON 3 1"): Answer(1, "", "Usage: iostat [ options ]"),
            ("nas1", "iostat -x -y -k 3 1"): OLD,
        }
    )
    assert iostat.read_disk_use(fleet.run_query, "nas1", 3) == parse_text(OLD)


def test_iostat_with_json_is_queried_once():
    fleet = ScriptedFleet({("nas1", "iostat -x -y -o JSON 3 1"): JSON})
    assert iostat.read_disk_use(fleet.run_query, "nas1", 3) == parse_json(JSON)


@pytest.mark.parametrize(
    "answer", ["x", "{}", '{"sysstat": {"hosts": []}}', JSON.replace("util", "u")]
)
def test_invalid_iostat_json_is_not_understood(answer: str):
    assert not is_understood(lambda: parse_json(answer))


@pytest.mark.parametrize(
    "answer", ["", "Linux\n", OLD.replace("%util", "%x"), OLD.replace("0.80", "much")]
)
def test_invalid_iostat_text_is_not_understood(answer: str):
    assert not is_understood(lambda: parse_text(answer))


def test_missing_iostat_is_named_with_its_package():
    output = "timeout: failed to run command 'iostat': No such file or directory"
    query = iostat.query_json(1)
    assert "install sysstat" in str(
        find_failure(query.command, Answer(127, "", output), query.statuses)
    )


@pytest.mark.parametrize(
    ("seen", "saturated"),
    [
        (use(busy=100, read_await=50), True),
        (use(busy=100, read_await=1, queue=30), True),
        (use(busy=100, read_await=1, queue=1), False),
        (use(busy=89, read_await=50, queue=30), False),
        (use(busy=0, reads=0, read_kib=0), False),
    ],
)
def test_disk_is_saturated_only_when_requests_also_wait(seen: DiskUse, saturated: bool):
    assert seen.is_saturated is saturated


@pytest.mark.parametrize(
    ("kib", "pattern"), [(4, "random"), (16, "random"), (64, "mixed"), (128, "sequential")]
)
def test_disk_access_pattern_follows_from_the_request_size(kib: int, pattern: str):
    assert use(reads=10, read_kib=10 * kib).pattern == pattern


def test_average_disk_wait_is_weighted_by_the_number_of_requests():
    seen = use(reads=30, writes=10, read_await=2, write_await=10)
    assert seen.average_wait == pytest.approx(4)
    assert str(seen).endswith("30 reads and 10 writes a second of 10 KiB, 4.0 ms each")
