# Seriatim. `make` alone lists the targets; nothing needs to be prepared first except Python 3.11 or newer.
#
#   PYTHON=python3.12   the interpreter to make the virtual environment with (default: the first one that fits)
#   VENV=.venv          where the virtual environment lives
#   WORLD=pair          the world that explore searches
#   WORLDS=2000         how many worlds swarm walks
#   MINUTES=10          how long the soaks go on
#   LOGS=10000          how many logs agreement judges
#   WORKERS=4           how many tests run at a time; many of them wait for processes, so more than there are cores
#   ARGS="-k tree"      extra words for pytest, or for the command behind demo, explore, swarm and soak

VENV ?= .venv
PYTHON ?=
ARGS ?=
BIN = $(VENV)/bin
WORLD ?= pair
WORLDS ?= 2000
MINUTES ?= 10
LOGS ?= 10000
WORKERS ?= 4

# These files say "pyproject.toml, as it is now, is installed in the virtual environment".
INSTALLED = $(VENV)/.installed
INSTALLED_DEV = $(VENV)/.installed-dev
# And this one: Spark's classes are kept, so that it starts sooner.
CLASSES = $(VENV)/.classes

# Hundreds of processes run here. Where the user's setting is that Python keeps nothing of what it compiles, each would
# compile everything again, which doubles the processor time. `make clean` removes what is kept.
unexport PYTHONDONTWRITEBYTECODE

PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-long lint types format bench explore swarm long soak soak-peers soak-atoms soak-overlay agreement kills clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(INSTALLED) $(CLASSES) ## A shop at three sites, with and without ordering, through two crashes, audited (a minute)
	@$(BIN)/seriatim demo $(ARGS)

test: lint ## Check everything: format, lint, types, tests. Types are checked while the tests run; either can fail it
	@$(BIN)/python -m mypy >$(VENV)/types.log 2>&1 & types=$$!; \
	trap 'kill $$types 2>/dev/null' INT TERM; \
	echo "$(PYTEST) $(ARGS), and mypy at the same time"; \
	$(PYTEST) $(ARGS); tests=$$?; \
	wait $$types; checked=$$?; \
	echo "mypy:"; cat $(VENV)/types.log; \
	test $$tests = 0 && test $$checked = 0

test-long: $(INSTALLED_DEV) $(CLASSES) ## The tests that are long: many random worlds and logs, most of Spark, all kinds of faults
	$(PYTEST) -m long $(ARGS)

lint: $(INSTALLED_DEV) ## Check format and lint
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .

types: $(INSTALLED_DEV) ## Check types (mypy, strict)
	$(BIN)/python -m mypy

format: $(INSTALLED_DEV) ## Rewrite the code in the project's format
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

bench: $(INSTALLED_DEV) $(CLASSES) ## Run the benchmarks
	@set -e; for file in bench/[a-z]*.py; do name=$$(basename $$file .py); test $$name != archive_kills || continue; echo "== $$name"; $(BIN)/python -m bench.$$name; done

explore: $(INSTALLED) ## Try every interleaving of a small world (WORLD=pair; ARGS=--list lists them)
	$(BIN)/seriatim explore tree --world $(WORLD) $(ARGS)

swarm: $(INSTALLED) ## Try many random worlds (WORLDS=2000)
	$(BIN)/seriatim explore swarm --worlds $(WORLDS) $(ARGS)

soak: $(INSTALLED_DEV) ## Random faults under load, real processes, every promise checked (MINUTES=10)
	@$(BIN)/python -m soak --minutes $(MINUTES) $(ARGS)

soak-peers: $(INSTALLED_DEV) ## 32 peers without a broker: joins, leaves, kills, restarts, judged (MINUTES=10)
	@$(BIN)/python -m soak.peers --minutes $(MINUTES) $(ARGS)

soak-overlay: $(INSTALLED_DEV) ## 9 brokers that filter by content, killed and frozen under load, judged (MINUTES=10)
	@$(BIN)/python -m soak.overlay --minutes $(MINUTES) $(ARGS)

soak-atoms: $(INSTALLED_DEV) ## Sequencing atoms as processes, killed while topics are joined and left, judged (MINUTES=10)
	@$(BIN)/python -m soak.atoms --minutes $(MINUTES) $(ARGS)

long: test-long ## The same as test-long

agreement: $(INSTALLED_DEV) ## Both auditors, and both certificates, on random logs, word for word (LOGS=10000; needs Spark)
	SERIATIM_LOGS=$(LOGS) $(BIN)/python -m pytest tests/pipeline/test_audit_agreement.py tests/pipeline/test_certificate.py -m '' --timeout 3600 $(ARGS)

kills: $(INSTALLED_DEV) ## Kill the archive job ten times under load, compare counts and digests (ARGS=--kills 3)
	@$(BIN)/python -m bench.archive_kills $(ARGS)

clean: ## Remove caches, build output and the virtual environment that make created
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests bench soak -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	@if [ -e "$(VENV)/.made-by-make" ]; then rm -rf "$(VENV)"; fi

$(CLASSES): $(INSTALLED)
	@sh scripts/keep-classes "$(VENV)"

$(INSTALLED): pyproject.toml scripts/install
	@sh scripts/install "$(VENV)" run $(PYTHON)

$(INSTALLED_DEV): pyproject.toml scripts/install
	@sh scripts/install "$(VENV)" dev $(PYTHON)
