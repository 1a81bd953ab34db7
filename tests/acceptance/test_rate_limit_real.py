"""The rate limit check against a real nginx that limits, over a real sshd."""

from pathlib import Path

import pytest

from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from tests.playground.nginx import Nginx
from tests.playground.sshd import Sshd
from tests.runbooks.declared import load_check

pytestmark = pytest.mark.real

CHECK = load_check("ratelimit check").model_validate({"host": "web1"})
_ZONE = "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m;\nlimit_req_status 429;\n"


def test_every_request_refused_by_the_nginx_rate_limit_is_counted(sshd: Sshd):
    # Files, as what is only returned is answered before any limit is asked.
    server = "location /x { limit_req zone=one burst=3 nodelay; alias /usr/share/nginx/; }"
    nginx = Nginx(server)
    (nginx.conf_d / "limits.conf").write_text(_ZONE)
    with nginx:
        statuses = [nginx.get("/x/", "ada") for _ in range(9)]
        settings = {
            "nginx.config": str(nginx.configuration),
            "nginx.error_logs": f"{nginx.directory}/error.log*",
        }
        entry = sshd.inventory_entry(area="web", settings=settings)
        fleet = Fleet(Inventory.model_validate({"hosts": {"web1": entry}}), SshPool(Path("/")))
        report = CHECK.report(CHECK.read(fleet.run_query))
        fleet.close()
    assert statuses.count(429) == 5
    assert report.healthy
    assert "refused 5 requests with 429" in report.summary
