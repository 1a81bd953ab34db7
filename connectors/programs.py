"""Which programs a host has, for runbooks that read what is there. No I/O."""

from connectors.command import SUDO_PATH, Query, Shell


def query_installed(*names: str) -> Query[frozenset[str]]:
    """Query which of these programs are installed where root finds them."""
    script = (
        f'PATH={SUDO_PATH}; for each; do if command -v -- "$each" >/dev/null; then '
        'echo "$each"; fi; done'
    )
    return Query(
        Shell(("sh", "-c", script, "keyturn", *names)),
        lambda answer: frozenset(answer.splitlines()),
    )
