"""Headless Chromium of Debian, which takes half the CPU time of the whole browser."""

from pathlib import Path

EXECUTABLE = "/usr/bin/chromium-headless-shell"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
# Pictures of what a browser showed, for people to look at.
ARTEFACTS = Path(__file__).with_name("artefacts")
