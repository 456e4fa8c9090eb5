# Everything from a fresh clone: `make run` and `make test` each make .venv and install what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?= -n auto

.PHONY: run test test-without-kill nightly mutation lint bench clean help
help:
	@echo "make run    the kill matrix: every cell, a table, killmatrix-report/report.html"
	@echo "make test   the whole suite, matrix included (PYTEST_ARGS='-n auto')"
	@echo "make test-without-kill   the suite with the kill removed: what passes all the same is listed, and fails it"
	@echo "make nightly   mixed stories, depth 2, explorations, coverage, wrong programs"
	@echo "make mutation   small changes to the code that tests or cells must notice (TARGET='killpoints')"
	@echo "make lint   ruff, mypy --strict, import contracts"
	@echo "make bench  every number that README states"

# A stamp a set of extras: the venv is made again when pyproject.toml changes, and never half installed.
$(VENV)/.run: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[products]'
	@touch $@
$(VENV)/.test: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@
$(VENV)/.mutation: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[mutation]'
	@touch $@
$(VENV)/.lint: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[lint]'
	@touch $@

run: $(VENV)/.run
	@mkdir -p killmatrix-report
	$(BIN)/killmatrix run --html killmatrix-report/report.html --json killmatrix-report/result.json

test: $(VENV)/.test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-without-kill: $(VENV)/.test
	$(BIN)/python -m pytest $(PYTEST_ARGS) -p tests.without_kill -q --tb=no --no-header -r N

# what takes minutes: mixed stories, two crashes in a row everywhere, any number of them, coverage, wrong programs
nightly: $(VENV)/.test
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest tests/collector/test_state_machine.py
	$(BIN)/killmatrix run --depth 2 --fault kill
	$(BIN)/killmatrix explore collector.first-commit
	$(BIN)/killmatrix explore collector.takeover-held
	$(BIN)/killmatrix run --coverage
	$(BIN)/killmatrix mutants

mutation: $(VENV)/.mutation
	$(BIN)/python -m tests.mutation $(TARGET)

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict killpoints product
	$(BIN)/mypy harness
	$(BIN)/mypy --implicit-reexport tests benchmarks
	$(BIN)/lint-imports

bench: $(VENV)/.run
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) killmatrix-report build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
