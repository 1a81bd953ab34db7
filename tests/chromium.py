"""Debian's Chromium without a window, which takes half the processor time of the whole browser."""

EXECUTABLE = "/usr/bin/chromium-headless-shell"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
