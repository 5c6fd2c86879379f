# Every target works from a fresh clone: `make setup` is run first where it has not been.
# Variables: CHIP= a built-in chip or a .toml, SIM=verilator|icarus, WAVES=1, JOBS= parallel jobs, SCHEDULER=, OUT=.

CHIP ?= quad16
SIM ?= verilator
SCHEDULER ?= loop_order
WAVES ?= 0
JOBS ?= $(shell nproc)
BOARD ?= ulx3s
# What was given on the command line, or else another default.
given = $(if $(filter command%,$(origin $(1))),$($(1)),$(2))
OUT ?= sim_build/verilog/$(basename $(notdir $(CHIP)))

BIN := .venv/bin
STAMP := .venv/.setup-stamp

.DEFAULT_GOAL := help
.PHONY: help setup native browser pythons wheels sim test test-all test-changed lint docs verilog bitstream bench prove netlist soak fuzz graphs parsers mutate kills verify-report audit clean

help: ## list every target
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'
	@sed -n 's/^# Variables: /  /p' $(firstword $(MAKEFILE_LIST))

setup: ## install everything into .venv (and missing system packages); quick when nothing has changed
	@scripts/setup.sh

# Not the setup target itself: its stamp, so that a target costs nothing extra when setup has run.
$(STAMP): requirements.lock pyproject.toml scripts/setup.sh
	@scripts/setup.sh
	@touch $@

# Quick when it has been: what is compiled is named by its sources. Where that cannot be, Python runs the model.
native: $(STAMP) ## compile the timeline model
	@$(BIN)/python -m meshloom.sched.model || true

pythons: ## try Meshloom on each supported Python that this machine has, in sim_build/pythons
	@scripts/pythons.sh

wheels: ## a wheel for each of these, with the timeline model compiled, in dist/
	@scripts/wheels.sh

sim: native ## co-simulate the regression of real layers and print its table (CHIP, SIM, SCHEDULER, WAVES, JOBS)
	$(BIN)/meshloom run --regression --chip $(CHIP) --scheduler $(SCHEDULER) --device $(SIM) --jobs $(JOBS) $(if $(filter-out 0,$(WAVES)),--waves)

# Whole files to a worker: what the tests of a file share, runs on the RTL among it, is made once. tests/tiers.py orders them.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

# As large as all else that `make setup` fetches, and of no use but to a few tests.
browser: $(STAMP) ## install the browser in which tests look at pages
	@scripts/setup.sh browser

test: lint native browser ## lint, types and the first tier of tests: every module, ten minutes of two cores, twenty-five if nothing is built
	$(PYTEST) -m 'not slow'

test-all: lint native browser ## lint, types and all tests
	$(PYTEST)

test-changed: native browser ## slow tests that a change can break (SINCE= a commit, SECONDS= to start tests in)
	$(BIN)/python scripts/changed_tests.py $(if $(SINCE),--since $(SINCE)) $(if $(SECONDS),--seconds $(SECONDS))

lint: $(STAMP) ## style (ruff), types (pyright), and which package may import which (import-linter)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --threads 2 --project .typing
	cd .typing && ../$(BIN)/lint-imports --config ../pyproject.toml --no-cache

docs: $(STAMP) ## the documentation as a site, in sim_build/site; a broken link fails
	$(BIN)/mkdocs build

verilog: $(STAMP) ## write the synthesisable Verilog of a chip and its manifest (CHIP, OUT)
	$(BIN)/meshloom verilog --chip $(CHIP) --out $(OUT)

bitstream: $(STAMP) ## a chip on an FPGA board: synthesised, placed, routed, packed (BOARD, CHIP, CLOCK in MHz, MEMORY; twenty minutes)
	$(BIN)/meshloom bitstream --board $(BOARD) $(if $(CLOCK),--clock $(CLOCK)) $(if $(MEMORY),--memory $(MEMORY)) --out $(call given,OUT,sim_build/bitstream/$(BOARD)) \
		--chip $(call given,CHIP,examples/boards/fpga4.toml)

bench: native ## measure speed and exactness, side by side with other simulators
	$(BIN)/meshloom bench

prove: $(STAMP) ## prove the network on chip: buffers, arbiters, routers, freedom from deadlock (minutes)
	$(BIN)/python -m meshloom.tb.verify.prove

netlist: native ## a layer on the netlist of a chip after synthesis, and its modules proven equal to theirs (half an hour; NETLIST="--module mover")
	$(BIN)/python -m meshloom.tb.verify.netlist $(NETLIST)

soak: native ## ten million flits, 280 ahead-of-time programs, ten million cycles of scenarios on the RTL (an hour; resumes)
	$(BIN)/python -m meshloom.tb.verify.noc_soak
	$(BIN)/python -m meshloom.tb.verify.ahead_soak
	$(BIN)/python -m meshloom.tb.verify.serving_soak $(SERVING)

fuzz: native ## random programs on random chips: RTL, model, executor and checker say the same (hours; resumes)
	$(BIN)/python -m meshloom.tb.verify.fuzz $(FUZZ)

graphs: native ## random ONNX models against ONNX Runtime: read, scheduled and computed as it does, or refused (half an hour; resumes)
	$(BIN)/python -m meshloom.tb.verify.graphs $(GRAPHS)

parsers: $(STAMP) ## readers of files: a million inputs that reach new branches, by Atheris (hours; resumes)
	$(BIN)/python -m meshloom.tb.verify.parsers $(PARSERS)

mutate: native ## mutation: a thousand small changes of the sources, each of which a test must notice (a day; resumes)
	$(BIN)/python -m meshloom.tb.verify.mutants $(MUTATE)

kills: native ## processes killed at random moments: what is resumed is what it would have been (an hour)
	$(BIN)/python -m meshloom.tb.verify.kills $(KILLS)

verify-report: native ## how far each block of the chip is verified: docs/results/coverage.md (minutes; FULL=1: hours)
	$(BIN)/meshloom bench coverage $(if $(FULL),--full)

audit: $(STAMP) ## what is known against locked packages, and a list of them (CycloneDX), in sim_build/audit
	$(BIN)/python scripts/audit.py

clean: ## remove build output and caches; .venv stays
	rm -rf sim_build .pytest_cache .ruff_cache .hypothesis
	find hw sched tb tests -name __pycache__ -type d -prune -exec rm -rf {} +
