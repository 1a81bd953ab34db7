# pyright: basic
# It runs where asyncssh is installed, which is not here.
"""asyncssh: USER KEYFILE LINE HOST:PORT…"""

import asyncio
import json
import resource
import sys
import time
from statistics import median

import asyncssh  # pyright: ignore[reportMissingImports] - it is in the bench's own environment

USER, KEY, LINE, *PLACES = sys.argv[1:]


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def opened(place: str) -> asyncssh.SSHClientConnection:
    address, port = place.split(":")
    connection = await asyncssh.connect(
        address, int(port), username=USER, client_keys=[KEY], known_hosts=None, config=None
    )
    await connection.run(LINE, check=True)
    return connection


async def main() -> None:
    began = time.perf_counter()
    connections = await asyncio.gather(*map(opened, PLACES))
    cold = time.perf_counter() - began
    warm, before = [], cpu()
    for _ in range(3):
        began = time.perf_counter()
        await asyncio.gather(*(one.run(LINE, check=True) for one in connections))
        warm.append(time.perf_counter() - began)
    used = (cpu() - before) / len(PLACES) / 3
    one = []
    for _ in range(10):
        began = time.perf_counter()
        await connections[0].run(LINE, check=True)
        one.append(time.perf_counter() - began)
    print(json.dumps({"cold": cold, "warm": median(warm), "cpu": used, "one": one}))
    for connection in connections:
        connection.close()


asyncio.run(main())
