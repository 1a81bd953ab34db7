# Everything a developer needs; "make" alone says what there is. Safe with -j, and cheap to repeat:
# what a target needs is stamped and only done again when what it came from has changed.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
ifndef VERBOSE
.SILENT:
endif

# The first Python that is new enough. It is looked for only while there is no .venv.
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && \
	echo $$python && break; done)
# What else to hand to pytest.
ARGS ?=

# What was compiled once, the tests' assertions above all, is kept: each process would do it anew.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check --no-input --quiet
VENDOR := bot/web/static/vendor
SCHEMAS := tests/bot/slack/schemas/generated.json

# Package = the program or file that shows that it is there. What the tests and the demo start, or
# what they need in order to stand in for a host.
SYSTEM_PACKAGES := \
	apache2=apache2 \
	busybox=busybox \
	ca-certificates=/etc/ssl/certs/ca-certificates.crt \
	chromium=chromium \
	exim4-daemon-light=exim4 \
	faketime=faketime \
	frr=/usr/lib/frr/vrrpd \
	haproxy=haproxy \
	iproute2=ip \
	ipset=ipset \
	iptables=iptables \
	iputils-ping=ping \
	nginx-light=nginx \
	openssh-client=ssh-keygen \
	openssh-server=sshd \
	openssl=openssl \
	postgresql=pg_virtualenv \
	procps=pgrep \
	socat=socat \
	strace=strace \
	sudo=sudo \
	sysstat=iostat \
	systemd=/lib/systemd/systemd \
	zfs-fuse=zfs-fuse

# $(call quietly,what it is,command): one line where all is well, everything that was said where not.
define quietly
said=$$($(2) 2>&1) || { printf '%s\n' "$$said" >&2; echo "$(1): to be mended, see above" >&2; exit 1; }; \
	if [ -t 1 ]; then printf '\033[32m✓\033[0m %s\n' "$(1)"; else echo "ok  $(1)"; fi
endef

.PHONY: help
help: ## Say what there is
	if [ -t 1 ]; then on=$$'\033[36m' off=$$'\033[0m'; else on= off=; fi; \
	echo "make …"; \
	sed -nE 's/^([a-z]+):[^#]*## (.*)$$/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | \
	while IFS=$$'\t' read -r target does; do \
		printf '  %s%-8s%s %s\n' "$$on" "$$target" "$$off" "$$does"; done

# --- What is needed ---------------------------------------------------------------------------------

.PHONY: setup
setup: .venv/.project ## Make .venv with all that requirements/dev.txt locks, and `keyturn` in it

$(BIN)/pip:
	python="$(PYTHON)"; \
	[ -n "$$python" ] || { echo "Keyturn needs Python 3.11 or newer: install it, or name it: make PYTHON=…" >&2; exit 1; }; \
	"$$python" -c 'import ensurepip, venv' 2>/dev/null || .ci/system python3-venv=-; \
	"$$python" -m venv .venv

.venv/.requirements: requirements/dev.txt | $(BIN)/pip
	echo "installing the Python packages into .venv"
	$(PIP) install --require-hashes -r requirements/dev.txt
	touch $@

.venv/.project: pyproject.toml .venv/.requirements
	$(PIP) install --no-deps --no-build-isolation --editable .
	touch $@

.PHONY: system
system: ## Install the system packages that tests and demo use and that are missing (as root)
	.ci/system $(SYSTEM_PACKAGES)

.PHONY: assets
assets: $(VENDOR)/.complete ## Fetch the web pages' stylesheet and scripts

# Where the machine has no npm, .venv has one.
$(VENDOR)/.complete: package.json package-lock.json .ci/assets .ci/npm | .venv/.requirements
	echo "fetching the web pages' stylesheet and scripts"
	.ci/assets
	touch $@

.PHONY: schemas
schemas: $(SCHEMAS) ## Make schemas of Slack's own types, which judge what is said to Slack and by it

$(SCHEMAS): $(addprefix $(dir $(SCHEMAS)),generate.cjs payloads.ts tsconfig.json) $(VENDOR)/.complete
	echo "making schemas of Slack's types"
	.ci/npm run --silent schemas -- $(CURDIR)/$@

# --- What to do -------------------------------------------------------------------------------------

.PHONY: demo
demo: setup system assets ## Start it all on this machine: hosts, chat and web; STAY=… is for the demo
	exec $(BIN)/python -m tests.playground.demo

# Chat shows emoji, for which Debian has a font.
PICTURE_PACKAGES := fonts-noto-color-emoji=/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf

