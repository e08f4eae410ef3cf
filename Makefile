# Three commands for a fresh machine with Python 3.11+ and make:
#   make demo    a simulated sonar set, examined, ending with the path of a page to open
#   make test    lint, types, import layers, tests
#   make setup   only the environment (.venv)
# And for those who look after what is installed:
#   make setup-locked   the same environment, every file but torch's proved by its hash (requirements-hashed.txt)
#   make lock           write these hashes anew, from constraints.txt and the package index
#   make licences       write docs/reference/licences.md anew
#   make audit          ask the database of known weaknesses about constraints.txt
# Only relative paths are used, so a folder with a space in its name works.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: setup setup-locked demo test check lock licences audit clean

setup: $(READY)

define new_enough
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
  { echo "ftcseg needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
@echo "Preparing .venv (once; a few minutes on a slow line) ..."
@test -x $(BIN)/python || $(PYTHON) -m venv .venv
endef

$(READY): pyproject.toml constraints.txt
	$(new_enough)
	@$(PIP) install --quiet -c constraints.txt -e ".[dev]"
	@touch $(READY)

# Three steps, since pip proves all files of a step or none: torch is of another place for each accelerator, and ftcseg
# is no file at all. Nothing is built but ftcseg, and that from what the first step installed.
setup-locked:
	$(new_enough)
	@$(PIP) install --quiet --require-hashes --no-deps --only-binary :all: -r requirements-hashed.txt
	@$(PIP) install --quiet -c constraints.txt torch
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@$(PIP) check
	@touch $(READY)

demo: $(READY)
	@$(BIN)/python -m ftcseg demo

test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

check: $(READY)
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m codespell_lib src tests docs README.md CONTRIBUTING.md CHANGELOG.md
	$(BIN)/python -m mypy
	$(BIN)/lint-imports 2>/dev/null || $(BIN)/python -c "from importlinter.cli import lint_imports_command as run; run()"

lock: $(READY)
	$(BIN)/python scripts/lock.py

# In an environment of its own: licences are read off what is installed, and nobody needs all extras otherwise.
licences: $(READY)
	@test -x .venv/licences/bin/python || $(BIN)/python -m venv .venv/licences
	@.venv/licences/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  ".[dev,mlflow,onnx,openvino,ray,tensorboard,video,wandb]"
	.venv/licences/bin/python scripts/licences.py --write

audit: $(READY)
	@$(BIN)/python scripts/audit.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache runs
