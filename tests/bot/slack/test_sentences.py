"""Answers in Slack are whole sentences with correct singular and plural."""

import pytest

from bot.model.text import format_count, format_sentence

SENTENCES = {
    "waits for run 7, which has locked lb1": "Waits for run 7, which has locked lb1.",
    "starts as soon as lb1 is free": "Starts as soon as lb1 is free.",
    "reading lb1; nothing is changed": "Reading lb1; nothing is changed.",
    "step 1 of 2 on lb1, for 2 min": "Step 1 of 2 on lb1, for 2 min.",
    "": "",
    "there is no run 7": "There is no run 7.",
    "the run is missing: type /keyturn run N": "The run is missing: type /keyturn run N",
    "say why": "Say why.",
    "type it like this: grant PERSON until TIME": "Type it like this: grant PERSON until TIME",
    "lb1 is not tagged zfs": "lb1 is not tagged zfs.",
    "dora is banned already": "dora is banned already.",
    "run-1 is banned": "run-1 is banned.",
    "'plan' is not a value for a field: type field=value": (
        "'plan' is not a value for a field: type field=value"
    ),
    "There is no 'x'. Type help.": "There is no 'x'. Type help.",
    "no host, area or person is called 'x'": "No host, area or person is called 'x'.",
    "“soon” is not a time: type 18:00": "“soon” is not a time: type 18:00",
    "run 12 has another plan: review it, then approve it again": (
        "Run 12 has another plan: review it, then approve it again."
    ),
}


@pytest.mark.parametrize(("text", "sentence"), SENTENCES.items())
def test_answer_is_formatted_as_a_sentence(text: str, sentence: str):
    assert format_sentence(text) == sentence


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 more rows"), (1, "1 more row"), (2, "2 more rows")]
)
def test_count_of_one_is_singular(number: int, text: str):
    assert format_count(number, "more row") == text


def test_count_of_active_freezes_is_singular_or_plural():
    assert format_count(1, "active freeze") == "1 active freeze"
    assert format_count(3, "active freeze") == "3 active freezes"
