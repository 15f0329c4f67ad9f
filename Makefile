# The commands of this repository; `make` alone lists them. Each sets up what it needs first.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -q --disable-pip-version-check
BAZEL := bazel --output_user_root=$(CURDIR)/build/bazel --max_idle_secs=120

SOAK_MINUTES ?= 30
PYTHONS ?= 3.12 3.13
TENSORFLOW ?= 2.20
KERAS ?= 3.12.0 3.15.1
WHEEL_PYTHONS ?= 3.11 3.12 3.13
PROPERTY_SEEDS ?= 200
SIMULATION_SEEDS ?= 10000
CONTAINER_PYTHON ?= 3.11

# Written last of the libraries; they are built again when one of these is newer.
LIBRARIES := tf_byteps/_build_info.py
SOURCES := $(shell find cc third_party -type f ! -name '*_test.cc' ! -path 'cc/fuzz/*') \
  BUILD WORKSPACE .bazelrc setup.py tools/build_environment.py

.PHONY: help build demo test test-cc test-python test-extended test-long test-faults test-elastic test-property test-all test-slurm test-ray test-optional test-rdma test-containers test-pythons test-tensorflow test-keras ptx wheels containers sanitize fuzz valgrind simulation soak nightly bench bench-all docs lint tidy format clean

help:  ## Lists the commands.
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

build: $(LIBRARIES)  ## Creates .venv and builds the libraries into tf_byteps/.

demo: build  ## Trains a Keras model on two workers and one server, and checks the result.
	$(BIN)/python examples/demo.py

test: test-cc test-python  ## Runs the C++ tests and the everyday Python tests.

# The bare programs are only built: benchmarks run them.
test-cc: build/packages.stamp
	$(BAZEL) test //cc/... //benchmarks/native/...

# Three tests at a time: on two cores, one or another mostly waits. A file's tests share processes.
# The order is tests/conftest.py's.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations=25

test-python: build
	$(PYTEST) -m 'not slow and not long and not extended'

test-extended: build  ## Runs what make test shows with other models, settings and numbers of workers.
	$(PYTEST) -m 'extended and not long and not slow'

test-long: build  ## Compares long trainings with one process: losses, parity, kept state, seeds, other projects' programs (40 minutes).
	$(PYTEST) -m 'long and not slow'

test-faults: build  ## Runs the whole fault suite: every role, killed or stopped, in every phase of a job (10 minutes).
	$(BIN)/python -m pytest -m "" tests/faults

test-elastic: build  ## Kills and adds workers of elastic jobs, in all ways (5 minutes); see also python -m tests.elastic.worker_kills.
	$(BIN)/python -m pytest -m "" tests/elastic

test-all: test-cc build  ## Runs the slow tests too, and each row of tests/conformance in processes of its own.
	$(BIN)/python -m pytest -m ''

test-slurm: build  ## Runs srun alone, and bpslaunch in allocations, on a real Slurm of three nodes on this machine (root; needs Debian's packages).
	$(BIN)/python -m pytest -m '' tests/slurm

# Ray brings packages of its own: `make build` goes without.
test-ray: build  ## Runs jobs on a real Ray cluster of three raylets on this machine (installs Ray into .venv; 5 minutes).
	$(PIP) install 'ray[train]==2.60.*'
	$(BIN)/python -m pytest -m '' tests/on_ray

# Orbax brings JAX, 700 MB; tf_keras asks for a TensorFlow of another name.
test-optional: build  ## Tests Orbax's checkpoints, Grain's input and the refusal of Keras 2, for which .venv lacks packages (installs them there; 5 minutes).
	$(PIP) install 'orbax-checkpoint==0.12.*' 'grain==0.2.*'
	$(PIP) install --no-deps 'tf_keras==2.21.*'
	$(BIN)/python -m pytest -m '' tests/strategy/test_orbax.py tests/strategy/test_keras2.py tests/strategy/test_other_inputs.py

test-property: build  ## Compares 200 trainings drawn at random with one process (PROPERTY_SEEDS; make test: 3).
	PROPERTY_SEEDS=$(PROPERTY_SEEDS) $(BIN)/python -m pytest -m 'not slow' tests/property tests/jax/test_property.py

test-rdma: build  ## Tests the RDMA transport in a virtual machine with Soft-RoCE (needs Debian's packages; about 10 minutes, the first time 5 more).
	$(BAZEL) build //cc/van/...
	$(BIN)/python -m pytest -m '' -s tests/rdma

test-containers: build build/wheel_3.11.stamp  ## Trains in containers of podman, and kills some (root; needs Debian's packages; 6 minutes, and 3 for the wheel).
	$(BIN)/python -m pytest -m '' -s tests/containers

test-pythons:  ## Installs the package as README.md says with Python 3.12 and 3.13 (PYTHONS) and runs README's program.
	tools/check_pythons.sh $(PYTHONS)

test-tensorflow:  ## Builds for TensorFlow 2.20 (TENSORFLOW) in an environment of its own and runs the Python tests (25 minutes).
	tools/check_tensorflow.sh $(TENSORFLOW)

