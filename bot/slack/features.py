"""What features add to chat."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.slack.run_notices import BuildNotice


@dataclass(frozen=True)
class ChatFeatures:
    """The parts of all features."""

    notices: Sequence[BuildNotice] = ()


NO_FEATURES = ChatFeatures()
