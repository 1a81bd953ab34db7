"""Enrolled hosts: how much later a step begins than on other hosts, and what it costs there."""

import resource
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import time_ns

from connectors.run_signed import frame_input
from tests.bench.measurements import Part, set_maximum, table
from tests.guarantee.signed_host import SignedHost
from tests.playground.enrolled_service import (
    HOST,
    EnrolledService,
    TouchFile,
    create_keys,
    open_enrolled_host,
    open_enrolled_service,
)
from tests.playground.two_logins import CHANGER, TwoLogins

_WARM_UP = 2


class _PlainHost(TwoLogins):
    """A host that checks no signatures, and lets its login create files as root."""

    def _format_install_program(self) -> str:
        rule = f"{CHANGER} ALL=(root) NOPASSWD: /usr/bin/touch"
        return f"{super()._format_install_program()}\necho '{rule}' >/etc/sudoers.d/touch\n"


def measure(rounds: int) -> Part:
    """Change both kinds of hosts in turn."""
    enrolled, plain = _measure_starts(rounds)
    figures = [
        set_maximum(
            100,
            "from an approval to the first command, more than without signatures, median",
            median(a - b for a, b in zip(enrolled, plain, strict=True)),
            "ms",
        ),
        set_maximum(
            50,
            "one step with two signatures, of the processor of its host, median",
            median(_measure_steps(rounds)),
            "ms",
        ),
    ]
    return Part(table(figures), figures)


def _measure_starts(rounds: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds from approvals to commands, on an enrolled host and on another."""
    took: tuple[list[float], list[float]] = ([], [])
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kt-")))
        place.chmod(0o755)  # the login reads what was created
        keys = create_keys(place)
        host = stack.enter_context(open_enrolled_host(keys))
        other = stack.enter_context(
            _PlainHost(tags=("nginx",), settings=host.host().settings, name=HOST)
        )
        services = [
            stack.enter_context(
                open_enrolled_service(place / name, known, keys, is_enrolled=is_enrolled)
            )
            for name, known, is_enrolled in (("one", host, True), ("two", other, False))
        ]
        for number in range(_WARM_UP + rounds):
            order = (0, 1) if number % 2 else (1, 0)
            for which in order:
                milliseconds = _start(services[which], place / f"{which}-{number}")
                took[which].extend([milliseconds] * (number >= _WARM_UP))
    return took


def _start(service: EnrolledService, file: Path) -> float:
    """Have a host create a file; return how long after the approval it did, in milliseconds."""
    run = service.harness.request(TouchFile.model_validate({"host": HOST, "file": str(file)}))
    if run.requirements.requires_signed_request:
        service.sign_request(run)
    signature = service.sign(run, "olga")
    approved_at = time_ns()
    service.service.approve_run(run.id, person="olga", digest=run.digest, signature=signature)
    ended = service.wait(run)
    assert file.exists(), ended.summary
    return (file.stat().st_mtime_ns - approved_at) / 1e6


def _measure_steps(rounds: int) -> list[float]:
    """Return the milliseconds of the processor that the program of a host takes for a step."""
    with tempfile.TemporaryDirectory() as place:
        host = SignedHost(Path(place))
        took: list[float] = []
        for _ in range(_WARM_UP + rounds):
            section = host.make_section()
            document = host.make_document(section)
            sent = frame_input("do", 1, document, section, host.sign(document)).encode()
            before = _read_processor_time()
            assert host.send(sent).status == 0
            took.append((_read_processor_time() - before) * 1000)
    return took[_WARM_UP:]


def _read_processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
