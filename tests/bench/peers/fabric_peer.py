# pyright: basic
# It runs where fabric is installed, which is not here.
"""fabric, with 32 threads: USER KEYFILE LINE HOST:PORT…"""

import json
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import fabric  # pyright: ignore[reportMissingImports] - it is in the bench's own environment

USER, KEY, LINE, *PLACES = sys.argv[1:]


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(connection: fabric.Connection) -> None:
    connection.run(LINE, hide=True, in_stream=False)


def opened(place: str) -> fabric.Connection:
    address, port = place.split(":")
    how = {"key_filename": KEY, "allow_agent": False, "look_for_keys": False}
    connection = fabric.Connection(address, user=USER, port=int(port), connect_kwargs=how)
    run(connection)
    return connection


def main() -> None:
    with ThreadPoolExecutor(32) as pool:
        began = time.perf_counter()
        connections = list(pool.map(opened, PLACES))
        cold = time.perf_counter() - began
        warm = []
        before = cpu()
        for _ in range(3):
            began = time.perf_counter()
            list(pool.map(run, connections))
            warm.append(time.perf_counter() - began)
        used = (cpu() - before) / len(PLACES) / 3
    print(json.dumps({"cold": cold, "warm": median(warm), "cpu": used, "one": []}))
    for connection in connections:
        connection.close()


main()
