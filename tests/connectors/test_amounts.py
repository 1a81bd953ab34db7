import pytest

from connectors.amounts import format_count, format_duration, format_size


def test_count_is_formatted_with_its_noun():
    assert format_count(1, "pool") == "1 pool"
    assert format_count(1200, "pool") == "1,200 pools"
    assert format_count(0, "directory", "directories") == "0 directories"


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (15_872, "15.5 KiB"),
        (147 * 1024**2, "147 MiB"),
        (1024**3, "1 GiB"),
        (5 * 1024**8, "5120 ZiB"),
    ],
)
def test_size_is_formatted_in_binary_units(amount: int, text: str):
    assert format_size(amount) == text


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (0, "less than a minute"),
        (40, "40 s"),
        (4680, "1 h 18 min"),
        (86_400, "1 day"),
        (286_947, "3 days 7 h"),
    ],
)
def test_duration_is_formatted_in_words(length: int, text: str):
    assert format_duration(length) == text
