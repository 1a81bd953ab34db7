"""Messages of alerts as Slack delivers them, by the program that wrote them.

Each is what the program's own template makes of an alert, with the names of hosts and services put
in. Slack returns the colour `danger` as `a30200`, and links as <address|label>.
"""

from typing import Any

# template/default.tmpl of prometheus/alertmanager at 00c8474ab86c: slack.default.title, .fallback.
ALERTMANAGER: dict[str, Any] = {
    "text": "",
    "attachments": [
        {
            "color": "a30200",
            "fallback": "[FIRING:1] ToyShow (lb1:9100 node critical) | "
            "<http://alertmanager.example.com:9093/#/alerts>",
            "title": "[FIRING:1] ToyShow (lb1:9100 node critical)",
            "title_link": "http://alertmanager.example.com:9093/#/alerts",
        }
    ],
}
ALERTMANAGER_RESOLVED: dict[str, Any] = {
    "text": "",
    "attachments": [
        {
            "color": "2eb886",
            "fallback": "[RESOLVED] ToyShow (lb1:9100 node critical)",
            "title": "[RESOLVED] ToyShow (lb1:9100 node critical)",
        }
    ],
}

# receivers/slack/v1/slack_test.go of grafana/alerting at 18302ca04eeb; labels of node_exporter.
GRAFANA: dict[str, Any] = {
    "text": "",
    "attachments": [
        {
            "color": "d63232",
            "fallback": "[FIRING:1] Unit failed (web1.example.com:9100 node nginx.service)",
            "title": "[FIRING:1] Unit failed (web1.example.com:9100 node nginx.service)",
            "text": "**Firing**\n\nValue: A=1\nLabels:\n - alertname = HostSystemdServiceCrashed\n"
            " - instance = web1.example.com:9100\n - name = nginx.service\n"
            "Annotations:\n - summary = A unit failed\n"
            "Source: <http://lb2:3000/alerting/grafana/a/view?orgId=1>\n"
            "Silence: <http://lb2:3000/alerting/silence/new?alertmanager=grafana>\n",
            "footer": "Grafana v11.0.0",
        }
    ],
}

# slack-notifications-command.conf of nisabek/icinga2-slack-notifications at 3a27679591ea.
ICINGA: dict[str, Any] = {
    "text": ":fire: PROBLEM: Service <https://icinga.example.com/monitoring/service/show?host=web1"
    "&amp;service=nginx|nginx> transitioned from state OK to state CRITICAL on host "
    "<https://icinga.example.com/monitoring/host/show?host=web1|web1>. Plugin output: "
    "```connect to address 127.0.0.1 and port 80: Connection refused```"
}
# slack-service-notification.sh of jjethwa/icinga2-slack-notification at 0eafde44cb8e.
ICINGA_LINE: dict[str, Any] = {
    "text": ":bomb: HOST: <http://icinga.example.com/icingaweb2/monitoring/host/services?host=web1"
    "|web1>   SERVICE: <http://icinga.example.com/icingaweb2/monitoring/service/show?host=web1"
    "&amp;service=nginx|nginx>  STATE: CRITICAL"
}
# slack-host-notification.sh of the same.
ICINGA_HOST: dict[str, Any] = {
    "text": "",
    "attachments": [
        {
            "color": "a30200",
            "fallback": "DOWN: web1",
            "fields": [
                {"title": "Info", "value": "CRITICAL - 10.0.0.9: rta nan", "short": False},
                {
                    "title": "Host",
                    "value": "<http://icinga.example.com/monitoring/host/services?host=web1|web1>",
                    "short": True,
                },
                {"title": "State", "value": "DOWN", "short": True},
            ],
        }
    ],
}
ICINGA_RECOVERY: dict[str, Any] = {
    "text": ":ok: RECOVERY: Service <https://icinga.example.com/x|nginx> transitioned from state "
    "CRITICAL to state OK on host <https://icinga.example.com/y|web1>. Plugin output: ```up```"
}

# notification_slack.sh of RunlevelConsulting/Nagios-Slack-Notifications at 225009676e39.
NAGIOS: dict[str, Any] = {
    "text": ":no_entry: *[PROBLEM]* *<https://nagios.example.com/nagios/#cgi-bin/status.cgi?host=web1"
    "|web1>* service <https://nagios.example.com/nagios/#cgi-bin/extinfo.cgi?type=2&amp;host=web1"
    "|nginx> is *CRITICAL*\n_connection refused_"
}
# notify-slack of asciiphil/nagios-notify-slack at 00717fc7c6b5.
NAGIOS_TITLE: dict[str, Any] = {
    "text": "PROBLEM :scream:",
    "attachments": [
        {
            "color": "FF0000",
            "title": "web1 / nginx is CRITICAL",
            "text": "connection refused",
            "fallback": "web1 / nginx is CRITICAL\nconnection refused",
        }
    ],
}
NAGIOS_ACKNOWLEDGED: dict[str, Any] = {
    "text": "ACKNOWLEDGEMENT :wrench:",
    "attachments": [
        {
            "color": "1240AB",
            "title": "web1 / nginx is CRITICAL",
            "text": "connection refused",
            "fields": [{"title": "Handled By", "value": "olga", "short": False}],
        }
    ],
}

# Pingdom's text alert, as recorded in 2015-03 in the tests of a receiver of its webhooks.
PINGDOM: dict[str, Any] = {
    "text": "PingdomAlert DOWN: shop (web1.example.com) is DOWN "
    "since 2015-03-10 16:58:19 GMT +0000"
}
PINGDOM_UP: dict[str, Any] = {
    "text": "PingdomAlert UP: shop (web1.example.com) is UP since 2015-03-10 16:58:19 GMT +0000"
}
# A relay of Pingdom's webhooks writes blocks, with the address.
PINGDOM_BLOCKS: dict[str, Any] = {
    "text": "",
    "blocks": [
        {"type": "section", "text": {"type": "mrkdwn", "text": "*shop* is *DOWN*."}},
        {
            "type": "section",
            "text": {"type": "mrkdwn", "text": "URL: <https://web1.example.com/shop>"},
        },
    ],
    "attachments": [{"color": "a30200", "fallback": "shop is DOWN"}],
}
