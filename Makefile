# `make demo` and `make test` do everything; each makes the environment first. `make wheel` is for users.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete
WHICH := -c "import ssl, sys; print(sys.base_prefix, sys.version)"

.PHONY: env demo wheel serve test test-long coverage quick check bench-quick arm-board gpu-wheels clean

env: $(STAMP)

# An environment that another Python made is made anew: venv would leave its executable beside a
# library that it cannot load. torch comes first and by exact version: asked for by another package,
# pip takes its CUDA build.
$(STAMP): pyproject.toml constraints.txt
	test "$$($(BIN)/python $(WHICH) 2>&1)" = "$$($(PYTHON) $(WHICH))" || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=24" "setuptools>=77" wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,check]"
	touch $(STAMP)

demo: env
	$(BIN)/tunefleet tune zoo:squeezenet --minutes 3

# Built by the environment's setuptools. What an earlier build copied is removed: a module that is
# gone would be in the wheel.
wheel: env
	rm -rf build/lib build/bdist.*
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

# A service of the home below `SERVICE_HOME`, with its first token.
HTTP ?= 127.0.0.1:8080
SERVICE_HOME ?= $(HOME)/.tunefleet
serve: env
	$(BIN)/tunefleet serve --http $(HTTP) --home $(SERVICE_HOME)

# Two files of tests at a time: each waits for processes half of its time. Images of Python often
# keep it from writing bytecode; hundreds of processes would each compile the package again.
WHICH_TESTS := -m "not long"
test: export PYTHONDONTWRITEBYTECODE =
test: env
	$(BIN)/python -m pytest $(WHICH_TESTS) --numprocesses 2 --dist loadfile --no-loadscope-reorder

# A quarter of an hour: what those of `test` leave out, whole commands beside each other.
test-long: WHICH_TESTS := -m long
test-long: test

# All tests, which take a quarter longer, against the floors of each room in pyproject.toml.
coverage: WHICH_TESTS := --cov --cov-report=
coverage: test

# Less than a minute: the tests that need neither the compiler nor a framework, which cannot be imported.
quick: env
	$(BIN)/python -m pytest --without-compiler --hypothesis-profile quick

# PLW1514, a preview of ruff: files are read and written in UTF-8, whatever the locale says.
check: env
	$(BIN)/ruff check src tests benchmarks examples checks
	$(BIN)/ruff check --preview --select PLW1514 src tests benchmarks examples checks
	$(BIN)/ruff format --check src tests benchmarks examples checks
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python checks/tvm_names.py src benchmarks
	$(BIN)/python checks/help_texts.py
	$(BIN)/python checks/pages.py

# Half an hour: every benchmark, as small as it goes, to its checks.
bench-quick: env
	$(BIN)/python checks/bench_quick.py

# As root, a quarter of an hour: an aarch64 board, emulated, for benchmarks/arm_board.py.
BOARD ?= build/arm-board
arm-board: env
	PYTHON=$(BIN)/python benchmarks/arm_board.sh make $(BOARD)

# What benchmarks/cuda_search.py needs on a machine with a GPU and no network.
GPU_WHEELS ?= build/gpu-wheels
gpu-wheels: wheel
	PYTHON=$(BIN)/python benchmarks/cuda_wheels.sh $(GPU_WHEELS)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
