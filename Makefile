# Three commands for a fresh machine with Python 3.11+ and make:
#   make demo    a simulated sonar set, examined, ending with the path of a page to open
#   make test    lint, types, import layers, tests
#   make setup   only the environment (.venv)
# Only relative paths are used, so a folder with a space in its name works.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup demo test check clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ftcseg needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@echo "Preparing .venv (once; a few minutes on a slow line) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
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

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache runs
