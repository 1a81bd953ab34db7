import pytest

from bot.model import request_form
from runbooks import load_catalogue
from runbooks.abusers_clear import ClearAbuser


def _parse_form(text: str) -> dict[str, str]:
    runbook, rest = request_form.find_runbook(request_form.split_words(text))
    return request_form.parse_request(runbook, rest).model_dump(mode="json")


@pytest.mark.parametrize(
    "text",
    [
        "abusers clear lb1 203.0.113.9",
        "abusers clear address=203.0.113.9 host=lb1",
        "abusers clear host=lb1 203.0.113.9",
        "ABUSERS Clear lb1 --address=203.0.113.9",
        "abusers clear “lb1” ‘203.0.113.9’",
        "  abusers   clear lb1  203.0.113.9 table=http ",
    ],
)
def test_request_words_fill_the_form_fields(text: str):
    request = _parse_form(text)
    assert (request["host"], request["address"], request["table"]) == (
        "lb1",
        "203.0.113.9",
        "http",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("abusers clear lb1 203.0.113.9 http gpc0 now", "'now' is one word too many"),
        ("abusers clear lb1", "address: is missing. Usage: abusers clear HOST ADDRESS"),
        (
            "abusers clear",
            "host: is missing; address: is missing. Usage: abusers clear HOST ADDRESS [table",
        ),
        ("abusers clear lb1 host=lb2", "address: 'lb1' is not valid"),
        ("abusers clear lb1 203.0.113.9 host=lb2 host=lb3", "host is given twice"),
        ("abusers clear lb1 999.1.1.1", "address: '999.1.1.1' is not valid"),
        (
            "abusers clear 203.0.113.9 lb1",
            "host: '203.0.113.9' is not valid: for example, abusers clear lb1 203.0.113.9",
        ),
        (
            "nfs scheduler set nas1 sdb none persist=perhaps",
            "'perhaps' is not valid: must be true or false",
        ),
        (
            "nfs scheduler set nas1 sdb fast",
            "'fast' is not valid: must be one of none, mq-deadline, bfq, kyber, noop, ",
        ),
        ("abusers clear 'lb1", "a quotation mark is not closed"),
        ("abuser clear lb1 203.0.113.9", "Did you mean: abusers clear"),
        ("frobnicate", "type help in chat"),
    ],
)
def test_invalid_request_words_are_reported_with_what_to_type(text: str, says: str):
    with pytest.raises(request_form.RequestSyntaxError) as trouble:
        _parse_form(text)
    assert says in str(trouble.value)


def test_every_invalid_value_is_reported_at_its_field():
    with pytest.raises(request_form.InvalidValuesError) as misfit:
        request_form.parse_values(ClearAbuser, {"host": "LB 1", "address": "nowhere"})
    assert set(misfit.value.problems) == {"host", "address"}


@pytest.mark.parametrize("words", load_catalogue())
def test_example_of_every_runbook_is_a_valid_request(words: str):
    runbook = load_catalogue()[words]
    assert (
        request_form.find_runbook(request_form.split_words(f"{words} {runbook.example}"))[0]
        is runbook
    )
    assert request_form.parse_request(runbook, request_form.split_words(runbook.example))


@pytest.mark.parametrize("words", load_catalogue())
def test_every_runbook_has_form_fields_with_hints(words: str):
    blanks = request_form.list_form_fields(load_catalogue()[words])
    assert blanks[0].name == "host"
    assert blanks[0].kind == "host"
    assert all(blank.hint for blank in blanks), "every field says what it is"


def test_form_field_for_hosts_names_their_tag():
    assert request_form.list_form_fields(ClearAbuser)[0].tag == "haproxy"


HOSTS = {"lb1": frozenset({"haproxy"}), "lb2": frozenset({"haproxy"}), "nas1": frozenset({"zfs"})}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "abusers show lb1 lb2",
            "'lb2' is a host: name several with commas, as in abusers show lb1,lb2, or as "
            "table=lb2 if it is one",
        ),
        ("abusers show lb1 LB2", "'LB2' is a host"),
        ("uptime check lb1 lb2", "name several with commas, as in uptime check lb1,lb2"),
        ("abusers clear lb1 lb2 203.0.113.9 http gpc0", "as in abusers clear lb1,lb2"),
    ],
)
def test_second_host_name_is_rejected_with_the_comma_notation(text: str, says: str):
    runbook, rest = request_form.find_runbook(request_form.split_words(text))
    with pytest.raises(request_form.RequestSyntaxError) as trouble:
        request_form.parse_request_for_hosts(runbook, rest, HOSTS)
    assert says in str(trouble.value)


@pytest.mark.parametrize(
    "text", ["abusers show lb1 table=lb2", "zfs scrub start nas1 nas1", "hsrp check lb1 lb2"]
)
def test_value_that_is_also_a_host_name_is_accepted(text: str):
    runbook, rest = request_form.find_runbook(request_form.split_words(text))
    assert len(request_form.parse_request_for_hosts(runbook, rest, HOSTS)[1]) == 1


def test_every_form_field_has_a_readable_label():
    """A field whose name is not a word that people use has a title of its own."""
    for runbook in load_catalogue().values():
        for name, field in runbook.model_fields.items():
            plain = "_" not in name and name not in {
                "mib",
                "rtt",
                "up",
                "down",
                "fresh",
                "persist",
            }
            assert plain or field.title, f"{runbook.words}: {name}"


def test_form_value_is_validated_for_its_own_field_alone():
    clear = load_catalogue()["abusers clear"]
    assert request_form.is_value_valid(clear, "table", "http")
    assert not request_form.is_value_valid(clear, "table", "http; id")
    assert not request_form.is_value_valid(clear, "table", "-http")
    assert request_form.is_value_valid(clear, "address", "203.0.113.9")
    assert not request_form.is_value_valid(clear, "address", "1")