test-keras: build  ## Runs the Python tests that use Keras with the oldest and the newest supported version (KERAS; 30 minutes).
	tools/check_keras.sh "$(KERAS)"

ptx: $(VENV)/environment.stamp  ## Compiles the GPU's kernels (cc/gpu/codec_kernels.cu) into a header that is committed.
	$(PIP) install 'nvidia-cuda-nvrtc-cu12==12.9.*'
	$(BIN)/python tools/make_ptx.py

wheels: $(VENV)/environment.stamp  ## Builds wheels for Python 3.11 to 3.13 (WHEEL_PYTHONS) into dist/ and runs README's program with each.
	PATH="$(CURDIR)/$(BIN):$$PATH" tools/build_wheels.sh $(WHEEL_PYTHONS)

containers: build/wheel_$(CONTAINER_PYTHON).stamp  ## Builds images of servers and workers by podman, docker or buildah (EXTRAS=gpu, TAG=1; docs/containers.md).
	tools/build_containers.sh dist $(CONTAINER_OPTIONS)

sanitize: build/packages.stamp  ## Runs the C++ tests with the address, undefined-behaviour and thread sanitizers.
	$(BAZEL) test --config=asan //cc/...
	$(BAZEL) test --config=tsan //cc/...

fuzz: build/packages.stamp  ## Fuzzes what comes from the network for 10 minutes (FUZZ_SECONDS); nightly.
	tools/fuzz.sh $(BAZEL)

valgrind: build/packages.stamp  ## Runs whole jobs under valgrind: nothing is lost at their end.
	tools/valgrind.sh $(BAZEL)

# Any number of processes may run others: docs/states.md.
simulation: build/packages.stamp  ## Breaks 10,000 simulated jobs of each kind at random (SIMULATION_SEEDS; about 15 minutes of one core).
	$(BAZEL) build //cc/simulation/...
	BYTEPS_SIMULATION_PEERS=64 $$($(BAZEL) info bazel-bin)/cc/simulation/large_job_test
	for test in faults sets joins stores tables quorum elastic; do \
	  BYTEPS_SIMULATION_SEEDS=$(SIMULATION_SEEDS) \
	    $$($(BAZEL) info bazel-bin)/cc/simulation/$${test}_test --gtest_filter='*NoSeed*' || exit 1; \
	done

soak: build  ## Trains for 30 minutes (SOAK_MINUTES) with 3 workers and 2 servers and looks at their memory.
	$(BIN)/python -m tests.soak --minutes $(SOAK_MINUTES) --write build/soak

nightly: fuzz simulation test-extended test-long test-faults test-property soak sanitize valgrind  ## All that takes long and should run every night (more than an hour).
	$(BIN)/python -m tests.access.hostile --seconds 200 --rate 50

bench: build  ## Measures speed against the optimum and the peers (under 30 minutes; emulated hosts need root).
	$(BIN)/python -m benchmarks

bench-all: build  ## Measures more numbers of workers and whole models, too.
	$(BIN)/python -m benchmarks --all

docs: $(VENV)/docs.stamp  ## Builds the documentation into build/site; warnings are errors.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q

lint: $(VENV)/environment.stamp tidy  ## Checks style, types and spelling: ruff, pyright, clang-format, clang-tidy and codespell.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	git ls-files '*.cc' '*.h' | xargs $(BIN)/clang-format --dry-run -Werror
	git ls-files | xargs $(BIN)/codespell

tidy: $(VENV)/environment.stamp  ## Looks for mistakes in the engine's sources with clang-tidy (half a minute).
	tools/tidy.sh $(BIN)/python

format: $(VENV)/environment.stamp  ## Formats all sources.
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .
	git ls-files '*.cc' '*.h' | xargs $(BIN)/clang-format -i

clean:  ## Removes what was built; .venv stays.
	rm -rf build dist *.egg-info
	rm -f tf_byteps/*.so tf_byteps/_build_info.py

# The stamps say that a step was done after its inputs last changed.
build/packages.stamp: tools/install_debian_packages.sh
	tools/install_debian_packages.sh $(PYTHON)
	@mkdir -p build && touch $@

$(VENV)/environment.stamp: requirements-dev.txt | build/packages.stamp
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(PIP) install -r requirements-dev.txt
	@touch $@

$(VENV)/docs.stamp: docs/requirements.txt $(VENV)/environment.stamp
	$(PIP) install -r docs/requirements.txt
	@touch $@

# Editable: the repository itself is the installed package, and bpslaunch is in .venv/bin. Builds the libraries, too.
$(VENV)/editable.stamp: pyproject.toml $(VENV)/environment.stamp
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

build/wheel_%.stamp: $(SOURCES) pyproject.toml tools/build_wheels.sh $(shell find tf_byteps -name '*.py')
	$(MAKE) wheels WHEEL_PYTHONS=$*
	@touch $@

$(LIBRARIES): $(SOURCES) $(VENV)/environment.stamp | $(VENV)/editable.stamp
	$(BIN)/python setup.py -q build_ext --inplace
