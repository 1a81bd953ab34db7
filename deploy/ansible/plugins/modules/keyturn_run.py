#!/usr/bin/python
"""Request a run of Keyturn and wait for its approval and its end: a module of Ansible.

It needs Python 3.9 and its standard library. The GitHub action beside it uses the same functions.
"""

import http.client
import json
import re
import secrets
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request

DOCUMENTATION = r"""
module: keyturn_run
short_description: Request a run of Keyturn, and wait for its approval and its end
description:
  - Requests a run over the API of Keyturn, waits until people have approved it and it has ended.
  - The task fails if the run is denied, refused, withdrawn, stopped, expires or fails, if its
    outcome is unknown, if a check finds problems, or if it has not ended in time.
  - Run it once, on the machine of Ansible, with C(delegate_to: localhost) and C(run_once).
  - In check mode it is skipped.
options:
  url:
    description: Address of the service. Default is the variable E(KEYTURN_URL) of the environment.
    type: str
    required: true
  token:
    description: API token of scope C(request). Default is the variable E(KEYTURN_TOKEN).
    type: str
    required: true
  request:
    description: The request as typed in chat, such as C(service restart web1 nginx).
    type: str
    required: true
  reason:
    description: Recorded in the change log.
    type: str
    default: ''
  ticket:
    description: Change ticket, where a rule of the policy requires one.
    type: str
    default: ''
  idempotency_key:
    description:
      - A string of your own, up to 200 visible characters of ASCII. For a day, the same key and
        request are the same run, so a repeated task makes no second one.
      - By default each task is a request of its own, however often the network repeats it.
    type: str
    default: ''
  timeout:
    description: Seconds to wait for the end of the run, which is not withdrawn then.
    type: int
    default: 3600
author: Keyturn
"""

EXAMPLES = r"""
- name: Restart nginx, with an approval
  keyturn_run:
    request: service restart web1 nginx
    reason: "deployment {{ version }}"
    idempotency_key: "deploy-{{ version }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
run: {description: Number of the run., type: int, returned: if requested}
state: {description: 'Its state, such as C(succeeded).', type: str, returned: if requested}
page: {description: Address of its page., type: str, returned: if requested}
"""

_LOCAL_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
_POLL_SECONDS = 2.0
_WAIT_SECONDS = 25
_CALL_SECONDS = 60
# How long a request is repeated: after it, the address is probably wrong.
_REQUEST_SECONDS = 90
_MAX_BYTES = 8 * 1024 * 1024
# It did not reach the service, or the service asks for a repeat.
_REPEATED = frozenset({0, 429, 502, 503, 504})


class KeyturnError(Exception):
    """The run has not succeeded. The message says why; run: what is known of it."""

    def __init__(self, message, run=None):
        super().__init__(message)
        self.run = run or {}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would receive the token."""

    def redirect_request(self, *_args):
        return None


class Service:
    """The API of a service. Raises KeyturnError."""

    def __init__(self, url, token):
        try:
            parts = urllib.parse.urlsplit(url)
            is_address = bool(parts.hostname) and parts.port != 0 and parts.username is None
        except ValueError:
            is_address = False
        if not is_address or parts.scheme not in {"http", "https"}:
            raise KeyturnError("url must be an address such as https://keyturn.example.com")
        is_local = parts.scheme == "http"
        if is_local and parts.hostname not in _LOCAL_HOSTS:
            raise KeyturnError("url must begin with https://, except for this machine")
        if not re.fullmatch("[!-~]+", token):
            raise KeyturnError("token is not an API token: create one with keyturn token new")
        self._base, self._token = url.rstrip("/"), token
        handlers = [
            _NoRedirects(),
            urllib.request.HTTPSHandler(context=ssl.create_default_context()),
            *([urllib.request.ProxyHandler({})] if is_local else []),
        ]
        self._opener = urllib.request.build_opener(*handlers)

    def call(self, method, path, body=None, key=""):
        """Return the status, 0 if the service does not answer, the body, and the headers."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - http or https, see above
            f"{self._base}/api/v1{path}", data=data, headers=headers, method=method
        )
        try:
            with self._opener.open(request, timeout=_CALL_SECONDS) as response:
                return response.status, _parse(response.read(_MAX_BYTES)), response.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _parse(error.read(_MAX_BYTES)), error.headers
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise KeyturnError(f"{self._base} has no valid certificate: {reason}") from None
            return 0, {"detail": f"{self._base} does not answer: {reason}"}, {}


def _parse(data):
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {}


