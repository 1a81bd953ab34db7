"""What can be made to go wrong, as it does with the real Slack now and then."""

from dataclasses import dataclass


@dataclass
class Faults:
    """Switches that tests and the page's drawer set; all off at first.

    latency: seconds that each delivery and each call takes longer.
    calls_to_limit: this many calls are answered 429 from now on. retry_after: seconds told then.
    calls_to_fail: this many calls are answered 503 from now on, with a text that is no JSON.
    retries: how often an event is delivered again with `x-slack-retry-num`, though it was taken.
    twice: each command, click and form is delivered twice at once, signed anew.
    """

    latency: float = 0.0
    calls_to_limit: int = 0
    retry_after: int = 1
    calls_to_fail: int = 0
    retries: int = 0
    twice: bool = False

    def limited(self) -> bool:
        """Use up one 429, if there is one left."""
        if self.calls_to_limit <= 0:
            return False
        self.calls_to_limit -= 1
        return True

    def failed(self) -> bool:
        """Use up one failure, if there is one left."""
        if self.calls_to_fail <= 0:
            return False
        self.calls_to_fail -= 1
        return True

    @property
    def any(self) -> bool:
        return bool(self.latency or self.calls_to_limit or self.retries or self.twice)
