"""One request to a configured address, which is internal only where the configuration says so."""

from urllib.parse import urlsplit

from bot.model.text import escape_to_one_line
from connectors import https
from connectors.https import FindProblem, Resolve, resolve_name
from connectors.public_addresses import Address, is_public

_TOTAL_SECONDS = 20.0
GONE = 410


class DeliveryError(Exception):
    """The request was not delivered.

    for_good: another attempt is useless. status: the HTTP status; 0 without a response.
    """

    def __init__(self, message: str, *, for_good: bool = False, status: int = 0) -> None:
        super().__init__(message)
        self.for_good, self.status = for_good, status


def build_address_rule(url: str, *, private: bool) -> FindProblem:
    """Return what finds the problem of an address of this server."""

    def find_problem(address: Address) -> str:
        if not private:
            return "" if is_public(address) else "is not public: set private: true to allow it"
        is_allowed = address.is_loopback or urlsplit(url).scheme == "https"
        return "" if is_allowed else "is not this machine: use https"

    return find_problem


def request(  # noqa: PLR0913 - what a request consists of
    method: str,
    url: str,
    body: bytes,
    headers: dict[str, str],
    *,
    private: bool,
    resolve: Resolve = resolve_name,
    seconds: float = _TOTAL_SECONDS,
    max_bytes: int,
) -> bytes:
    """Send a request, require a 2xx status, and return the body of the response.

    Raises DeliveryError.

    Args:
        headers: Their Content-Type replaces JSON's.
        private: Whether addresses of private networks and of this machine are allowed.
        seconds: Limit until the response is read, and limit of the name lookup.
        max_bytes: The longest body to accept; 0 to read none.
    """
    try:
        response = https.send_to_checked_address(
            https.Request(method, url, {"Content-Type": "application/json", **headers}, body),
            https.Limits(seconds, max_bytes),
            find_problem=build_address_rule(url, private=private),
            trust=https.trust_authority(),
            resolve=resolve,
        )
    except https.HttpsError as error:
        raise DeliveryError(escape_to_one_line(str(error))) from None
    status = response.status
    if not 200 <= status < 300:
        raise DeliveryError(f"it returned status {status}", for_good=status == GONE, status=status)
    if max_bytes and response.encoding != "identity":
        raise DeliveryError(f"it compressed its response unrequested ({response.encoding})")
    return response.body