def request_run(service, *, request, reason="", ticket="", key="", timeout, report=print):
    """Request a run, wait for its end, and return it. Raises KeyturnError.

    Args:
        key: Idempotency key; "" for one of this call alone.
        timeout: Seconds until the run has to have ended.
        report: Called with a line for each state.
    """
    if key and not re.fullmatch("[!-~]{1,200}", key):
        raise KeyturnError("the idempotency key must have 1 to 200 visible characters of ASCII")
    deadline = time.monotonic() + timeout
    body = {"request": request, "reason": reason}
    if ticket:
        body["ticket"] = ticket
    run, is_repeated = _create_run(service, body, key or secrets.token_hex(16), deadline)
    if is_repeated:
        report(f"run {run['id']} was requested before, with the same idempotency key")
    shown = ""
    while True:
        if run["label"] != shown:
            shown = run["label"]
            report(f"run {run['id']}: {shown}. {run['page']}")
        if run["ended"] or run["state"] == "unknown":
            return _check_end(run)
        if time.monotonic() >= deadline:
            message = f"run {run['id']} has not ended after {timeout} s: {_describe(run)}"
            raise KeyturnError(f"{message}. It was not withdrawn: {run['page']}", run)
        run = _read_run(service, run, deadline)


def _create_run(service, body, key, deadline):
    """Return the run, and whether an earlier request made it."""
    deadline = min(deadline, time.monotonic() + _REQUEST_SECONDS)
    while True:
        status, answer, headers = service.call("POST", "/runs", body, key)
        in_progress = status == 409 and str(answer.get("type", "")).endswith("key-in-use")
        if status == 303:
            # The first request made a run and was interrupted before its response.
            number = re.search(r"/api/v1/runs/([0-9]+)$", headers.get("Location", ""))
            if number is not None:
                status, answer, _ = service.call("GET", f"/runs/{number[1]}")
                answer = {"run": answer} if status == 200 else answer
        if status in {200, 202} and _is_run(answer.get("run")):
            return answer["run"], headers.get("Idempotent-Replayed") == "true"
        _pause_or_raise(status, answer, deadline, may_repeat=in_progress)


def _read_run(service, run, deadline):
    """Return the run as it is when its state may have changed."""
    began = time.monotonic()
    while True:
        wait = max(0, min(_WAIT_SECONDS, int(deadline - time.monotonic())))
        status, answer, _ = service.call("GET", f"/runs/{run['id']}?wait={wait}")
        if status == 200 and _is_run(answer):
            # A run that waits for people is returned at once.
            pause = began + _POLL_SECONDS - time.monotonic()
            time.sleep(max(0, min(pause, deadline - time.monotonic())))
            return answer
        try:
            _pause_or_raise(status, answer, deadline)
        except KeyturnError as error:
            raise KeyturnError(f"{error}. The run may go on: {run['page']}", run) from None


def _pause_or_raise(status, answer, deadline, *, may_repeat=False):
    """Pause before a repeat that can succeed in time; otherwise raise KeyturnError."""
    if (may_repeat or status in _REPEATED) and time.monotonic() + _POLL_SECONDS < deadline:
        time.sleep(_POLL_SECONDS)
        return
    detail = answer.get("detail") or f"status {status}, and nothing of Keyturn: check the url"
    raise KeyturnError(f"the request failed: {detail}")


def _is_run(answer):
    names = {"id", "state", "label", "ended", "summary", "page", "kind", "needs_attention"}
    return isinstance(answer, dict) and names <= set(answer)


def _check_end(run):
    is_good = run["state"] in {"succeeded", "no_changes"} and not run["needs_attention"]
    if not is_good:
        raise KeyturnError(f"run {run['id']}: {_describe(run)}. {run['page']}", run)
    return run


def _describe(run):
    return f"{run['label']}. {run['summary']}".strip(". ")


def describe_result(run):
    """Return what programs may want to know of a run."""
    return {"run": run["id"], "state": run["state"], "page": run["page"]} if run else {}


def main():
    # Here, so that others than Ansible can use this file.
    from ansible.module_utils.basic import AnsibleModule, env_fallback

    module = AnsibleModule(
        argument_spec={
            "url": {"required": True, "fallback": (env_fallback, ["KEYTURN_URL"])},
            "token": {
                "required": True,
                "no_log": True,
                "fallback": (env_fallback, ["KEYTURN_TOKEN"]),
            },
            "request": {"required": True},
            "reason": {"default": ""},
            "ticket": {"default": ""},
            "idempotency_key": {"default": "", "no_log": False},
            "timeout": {"type": "int", "default": 3600},
        }
    )
    options = module.params
    try:
        run = request_run(
            Service(options["url"], options["token"]),
            request=options["request"],
            reason=options["reason"],
            ticket=options["ticket"],
            key=options["idempotency_key"],
            timeout=options["timeout"],
            report=lambda _line: None,
        )
    except KeyturnError as error:
        module.fail_json(msg=str(error), **describe_result(error.run))
    module.exit_json(
        changed=run["kind"] == "change" and run["state"] == "succeeded",
        msg=_describe(run),
        **describe_result(run),
    )


if __name__ == "__main__":
    main()
