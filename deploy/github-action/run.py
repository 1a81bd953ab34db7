"""What action.yml runs. It needs Python 3.9 and its standard library."""

import hashlib
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ansible" / "plugins" / "modules"))

from keyturn_run import KeyturnError, Service, describe_result, request_run  # noqa: E402

# What makes a job's run, whichever attempt it is.
_JOB_VARIABLES = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID", "GITHUB_JOB")


def _print_line(text):
    """Print text that is no workflow command: those begin with two colons."""
    print(f"Keyturn: {_to_one_line(text)}", flush=True)  # noqa: T201 - for the log of the job


def _print_error(text):
    """Source: https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts"""
    text = _to_one_line(text).replace("%", "%25")
    print(f"::error title=Keyturn::{text}", flush=True)  # noqa: T201 - for the log of the job


def _to_one_line(text):
    line = "".join(one if one.isprintable() else " " for one in str(text))
    # The older form of workflow commands, which the runner finds anywhere in a line.
    return line.replace("##[", "# #[")


def _write_outputs(run):
    # A line break would begin another output.
    lines = [f"{name}={_to_one_line(value)}" for name, value in run.items()]
    if lines:
        with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


def _build_key(request):
    of_job = [os.environ.get(name, "") for name in _JOB_VARIABLES]
    return "github-" + hashlib.sha256("\n".join([*of_job, request]).encode()).hexdigest()


def main():
    given = {
        name: os.environ.get(f"KEYTURN_{name.upper()}", "").strip()
        for name in ("url", "token", "request", "reason", "ticket", "timeout", "idempotency_key")
    }
    try:
        if not given["timeout"].isdecimal():
            raise KeyturnError("timeout must be a number of seconds")
        run = request_run(
            Service(given["url"], given["token"]),
            request=given["request"],
            reason=given["reason"],
            ticket=given["ticket"],
            key=given["idempotency_key"] or _build_key(given["request"]),
            timeout=int(given["timeout"]),
            report=_print_line,
        )
    except KeyturnError as error:
        _write_outputs(describe_result(error.run))
        _print_error(str(error))
        return 1
    _write_outputs(describe_result(run))
    _print_line(f"run {run['id']}: {run['label']}. {run['summary']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
