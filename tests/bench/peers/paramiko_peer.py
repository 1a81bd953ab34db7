"""paramiko as it is shipped, with 32 threads: USER KEYFILE LINE HOST:PORT…"""

import json
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import paramiko

USER, KEY, LINE, *PLACES = sys.argv[1:]


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def connected(place: str) -> paramiko.SSHClient:
    address, port = place.split(":")
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())  # noqa: S507 - made on the spot
    key = paramiko.Ed25519Key.from_private_key_file(KEY)
    client.connect(
        address, int(port), USER, pkey=key, allow_agent=False, look_for_keys=False, timeout=30
    )
    return client


def run(client: paramiko.SSHClient) -> None:
    _, out, _ = client.exec_command(LINE)
    out.read()
    assert out.channel.recv_exit_status() == 0


def opened(place: str) -> paramiko.SSHClient:
    client = connected(place)
    run(client)
    return client


def main() -> None:
    with ThreadPoolExecutor(32) as pool:
        began = time.perf_counter()
        clients = list(pool.map(opened, PLACES))
        cold = time.perf_counter() - began
        warm: list[float] = []
        before = cpu()
        for _ in range(3):
            began = time.perf_counter()
            list(pool.map(run, clients))
            warm.append(time.perf_counter() - began)
        used = (cpu() - before) / len(PLACES) / 3
        one: list[float] = []
        for _ in range(10):
            began = time.perf_counter()
            run(clients[0])
            one.append(time.perf_counter() - began)
        list(pool.map(paramiko.SSHClient.close, clients))
    print(json.dumps({"cold": cold, "warm": median(warm), "cpu": used, "one": one}))


main()
