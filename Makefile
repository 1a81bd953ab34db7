# Everything a developer needs; "make" alone lists the targets. Safe with -j, and cheap to repeat:
# each prerequisite has a stamp and is only made again when its sources have changed.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
ifndef VERBOSE
.SILENT:
endif

# The first Python that is new enough, and can make .venv if there is one that can. It is only searched
# for while .venv does not exist. Debian's comes before others of the same version: those that pyenv
# builds take a tenth more time for the tests.
PYTHON ?= $(shell for needed in ensurepip,venv,sys sys; do \
	for python in /usr/bin/python3.11 python3.11 python3 python3.12 python3.13; do \
		$$python -c "import $$needed; sys.exit(sys.version_info < (3, 11))" 2>/dev/null && \
		echo $$python && exit; done; done)
# Further arguments for pytest.
ARGS ?=

# Keep compiled files, above all the tests' assertions: otherwise each process compiles them again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check --no-input --quiet
VENDOR := bot/web/static/vendor
SCHEMAS := tests/bot/slack/schemas/generated.json

# Package = a program or file that shows that it is installed. The tests and the demo start these
# programs, or need them to imitate a host.
SYSTEM_PACKAGES := \
	apache2=apache2 \
	busybox=busybox \
	ca-certificates=/etc/ssl/certs/ca-certificates.crt \
	caddy=caddy \
	chromium-headless-shell=chromium-headless-shell \
	exim4-daemon-light=exim4 \
	faketime=faketime \
	frr=/usr/lib/frr/vrrpd \
	haproxy=haproxy \
	iproute2=ip \
	ipset=ipset \
	iptables=iptables \
	iputils-ping=ping \
	ipmitool=ipmitool \
	jq=jq \
	nginx-light=nginx \
	openipmi=ipmi_sim \
	openssh-client=ssh-keygen \
	openssh-server=sshd \
	openssl=openssl \
	postgresql=pg_virtualenv \
	procps=pgrep \
	shellcheck=shellcheck \
	snmpd=/usr/sbin/snmpd \
	socat=socat \
	strace=strace \
	sudo=sudo \
	sysstat=iostat \
	systemd=/lib/systemd/systemd \
	zfs-fuse=zfs-fuse

# $(call quietly,name,command): one line if the command succeeds, its whole output if not.
define quietly
output=$$($(2) 2>&1) || { printf '%s\n' "$$output" >&2; echo "$(1): failed, see above" >&2; exit 1; }; \
	if [ -t 1 ]; then printf '\033[32m✓\033[0m %s\n' "$(1)"; else echo "ok  $(1)"; fi
endef

.PHONY: help
help: ## List the targets
	if [ -t 1 ]; then on=$$'\033[36m' off=$$'\033[0m'; else on= off=; fi; \
	echo "make …"; \
	sed -nE 's/^([a-z]+):[^#]*## (.*)$$/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | \
	while IFS=$$'\t' read -r target does; do \
		printf '  %s%-8s%s %s\n' "$$on" "$$target" "$$off" "$$does"; done

# --- Prerequisites ----------------------------------------------------------------------------------

.PHONY: setup
setup: .venv/.project ## Create .venv with the packages of requirements/dev.txt, and `keyturn` in it

$(BIN)/pip:
	python="$(PYTHON)"; \
	[ -n "$$python" ] || { echo "Keyturn needs Python 3.11 or newer: install it, or name it: make PYTHON=…" >&2; exit 1; }; \
	"$$python" -c 'import ensurepip, venv' 2>/dev/null || .ci/system python3-venv=-; \
	"$$python" -m venv .venv

# uv takes a fifth of pip's time, but does not read pip's settings: where it cannot reach the
# packages, for example behind a mirror that stands there only, pip installs them.
.venv/.requirements: requirements/install.txt requirements/dev.txt | $(BIN)/pip
	echo "installing the Python packages into .venv"
	$(PIP) install --require-hashes -r requirements/install.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --system-certs --compile-bytecode \
		--require-hashes -r requirements/dev.txt 2>/dev/null || \
		$(PIP) install --require-hashes -r requirements/dev.txt
	touch $@

.venv/.project: pyproject.toml .venv/.requirements
	$(PIP) install --no-deps --no-build-isolation --editable .
	touch $@

.PHONY: system
system: ## Install the missing system packages that tests and demo use (as root)
	.ci/system $(SYSTEM_PACKAGES)

.PHONY: assets
assets: $(VENDOR)/.complete ## Download the web pages' stylesheet and scripts

