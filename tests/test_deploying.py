"""The deployment files of README and docs fit this version, and are locked down."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from ruamel.yaml import YAML

from bot.__main__ import main
from bot.settings import Settings

ROOT = Path(__file__).parents[1]
COMPOSE: dict[str, Any] = YAML(typ="safe", pure=True).load(ROOT / "compose.yaml")
CLUSTER: list[dict[str, Any]] = list(
    YAML(typ="safe", pure=True).load_all(ROOT / "docs" / "kubernetes.yaml")
)
DOCKERFILE = (ROOT / "Dockerfile").read_text()
OURS = {name: one for name, one in COMPOSE["services"].items() if name != "postgres"}
PODS = {
    one["metadata"]["name"]: one["spec"]["template"]["spec"]
    for one in CLUSTER
    if "template" in one["spec"]
}
# A service that must end in 30 seconds is given a little more.
DRAIN_SECONDS = 30


def _commands() -> Iterator[list[str]]:
    for service in OURS.values():
        yield service["command"]
    for pod in PODS.values():
        yield pod["containers"][0]["args"]
        probe = pod["containers"][0].get("livenessProbe", {}).get("exec")
        if probe:
            yield probe["command"][1:]


def _settings() -> Iterator[str]:
    for service in OURS.values():
        yield from service["environment"]
    for pod in PODS.values():
        yield from (each["name"] for each in pod["containers"][0]["env"])


@pytest.mark.parametrize("words", list(_commands()), ids=" ".join)
def test_deployment_files_use_existing_commands(words: list[str]):
    with click.Context(main) as context:
        name, command, rest = main.resolve_command(context, words)
        while isinstance(command, click.Group):
            name, command, rest = command.resolve_command(context, rest)
        assert command is not None
        command.make_context(name, rest)


def test_deployment_files_use_existing_settings():
    known = {f"KEYTURN_{name.upper()}" for name in Settings.model_fields} | {"PGPASSWORD"}
    assert set(_settings()) - known == set()


def test_every_container_is_read_only_and_without_capabilities():
    for name, service in OURS.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"], name
        assert service["pids_limit"], name
    for name, pod in PODS.items():
        assert pod["securityContext"]["runAsNonRoot"], name
        assert str(pod["securityContext"]["runAsUser"]) in DOCKERFILE, name
        for container in (*pod["containers"], *pod["initContainers"]):
            assert container["securityContext"]["readOnlyRootFilesystem"], name
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name


def test_every_container_has_time_to_drain_before_it_is_killed():
    for service in OURS.values():
        assert int(service["stop_grace_period"].removesuffix("s")) > DRAIN_SECONDS
    for name in ("web", "worker-ams"):
        assert PODS[name]["terminationGracePeriodSeconds"] > DRAIN_SECONDS


def test_only_workers_mount_the_ssh_keys_of_hosts():
    for name, service in OURS.items():
        has = any(str(volume).startswith("./ssh") for volume in service["volumes"])
        assert has == name.startswith("worker"), name
    for name, pod in PODS.items():
        assert ("keyturn-ssh-ams" in str(pod)) == name.startswith("worker"), name


def test_only_the_upgrade_job_uses_the_database_owner():
    for name, service in OURS.items():
        assert ("owner@" in str(service["environment"])) == (name == "upgrade"), name
    for name, pod in PODS.items():
        assert ("owner@" in str(pod)) == (name == "upgrade"), name


def test_compose_file_contains_no_password():
    for line in (ROOT / "compose.yaml").read_text().splitlines():
        if match := re.match(r"\s+(\w*(?:PASSWORD|TOKEN)\w*): (.*)", line):
            assert match[2].startswith("${"), line


def test_every_deployment_has_two_replicas_and_a_disruption_budget():
    budgets = {one["metadata"]["name"] for one in CLUSTER if one["kind"] == "PodDisruptionBudget"}
    deployed = {one["metadata"]["name"] for one in CLUSTER if one["kind"] == "Deployment"}
    assert budgets == deployed
    assert all(one["spec"]["replicas"] >= 2 for one in CLUSTER if one["kind"] == "Deployment")


def test_deployment_files_use_the_image_of_this_version():
    images = {service["image"] for service in OURS.values()}
    assert images == {"${KEYTURN_IMAGE:-keyturn:0.2.0}"}
    images = {"keyturn:0.2.0"}
    images |= {
        each["image"]
        for pod in PODS.values()
        for each in (*pod["containers"], *pod["initContainers"])
    }
    assert images == {"keyturn:0.2.0"}


def test_every_base_image_is_pinned_by_digest():
    arguments = dict(re.findall(r"(?m)^ARG (\w+)=(\S+)$", DOCKERFILE))
    bases = re.findall(r"(?m)^FROM \$\{(\w+)\}", DOCKERFILE)
    assert len(bases) == len(re.findall(r"(?m)^FROM ", DOCKERFILE)) == 3
    default = COMPOSE["services"]["postgres"]["image"].removeprefix("${POSTGRES_IMAGE:-")
    for image in (*(arguments[name] for name in bases), default.removesuffix("}")):
        assert re.fullmatch(r"[a-z]+:[\w.-]+@sha256:[0-9a-f]{64}", image), image
