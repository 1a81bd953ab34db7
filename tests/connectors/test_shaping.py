import subprocess
from pathlib import Path

import pytest

from connectors import shaping
from connectors.command import Answer, QueryCommand, Shell, find_failure
from connectors.errors import ParseError
from connectors.rows import list_odd_rows
from connectors.shaping import (
    QueueingDiscipline,
    Rates,
    ShapedInterface,
    parse_classes,
    parse_interfaces,
)

ANSWERS = Path(__file__).parent / "answers" / "shaping"
# Interfaces eth0 and eth1: without limits; with 1024 kbit/s in and 512 out on eth0; and with a tbf
# and an htb that somebody else has put there.
NONE, LIMITED, SOMEBODYS = (
    (ANSWERS / f"{name}.txt").read_text() for name in ("none", "limited", "somebodys")
)
CLASSES = (ANSWERS / "htb-classes.txt").read_text()
RATES = Rates(down=1024, up=512)
TRY = shaping.try_limits("eth0", RATES)


def test_interfaces_without_bandwidth_limits_are_parsed():
    assert parse_interfaces(NONE) == {
        "lo": ShapedInterface("lo", is_loopback=True),
        "eth1": ShapedInterface("eth1", is_loopback=False),
        "eth0": ShapedInterface("eth0", is_loopback=False),
    }


def test_bandwidth_limits_are_parsed_with_dropped_packets():
    card = parse_interfaces(LIMITED)["eth0"]
    assert card.rates == RATES
    assert card.up_queue == QueueingDiscipline("tbf", 512, dropped=79, overlimits=93)
    assert card.down_queue == QueueingDiscipline("tbf", 1024, dropped=76, overlimits=92)
    assert card.foreign_queues == ()
    assert parse_interfaces(LIMITED)["eth1"].rates == Rates()


def test_ifb_device_of_keyturn_is_not_listed_as_interface():
    assert "kt-in3" in LIMITED
    assert set(parse_interfaces(LIMITED)) == {"lo", "eth0", "eth1"}


def test_ifb_device_without_redirected_traffic_limits_nothing():
    card = parse_interfaces(LIMITED.replace("led eth0\n", ""))["eth0"]
    assert card.rates == Rates(up=512)
    assert [queue.kind for queue in card.foreign_queues] == ["ingress"]


def test_qdisc_that_keyturn_did_not_set_is_foreign():
    cards = parse_interfaces(SOMEBODYS)
    assert cards["eth0"].rates == cards["eth1"].rates == Rates()
    assert [(queue.kind, queue.rate) for queue in cards["eth0"].foreign_queues] == [("tbf", 1000)]
    assert [queue.kind for queue in cards["eth1"].foreign_queues] == ["htb", "ingress"]


def test_htb_classes_are_parsed_with_their_rates():
    assert sorted(parse_classes(CLASSES)) == [
        "class 1:1 8Mbit to 8Mbit",
        "class 1:10 3Mbit to 8Mbit",
    ]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "[]",
        "{}\n[]",
        "[]\nnothing",
        NONE.replace("ifname", "name"),
        NONE.replace('"kind"', '"sort"'),
        NONE.replace('"flags"', '"marks"'),
        LIMITED.replace('"rate":64000', '"rate":"512Kbit"'),
        LIMITED.replace('"rate":64000,', ""),
        LIMITED.replace('"drops":79', '"drops":"many"'),
        LIMITED.replace("led eth0", "something"),
        "\n".join(LIMITED.splitlines()[1:]),
    ],
)
def test_invalid_interfaces_of_tc_are_a_parse_error_or_not_understood(answer: str):
    try:
        interfaces = parse_interfaces(answer)
    except ParseError:
        return
    assert [*list_odd_rows(interfaces)]


@pytest.mark.parametrize("answer", ["Cannot find device\n", CLASSES.replace("rate", "speed")])
def test_invalid_htb_classes_are_not_understood(answer: str):
    assert [*list_odd_rows(parse_classes(answer))]


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        (Rates(), "no limit"),
        (Rates(down=1000), "1,000 kbit/s in"),
        (RATES, "1,024 kbit/s in, 512 kbit/s out"),
    ],
)
def test_bandwidth_rates_are_formatted_with_units(rates: Rates, words: str):
    assert str(rates) == words


@pytest.mark.parametrize("command", [shaping.query_interfaces().command, TRY])
def test_bandwidth_scripts_have_valid_shell_syntax(command: QueryCommand):
    assert isinstance(command, Shell)
    for word in command.words:
        if " " in word:
            subprocess.run(["sh", "-n", "-c", word], check=True)


def test_bandwidth_values_reach_the_script_as_arguments_only():
    assert shaping.try_limits("eth0", RATES).words[3:] == ("keyturn", "/", "eth0", "1024", "512")
    assert (
        shaping.try_limits("eth1", Rates()).words[2] == shaping.try_limits("eth0", RATES).words[2]
    )


@pytest.mark.parametrize(
    ("output", "means"),
    [
        ("nothing is on probation", "has restored what was"),
        ("Error: Specified qdisc kind is unknown.", "lacks tc's tbf"),
        ("Error: Failed to load TC action module.", "cannot limit what comes in"),
        ('Device "eth7" does not exist.', "does not exist any more"),
    ],
)
def test_bandwidth_limit_errors_say_what_to_do(output: str, means: str):
    assert means in str(find_failure(TRY, Answer(1, "", output), frozenset({0})))
