"""The event of a run that subscriptions receive, as the API documents it."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from bot.api import schemas


class RunEventOut(schemas.OutputModel):
    """An event of a run, and the run as it is when the event is sent."""

    type: Literal["run"]
    event: str = Field(examples=["approved", "started", "succeeded"])
    entry: int = Field(
        description="Number of its change log entry. A repeat has the same number, and later "
        "events of the run have a higher one."
    )
    at: datetime
    run: schemas.RunOut


def receive_run_event(body: RunEventOut) -> None:
    """Sent to subscriptions, signed by Standard Webhooks. Return any 2xx to confirm it.

    Otherwise it is sent again for about a day, with a pause that doubles each time, and later
    events of the same run wait. One `entry` may be delivered more than once, with the same
    `webhook-id`.
    """