# If the machine has no npm, the one in .venv is used.
$(VENDOR)/.complete: package.json package-lock.json .ci/assets .ci/npm | .venv/.requirements
	echo "fetching the web pages' stylesheet and scripts"
	.ci/assets
	touch $@

.PHONY: schemas
schemas: $(SCHEMAS) ## Generate schemas from Slack's own types; tests validate every message with them

$(SCHEMAS): $(addprefix $(dir $(SCHEMAS)),generate.cjs payloads.ts tsconfig.json) $(VENDOR)/.complete
	echo "making schemas of Slack's types"
	.ci/npm run --silent schemas -- $(CURDIR)/$@

# What the Debian package has besides the wheel.
.venv/.packages: requirements/run.txt .ci/packages | .venv/.requirements
	echo "fetching the packages of the service"
	.ci/packages .venv/packages
	touch $@

.PHONY: package
package: setup assets .venv/.packages ## Build wheel, Debian package and bill of materials in dist; two builds of a commit are the same bytes
	.ci/system dpkg=dpkg-deb
	echo "building the wheel, the bill of materials and the Debian package"
	mkdir -p dist
	rm -f dist/*
	$(BIN)/python -m hatchling build --target wheel --directory dist >/dev/null
	$(BIN)/python .ci/bill dist/keyturn.cdx.json
	.ci/deb dist/*.whl .venv/packages dist/keyturn.cdx.json dist >/dev/null
	cd dist && sha256sum *

# --- Demo, tests, benchmarks ------------------------------------------------------------------------

.PHONY: demo
demo: setup system assets ## Start hosts, chat and web on this machine; STAY=0 ends after the story
	exec $(BIN)/python -m tests.playground.demo

# Chat shows emoji, for which Debian has a font.
PICTURE_PACKAGES := fonts-noto-color-emoji=/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf

.PHONY: pictures
pictures: setup system assets ## Make the screenshots in docs/pictures from a running demo
	.ci/system $(PICTURE_PACKAGES)
	exec $(BIN)/python -m tests.playground.pictures

.PHONY: docs
docs: setup ## Write the reference of commands, API and entries of the change log
	exec $(BIN)/python -m tests.docs

# Tests wait for daemons a third of the time, so there are two workers per core. The fixtures of a
# file are made once, and the longest files start first, in the order of tests/conftest.py.
WORKERS := -n $(shell echo $$(( $$(nproc) * 2 )))
TOGETHER := $(WORKERS) --dist loadfile --no-loadscope-reorder

# The workers below start at the same time, and each would compile all tests. They report what
# cannot be compiled.
.venv/.compiled: | setup system assets schemas
	echo "compiling the tests"
	tests=$$(find tests -name 'test_*.py'); \
	xargs -P $$(nproc) -n $$(( $$(wc -w <<<"$$tests") / $$(nproc) + 1 )) \
		$(BIN)/python -m pytest --collect-only <<<"$$tests" >/dev/null 2>&1 || true
	touch $@

# The directory for pictures of what browsers showed; they take a tenth of the time of such tests.
PICTURES ?=

.PHONY: test
test: setup system assets schemas .venv/.compiled ## Run every test on every core; ARGS="-k word" and the like go to pytest
	KEYTURN_PICTURES=$(PICTURES) $(BIN)/python -m pytest $(TOGETHER) $(ARGS)

.PHONY: walk
walk: package ## Install the Debian package in a bare Debian, and walk from there to the first approved change
	.ci/system debootstrap=debootstrap $(SYSTEM_PACKAGES)
	exec $(BIN)/python -m pytest -s tests/bare/walk.py

.PHONY: guarantee
guarantee: setup system ## Try over 300 ways to change an enrolled host without people's signatures; prints a table
	exec $(BIN)/python -m tests.guarantee

.PHONY: conformance
conformance: setup ## Have litewitness (torchwood) and fsck (Tessera) judge a log and each tampering; needs Go
	exec $(BIN)/python -m tests.conformance .venv/go

# The number of event orders for the state machine of a run, of races of three processes to approve,
# start and fire, and of runs that wait in one queue; `make test` tries 20, 34 and 120. A fifth as
# often a process is killed at a random time, on either database; a tenth as often one of several
# under load is, and a host is rebuilt after a random history; a fiftieth as often PostgreSQL
# restarts, and a process gets SIGTERM; a hundredth as often a standby takes over. Whatever the
# number, a process is killed at every system call in turn, every write in turn fails, as on a full
# or broken disk, the answer to each commit of a run in turn is lost, the clock jumps for ten years,
# hosts fall silent or hang up at every byte of a handshake, a change on probation is broken off at
# every step, Ansible's role sets up 300 hosts that one list enrols, features are deleted in copies
# in which the tests of the others run, and all of them in one for the tests of the core, each
# script of a probation is killed after each command in each shell, every way is tried to change an
# enrolled host and every hostile text on every page, the API gets every value of note, and pages of
# runs of every kind, of every state and of nothing yet are rendered light and dark at every width
# and judged by axe, contrast too.
# It takes about 50 minutes on two cores, and prints a summary at the end.
CHAOS ?= 1000

# Most of the campaigns wait as much as they work. One test at a time is handed out, the longest
# first.
.PHONY: chaos
chaos: setup system assets schemas ## Try 1,000 event orders and races, kill -9, restarts, full disks; CHAOS=… sets the number
	KEYTURN_CHAOS=$(CHAOS) $(BIN)/python -m pytest $(WORKERS) --maxschedchunk 1 \
		tests/chaos tests/bot/test_state_machine.py tests/bot/test_replicas.py \
		tests/bot/test_sequences.py tests/connectors/test_silence.py \
		tests/connectors/test_hostile.py tests/acceptance/test_probation_real.py \
		tests/connectors/test_probation_scripts.py tests/connectors/test_sudo.py \
		tests/acceptance/test_rebuild_real.py tests/acceptance/test_*_in_browser.py \
		tests/acceptance/test_accessible_*.py tests/acceptance/test_pages_without_scripts.py \
		tests/bot/web/test_hostile_text.py tests/bot/api/test_schema.py \
		tests/bot/features/host_lists/test_role.py tests/test_features.py tests/guarantee $(ARGS)

# Filling the databases takes long: KEEP=DIR keeps them for the next run (22 GB).
KEEP ?=

.PHONY: bench
bench: setup system assets schemas ## Run the benchmarks; QUICK=1 is short, KEEP=DIR keeps the databases, ARGS="--only log"
	exec $(BIN)/python -m tests.bench $(if $(QUICK),--quick) $(if $(KEEP),--keep $(KEEP)) $(ARGS)

# Third-party scanners have an environment of their own: their packages are not the project's.
SCANNERS := .venv/scan
$(SCANNERS)/.requirements: requirements/scan.txt | .venv/.project
	echo "installing wapiti and sqlmap into $(SCANNERS)"
	$(BIN)/python -m venv $(SCANNERS)
	$(SCANNERS)/bin/pip --disable-pip-version-check --no-input --quiet install --require-hashes -r $<
	touch $@

.PHONY: scan
scan: setup system assets $(SCANNERS)/.requirements ## Scan pages and API with wapiti and sqlmap; ARGS="--only api"
	exec $(BIN)/python -m tests.scan $(SCANNERS)/bin $(ARGS)

CHECKS := check-format check-lint check-types check-imports check-shell check-repository
.PHONY: check $(CHECKS)
check: $(CHECKS) ## Check format, lint, types, import contracts, shell and the rules of the repository
$(CHECKS): setup

check-format:
	$(call quietly,format,$(BIN)/ruff format --check .)

check-lint:
	$(call quietly,lint,$(BIN)/ruff check .)

check-types:
	$(call quietly,types,$(BIN)/basedpyright)

check-imports:
	$(call quietly,import contracts,$(BIN)/lint-imports)

# Hosts run these with whatever `sh` they have; tests/connectors/test_script.py parses them with three.
SHELL_SCRIPTS := $(wildcard connectors/scripts/*.sh)
# These run on the machine of the service, with Debian's `sh`.
PACKAGE_SCRIPTS := $(addprefix deploy/debian/,keyturn postinst prerm postrm)
check-shell:
	.ci/system shellcheck=shellcheck
	$(call quietly,shell,shellcheck --shell=sh --external-sources --source-path=SCRIPTDIR $(SHELL_SCRIPTS) && \
		echo $(SHELL_SCRIPTS) | xargs -n 1 sh -n && shellcheck $(PACKAGE_SCRIPTS))

check-repository:
	$(call quietly,repository,$(BIN)/python -m pytest tests/test_repository.py)

.PHONY: format
format: setup ## Format the code and fix what the linter can fix
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

.PHONY: lock
lock: .venv/.requirements ## Pin the dependencies of pyproject.toml and package.json; UPGRADE=1 takes newer versions
	.ci/lock $(if $(UPGRADE),--upgrade)

.PHONY: clean
clean: ## Remove everything that make created, except data
	rm -rf .venv node_modules $(VENDOR) $(SCHEMAS) dist \
		.pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
