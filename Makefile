# "make" prints what there is. Everything runs from this folder, whatever its
# path, and may run twice in a row.

.DEFAULT_GOAL := help
SHELL := /bin/bash

# Tools are built from tools/go.mod, which pins them, so that the product's
# go.mod names only what the product needs.
TOOL := go tool -modfile=tools/go.mod

# make demo ARGS=--stay, make test PKG=./plans, make test RUN=TestName,
# make microbench BENCHTIME=1s, make bench ARGS="-only hot"
ARGS ?=
PKG ?= ./...
RUN ?=
RACE ?=
BENCH ?= .
BENCHTIME ?= 200ms
FUZZTIME ?= 10s
KEEP ?=
TIMEOUT ?= 15m

# What tests draw at random is the same in each "make test"; SEED=0 draws anew,
# as plain "go test" does, and prints the seed of what fails.
SEED ?= 1
test test-edge: export RAPID_SEED = $(SEED)
test test-edge: export WEIR_SEED = $(SEED)

.PHONY: help
help: ## Print this
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do \
		printf '  make %-12s %s\n' "$$name" "$$text"; done

.PHONY: setup
setup: ## Install what this machine lacks (PostgreSQL; with RACE=1 a C compiler)
	@scripts/setup $(if $(RACE),race)

.PHONY: demo
demo: setup build ## A month in under a minute: traffic, overage, invoice (ARGS=--stay keeps it running)
	@bin/worker demo $(ARGS)

.PHONY: test
test: setup ## Run the tests (PKG=./plans RUN=TestName for some; RACE=1 with the race detector, SEED=0 with new random values)
	go vet $(PKG)
	go test $(if $(RACE),-race) -timeout $(TIMEOUT) $(if $(RUN),-run '$(RUN)') $(PKG)

.PHONY: race
race: ## Run the tests with the race detector
	@$(MAKE) --no-print-directory test RACE=1

.PHONY: test-edge
test-edge: setup ## Run the tests at the edge: browser, mail, nginx, PgBouncer, web frameworks (pictures: edge/screenshots)
	@scripts/setup-edge
	go test -tags edge -timeout $(TIMEOUT) $(if $(RUN),-run '$(RUN)') ./examples/...
	go -C examples/frameworks test -timeout $(TIMEOUT) $(if $(RUN),-run '$(RUN)') ./...
	go -C edge test -timeout $(TIMEOUT) $(if $(RUN),-run '$(RUN)') ./...

.PHONY: bench
bench: setup ## The table of targets beside the peers (ARGS="-only hot -rounds 9")
	cd bench && go run -tags weirbench . $(ARGS)

.PHONY: perf
perf: setup ## The rows of that table that a shared machine can hold, at one and a half times their bounds
	@for pause in 30 60 0; do \
		go test -count=1 -run 'TestPerf|TestACounterInAFile' ./enforcer ./internal/journal && exit 0; \
		[ $$pause = 0 ] || { echo "perf: once more in $$pause s: what else runs on this machine may be over then"; sleep $$pause; }; \
	done; exit 1

.PHONY: microbench
microbench: setup ## Run the Go benchmarks (BENCH=regexp BENCHTIME=1s; compare runs with benchstat)
	go test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -timeout $(TIMEOUT) $(PKG)

.PHONY: chaos
chaos: setup ## Long forms of the tests that kill processes and break the database and Stripe (up to 60 minutes)
	WEIR_CHAOS=1 go test -count=1 -run 'Processes|Kill|Faults|Case30' -timeout 40m -v ./enforcer
	WEIR_CHAOS=1 go test -count=1 -run 'Months|SameUnits|EverythingAtOnce' -timeout 20m -v ./billing

.PHONY: soak
soak: setup build ## Half an hour of traffic, kills and cuts while months pass, then every number compared (ARGS="-for 2m")
	cd bench && go run ./soak $(ARGS)

.PHONY: growth
growth: setup ## Start-up, memory and flush time from 1,000 accounts up (ARGS="-most 1000000")
	cd bench && go run ./growth $(ARGS)

.PHONY: fuzz
fuzz: ## Run every fuzz target briefly (FUZZTIME=10s; KEEP=20 keeps what it found in testdata/fuzz)
	@FUZZTIME=$(FUZZTIME) KEEP=$(KEEP) scripts/fuzz

.PHONY: lint
lint: ## Check style and the rules of the layout; the nested modules are vetted
	$(TOOL) golangci-lint run
	go -C bench vet ./...
	go -C edge vet ./...
	go -C examples/frameworks vet ./...

.PHONY: fmt
fmt: ## Format the code
	$(TOOL) golangci-lint fmt

.PHONY: vuln
vuln: ## Look for known vulnerabilities (vuln.go.dev, or its database from the Go module proxy)
	@scripts/vuln

.PHONY: licences
licences: ## Write docs/licences.md from the licence files of all dependencies
	go test -count=1 ./internal/licences -update

.PHONY: build
build: ## Build the programs into bin/
	go build -o bin/ ./cmd/...

.PHONY: clean
clean: ## Remove what the build made
	rm -rf bin