.PHONY: pictures
pictures: setup system assets ## Make the screenshots in docs/pictures from a running demo
	.ci/system $(PICTURE_PACKAGES)
	exec $(BIN)/python -m tests.playground.pictures

# Tests wait for daemons half of the time: there are half as many workers more than cores. What the
# tests of a file share is made once, and the longest files begin first, as tests/conftest.py says.
TOGETHER := -n $(shell echo $$(( $$(nproc) * 3 / 2 ))) --dist loadfile --no-loadscope-reorder

# The processes below begin at the same moment, and each would compile all tests for itself.
# What cannot be compiled is told by them.
.venv/.compiled: | setup system assets schemas
	echo "compiling the tests"
	find tests -name 'test_*.py' | xargs -P $$(nproc) -n 100 \
		$(BIN)/python -m pytest --collect-only >/dev/null 2>&1 || true
	touch $@

.PHONY: test
test: setup system assets schemas .venv/.compiled ## Run every test on every core; ARGS="-k word" and the like go to pytest
	$(BIN)/python -m pytest $(TOGETHER) $(ARGS)

# So many orders of events that the state machine of a run is put through, and so many races of
# three processes to approve, to begin and to fire; `make test` tries 80 and 34. A tenth as often a
# process is killed, on either storage, at any moment and at every system call in turn; `make test`
# does so 24 times. And every write in turn fails, as on a disk that is full or broken. A hundredth
# as often PostgreSQL restarts under several processes, a five-hundredth as often a standby takes its
# place, and the answer to each commit of a run in turn is lost; a fiftieth as often a process is
# asked to end. As many runs wait in one queue, the clock jumps for ten years, hosts fall silent or
# hang up at every byte of a handshake, and pages are seen light and dark at every width. It takes
# some hours on four cores; what it came to is told at the end.
CHAOS ?= 10000

.PHONY: chaos
chaos: setup system assets schemas ## Try 10,000 orders of what may happen to a run, as many races, and kill -9; CHAOS=…
	KEYTURN_CHAOS=$(CHAOS) $(BIN)/python -m pytest -n auto \
		tests/bot/test_state_machine.py tests/bot/test_replicas.py tests/chaos \
		tests/connectors/test_silence.py tests/connectors/test_hostile.py \
		tests/acceptance/test_*_in_browser.py $(ARGS)

# What is filled in takes long: in KEEP it stays for the next run, 22 GB of it.
KEEP ?=

.PHONY: bench
bench: setup system assets schemas ## Measure it; QUICK=1 is short, KEEP=DIR keeps what was filled in, ARGS="--only log"
	exec $(BIN)/python -m tests.bench $(if $(QUICK),--quick) $(if $(KEEP),--keep $(KEEP)) $(ARGS)

# Strangers' tools have an environment of their own: what they need is none of ours.
SCANNERS := .venv/scan
$(SCANNERS)/.requirements: requirements/scan.txt | .venv/.project
	echo "installing wapiti and sqlmap into $(SCANNERS)"
	$(BIN)/python -m venv $(SCANNERS)
	$(SCANNERS)/bin/pip --disable-pip-version-check --no-input --quiet install --require-hashes -r $<
	touch $@

.PHONY: scan
scan: setup system assets $(SCANNERS)/.requirements ## Have wapiti and sqlmap look for holes in pages and API; ARGS="--only api"
	exec $(BIN)/python -m tests.scan $(SCANNERS)/bin $(ARGS)

CHECKS := check-format check-lint check-types check-imports check-repository
.PHONY: check $(CHECKS)
check: $(CHECKS) ## Check format, lint, types, import contracts and the rules of the repository
$(CHECKS): setup

check-format:
	$(call quietly,format,$(BIN)/ruff format --check .)

check-lint:
	$(call quietly,lint,$(BIN)/ruff check .)

check-types:
	$(call quietly,types,$(BIN)/basedpyright)

check-imports:
	$(call quietly,import contracts,$(BIN)/lint-imports)

check-repository:
	$(call quietly,repository,$(BIN)/python -m pytest tests/test_repository.py)

.PHONY: format
format: setup ## Put the code into its format and mend what the linter can mend
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

.PHONY: lock
lock: $(BIN)/pip ## Pin again what pyproject.toml and package.json ask for; UPGRADE=1 takes newer versions
	.ci/lock $(if $(UPGRADE),--upgrade)

.PHONY: clean
clean: ## Take away all that make has made, except data
	rm -rf .venv node_modules $(VENDOR) $(SCHEMAS) dist tests/artefacts \
		.pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
