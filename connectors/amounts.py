"""Counts, sizes, rates and durations as text. No I/O."""

_UNITS = "BKMGTPEZ"


def format_count(number: int, singular: str, plural: str = "") -> str:
    """Return `1 pool` or `1,200 pools`. plural: of a noun whose plural does not end in `s`."""
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"


def format_size(amount: int) -> str:
    """Return bytes as text: `1.5 MiB`."""
    value, unit = float(amount), "B"
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    if unit == "B":
        return f"{amount} B"
    return f"{value:.0f} {unit}iB" if value >= 100 else f"{value:.3g} {unit}iB"


def format_rate(bits: float) -> str:
    """Return bits per second as text: `1.0 Gbit/s`."""
    return f"{bits / 1e9:,.1f} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:,.1f} Mbit/s"


def format_duration(length: int) -> str:
    """Return seconds as text, in the two largest units: `3 days 7 h`."""
    days, rest = divmod(length, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    named = ((days, "day" if days == 1 else "days"), (hours, "h"), (minutes, "min"), (rest, "s"))
    parts = [f"{count} {unit}" for count, unit in named if count]
    return " ".join(parts[:2]) or "less than a minute"
