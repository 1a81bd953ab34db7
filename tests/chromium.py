"""Headless Chromium of Debian, which takes half the CPU time of the whole browser."""

EXECUTABLE = "/usr/bin/chromium-headless-shell"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
