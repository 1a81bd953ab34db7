"""Compare English words that people type: their stems, and slips of one letter. Pure."""

_MIN_STEM_LENGTH = 3
_DOUBLED = frozenset("bdgmnprt")


def reduce_to_stem(word: str) -> str:
    """Return what the forms of a word share: *clear* of clears, cleared and clearing."""
    stem = word.lower().removesuffix("'s")
    if stem.endswith("ies") and len(stem) > 4:
        return f"{stem[:-3]}y"
    if stem.endswith("s") and not stem.endswith(("ss", "us", "is")) and len(stem) > 3:
        stem = stem[:-1]
    for ending in ("ing", "ed"):
        base = stem.removesuffix(ending)
        if base != stem and len(base) >= _MIN_STEM_LENGTH:
            is_doubled = base[-1] == base[-2] and base[-1] in _DOUBLED
            stem = base[:-1] if is_doubled else base
            break
    return stem.removesuffix("e") if len(stem) > _MIN_STEM_LENGTH else stem


def is_one_slip_apart(one: str, other: str) -> bool:
    """Return whether one letter is added, missing or wrong, or two neighbours are swapped."""
    if one == other or abs(len(one) - len(other)) > 1:
        return one == other
    begin = 0
    while begin < min(len(one), len(other)) and one[begin] == other[begin]:
        begin += 1
    rest, other_rest = one[begin:], other[begin:]
    return (
        rest[1:] == other_rest[1:]
        or rest[1:] == other_rest
        or rest == other_rest[1:]
        or (rest[:2] == other_rest[1::-1] and rest[2:] == other_rest[2:])
    )
