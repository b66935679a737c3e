# Everything sets itself up in .venv; repeated calls cost nothing until pyproject.toml or constraints.txt change.
#
#   make demo       a meta-learning agent adapts to tasks that it never saw (set-up 1 to 2 minutes, training 2 to 4)
#   make test       all tests but the soak tests
#   make lint       formatting, lint, types, layers, the shape of the source
#   make test-slow  the soak tests
#   make test-newest  the tests of our MuJoCo environments, with the newest MuJoCo
#   make bench      every benchmark with small numbers
#
# PYTHON  another interpreter (3.11 or newer):        make test PYTHON=python3.12
# TORCH   another torch build (any pip arguments):    make demo TORCH="torch==2.13.0+cu130"
# PYTEST  more arguments for pytest:                  make test PYTEST="-x -k engine"

PYTHON ?= python3
TORCH ?= torch==2.13.0
PYTEST ?=

BIN := .venv/bin
NEWEST := $(wildcard tests/unit/test_envs_mujoco_*.py) tests/reference/test_envs_cheetah.py
SPEC := pyproject.toml constraints.txt

.PHONY: setup setup-dev demo test test-slow test-newest lint generate format bench-setup bench clean

setup: .venv/.setup
setup-dev: .venv/.setup-dev

# $(1) environment. The torch build is the caller's choice, so the constraints that are used do not hold torch itself.
define new_env
	test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	$(1)/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and "metaroll needs Python >= 3.11: make PYTHON=python3.11")'
	grep -v '^torch==' constraints.txt > $(1)/constraints.txt
	$(1)/bin/pip install --quiet -c $(1)/constraints.txt $(TORCH)
endef

.venv/.setup: $(SPEC)
	$(call new_env,.venv)
	$(BIN)/pip install --quiet -c .venv/constraints.txt -e '.[fast]'
	@touch $@

.venv/.setup-dev: .venv/.setup
	$(BIN)/pip install --quiet -c .venv/constraints.txt -e '.[all,dev]'
	@touch $@

demo: .venv/.setup
	$(BIN)/metaroll demo

# One thread for each of two processes. Bytecode is kept, also where the environment says no: tests and what they start
# would compile all of the source again and again.
QUICKLY := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

test: .venv/.setup-dev
	$(QUICKLY) $(BIN)/pytest -q -n 2 --dist worksteal -m "not slow" $(PYTEST)

test-slow: .venv/.setup-dev
	$(BIN)/pytest -q -m slow $(PYTEST)

# A second environment that holds the newest mujoco and what that needs, and takes all else from .venv.
test-newest: .venv/.setup-dev
	test -x .venv-newest/bin/python || $(BIN)/python -m venv .venv-newest
	grep -v -e '^torch==' -e '^mujoco' constraints.txt > .venv-newest/constraints.txt
	.venv-newest/bin/pip install --quiet --upgrade -c .venv-newest/constraints.txt mujoco
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > "$$(.venv-newest/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rest.pth"
	.venv-newest/bin/python -c 'import mujoco; print("mujoco", mujoco.__version__)'
	$(QUICKLY) .venv-newest/bin/python -m pytest -q $(NEWEST) $(PYTEST)

lint: .venv/.setup-dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python tools/architecture.py --check
	$(BIN)/python tools/stubs.py --check
	$(BIN)/python tools/constructors.py --check
	$(BIN)/python tools/options_page.py --check

# What is written from configs and tables: docs/options.md, stubs for editors, documented constructors.
generate: .venv/.setup-dev
	$(BIN)/python tools/stubs.py --write
	$(BIN)/python tools/constructors.py --write
	$(BIN)/python tools/options_page.py --write

format: .venv/.setup-dev
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# The libraries that we compare with pin other versions of NumPy and the like, so they get an environment of their own.
# One that cannot be installed here is left out: the benchmarks report it as missing.
.venv-bench/.setup: $(SPEC) benchmarks/requirements.txt
	$(call new_env,.venv-bench)
	.venv-bench/bin/pip install --quiet -c .venv-bench/constraints.txt -e '.[all]'
	@grep -v '^#' benchmarks/requirements.txt | while read -r peer; do \
	  .venv-bench/bin/pip install --quiet -c .venv-bench/constraints.txt "$$peer" </dev/null \
	  || echo "not installed, benchmarks leave it out: $$peer"; done
	@touch $@

bench-setup: .venv-bench/.setup

bench: .venv-bench/.setup
	@set -e; for script in benchmarks/[a-z]*.py; do \
	  echo "== $$script"; .venv-bench/bin/python "$$script" --quick; done

clean:
	rm -rf .venv .venv-bench .venv-newest build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
