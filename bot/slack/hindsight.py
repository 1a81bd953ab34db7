"""`/keyturn changed …`: what changed around a moment, as one asks at two in the morning."""

from bot import hindsight
from bot.hindsight import NotAMoment
from bot.slack.blocks import (
    Message,
    bold,
    code,
    line,
    notification,
    preformatted,
    rich,
    shortened,
    words,
)
from bot.store import around
from bot.store.around import Happening, Seen
from bot.store.database import Database
from bot.workflow import Unfit

_MOST = 20
_HALF_AN_HOUR = 1_800_000_000


def changed(database: Database, typed: str) -> Message:
    """Answer `02:00 ±30m web*`: when, how far around it and on which hosts; the rest is usual.

    Raises Unfit where that says no moment.
    """
    with database.reading() as tx:
        try:
            at, within, host = _understood(typed.split(), tx.now)
        except NotAMoment as trouble:
            raise Unfit(str(trouble)) from None
        seen = around.seen(tx, at, within=within, host=host, most=_MOST)
    where = "" if host == "*" else f" on {host}"
    first, last = hindsight.written(at - within), hindsight.written(at + within)
    title = f"Between {first} and {last}{where}"
    if not seen.happenings:
        return Message(
            notification(title), [rich(line(bold(title)), line(words("Nothing that I know of.")))]
        )
    shown = "\n".join(shortened(_line(one), 200) for one in seen.happenings)
    more = [words("All of one: "), code("/keyturn run N")]
    rest = [line(words(said)) for said in _not_shown(seen, at, within)]
    return Message(
        notification(title), [rich(line(bold(title)), preformatted(shown), *rest, line(*more))]
    )


def _not_shown(seen: Seen, at: int, within: int) -> list[str]:
    said: list[str] = []
    if seen.left_out:
        said.append(f"Left out as less likely: {seen.left_out}. The web pages show more.")
    if seen.within < within:
        first, last = hindsight.written(at - seen.within), hindsight.written(at + seen.within)
        said.append(f"So much happened that only {first} to {last} was looked at.")
    return said


def _understood(typed: list[str], now: int) -> tuple[int, int, str]:
    """Return moment, span and host; what is no moment at the end is a host."""
    within, rest = _HALF_AN_HOUR, list[str]()
    for word in typed:
        if word[0] in "±+":
            within = hindsight.span(word)
        else:
            rest.append(word)
    if not rest:
        raise NotAMoment(f"around when? Type {hindsight.EXAMPLES}, then ±30m, then a host")
    try:
        return hindsight.moment(" ".join(rest), now=now), within, "*"
    except NotAMoment:
        if len(rest) == 1:
            raise
        return hindsight.moment(" ".join(rest[:-1]), now=now), within, rest[-1].lower()


def _line(one: Happening) -> str:
    run = f"run {one.run}" if one.run else "-"
    return f"{hindsight.written(one.at)[11:]}  {run:<8}  {one.state:<12}  {around.told(one)}"
