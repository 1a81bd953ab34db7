"""The command `keyturn witness`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.cli.context import NOT_FOUND, NOT_UNDERSTOOD, exit_with_error

if TYPE_CHECKING:
    from bot.features.witness.state import WitnessState


@click.command("witness")
@click.argument("state", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--name", default="", help="Its name, such as witness.example.com/w1; once.")
@click.option(
    "--log",
    "logs",
    multiple=True,
    metavar="KEY",
    help="Cosign the log with this verifier key, which is remembered; repeatable.",
)
@click.option("--forget", metavar="LOG", help="Forget what was seen of a log, and end.")
@click.option("--listen", default="127.0.0.1", show_default=True, help="The address.")
@click.option(
    "--port", default=7380, type=click.IntRange(0, 65535), show_default=True, help="The port."
)
def run_witness(
    *, state: Path, name: str, logs: tuple[str, ...], forget: str | None, listen: str, port: int
) -> None:
    """Cosign change logs on another machine, until interrupted.

    The file STATE holds its key and what it has seen of each log; it cosigns only what continues
    that. It speaks the protocol tlog-witness of C2SP. Prints the line for
    KEYTURN_WITNESSES. It needs neither database nor policy.

    For example: keyturn witness w1.db --name witness.example.com/w1 --log keyturn/5d1f…+9bd2…+AU0…
    """
    from bot.features.witness.state import StateError, WitnessState

    try:
        opened = WitnessState(state, name=name)
        _add_logs(opened, logs)
    except (StateError, ValueError, OSError) as error:
        exit_with_error(str(error), NOT_UNDERSTOOD)
    if forget is not None:
        if not opened.forget_log(forget):
            exit_with_error(f"nothing was seen of a log {forget}", NOT_FOUND)
        click.echo(f"Forgot {forget}: its next checkpoint is cosigned as it is")
        return
    _serve(opened, listen, port)


def _add_logs(opened: "WitnessState", logs: tuple[str, ...]) -> None:
    from bot.model.verifier_keys import parse_verifier_key

    for one in logs:
        opened.add_log(parse_verifier_key(one))


def _serve(opened: "WitnessState", listen: str, port: int) -> None:
    import socket

    import uvicorn

    from bot.features.witness.server import build_application

    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    try:
        bound = socket.create_server((listen, port), family=family)
    except OSError as error:
        exit_with_error(f"cannot listen on {listen} port {port}: {error.strerror}", NOT_FOUND)
    # Accepted connections inherit it. Otherwise an answer waits 40 ms for the one before it.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    port = bound.getsockname()[1]
    host = f"[{listen}]" if ":" in listen else listen
    click.echo(f"KEYTURN_WITNESSES={opened.verifier_key.text} http://{host}:{port}")
    for origin, size in opened.list_logs():
        click.echo(f"Cosigns {origin}, {size} entries seen")
    config = uvicorn.Config(build_application(opened), log_level="warning", access_log=False)
    try:
        uvicorn.Server(config).run(sockets=[bound])
    finally:
        opened.close()
