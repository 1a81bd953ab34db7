"""Time stamps of the change log by an authority (RFC 3161), for installations without a witness.

`stamper.py` has the newest checkpoint stamped each hour, and `status.py` says whether it is.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.feature import Feature, ServerContext, ServerPart

if TYPE_CHECKING:
    from bot.health import CheckWithPolicy


def _load_checks() -> "Sequence[CheckWithPolicy]":
    from bot.features.time_stamps.status import check_time_stamps

    return [check_time_stamps]


def _build_server_part(context: ServerContext) -> ServerPart:
    settings = context.settings
    if settings.time_stamps_ca is None:
        return ServerPart()
    from bot.features.time_stamps.stamper import TimeStampAuthority, TimeStamper

    authority = TimeStampAuthority(settings.time_stamps, settings.time_stamps_ca)
    return ServerPart(duties=[TimeStamper(context.database, authority).stamp_when_due])


FEATURE = Feature("time_stamps", load_checks=_load_checks, build_server_part=_build_server_part)
