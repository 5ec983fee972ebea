# What a developer runs is what CI runs (.ci/run).

GO    ?= go
LINT  := $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint
DEAD  := $(GO) tool -modfile=tools/go.mod deadcode
# Packages that others may use as well: not all of what they offer is used here.
PUBLIC := ^(jsonrpc|mcpname|mcptask(/[a-z]+)?|task(/[a-z]+)?)/[a-z0-9_]+\.go:
TEMPL := $(GO) tool -modfile=tools/go.mod templ
# The race detector needs a C compiler. Without one the tests still run. It leaves SQLite
# out, which is C translated to Go: to watch each byte of its memory takes most of the time.
RACE  := $(shell command -v $${CC:-cc} >/dev/null 2>&1 && echo -race -gcflags=github.com/ncruces/go-sqlite3-wasm/...=-race=false)

# Tests often wait for other programs: one package more than there are cores keeps the cores busy.
MANY  := -p $(shell expr 1 + $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2))

.PHONY: help demo build test test-all deploy snapshot vulnerabilities dependencies mutate check fmt generate picture fuzz soak explore bench measure conformance hosts

help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: ## Start the gate in front of a small built-in server, and say what to try.
	@GO='$(GO)' tools/compile
	@bin/thoughtgate demo

BUILT = -X github.com/thoughtgate/thoughtgate-go/internal/version.number=$(shell git describe --tags --always --dirty 2>/dev/null) \
	-X github.com/thoughtgate/thoughtgate-go/internal/version.commit=$(shell git rev-parse HEAD 2>/dev/null) \
	-X github.com/thoughtgate/thoughtgate-go/internal/version.date=$(shell git log -1 --format=%cI 2>/dev/null)
# Functions at multiples of 8 bytes, not 32: 0.4 MiB less; a difference in speed cannot be measured.
build: ## Build the one static binary, bin/thoughtgate.
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w -funcalign=4 $(BUILT)' -o bin/thoughtgate ./cmd/thoughtgate

# Packages whose tests take long: with SDKs, browsers, agent hosts and crashes, and of tools.
SLOW := /(bench|conformance|docs/picture|e2e|packaging)(/|$$)

# The timeouts are for a package, on a machine whose cores are busy.
test: ## Run the tests that need only Go; takes a few minutes.
	@GO='$(GO)' tools/compile
	@tools/setup list
	$(GO) test $(MANY) -vet=off -timeout 15m $$($(GO) list ./... | grep -vE '$(SLOW)')

test-all: ## Run every test, with the race detector; installs the programs that they need.
	@tools/setup
	@test -n "$(RACE)" || echo 'no C compiler: running without the race detector'
	TEST_ALL=1 $(GO) test $(RACE) $(MANY) -timeout 30m ./...
	cd gosdktask && $(GO) test $(RACE) $(MANY) -timeout 10m ./...
	cd gosdktask/examples && $(GO) test $(RACE) $(MANY) -timeout 10m ./...

deploy: ## Check dashboards, alerts, charts and manifests, with the libraries of Prometheus and Kubernetes.
	cd deploy && $(GO) test -timeout 10m ./...

snapshot: ## Build all that a release consists of into dist, without publishing it, and check it.
	@echo 'Building programs, archives, packages, bills of materials and the formula for all systems into dist. Nothing is published.'
	cd tools/release && $(GO) test -v -timeout 60m ./...
	@ls dist

vulnerabilities: ## Look for known vulnerabilities in what the program calls. Needs the network.
	$(GO) tool -modfile=$(CURDIR)/tools/go.mod govulncheck ./...
	cd deploy && $(GO) tool -modfile=$(CURDIR)/tools/go.mod govulncheck -test ./...

dependencies: ## Verify the dependencies, and list those that are in the program.
	$(GO) mod verify
	@$(GO) list -deps -f '{{with .Module}}{{.Path}} {{.Version}}{{end}}' ./cmd/thoughtgate | sort -u

mutate: ## Change lines that matter for security, one at a time: a test must fail for each.
	$(GO) run ./internal/mutation $(ONLY)

check: ## Format, vet, lint; generated code and dependencies up to date; no dead code.
	$(LINT) fmt --diff
	$(TEMPL) fmt -fail internal/inbox
	@dir=$$(mktemp -d) && trap 'rm -r '$$dir EXIT && cp internal/inbox/*.templ $$dir && \
		$(TEMPL) generate -path $$dir >$$dir/log 2>&1 && \
		for f in $$dir/*.go; do cmp $$f internal/inbox/$${f##*/} || { echo 'run make generate'; exit 1; }; done
	$(GO) vet ./...
	$(GO) vet -tags failpoints ./internal/failpoint ./internal/storage
	$(LINT) run ./...
	$(GO) mod tidy -diff
	cd deploy && $(GO) mod tidy -diff && $(GO) vet ./... && $(LINT) run ./...
	cd tools/release && $(GO) vet ./... && $(LINT) run ./...
	cd gosdktask && $(GO) mod tidy -diff && $(GO) vet ./... && $(LINT) run ./...
	cd gosdktask/examples && $(GO) mod tidy -diff && $(GO) vet ./... && $(LINT) run ./...
	@dead=$$($(DEAD) -test ./...) && if [ -n "$$dead" ]; then echo "$$dead"; exit 1; fi
	@dead=$$($(DEAD) ./cmd/...) && if echo "$$dead" | grep -vE '$(PUBLIC)' | grep .; then echo 'the product does not use this'; exit 1; fi

fmt: ## Put every file in shape.
	$(LINT) fmt
	$(TEMPL) fmt internal/inbox

# Twice, because the first run may drop settings that are gone.
DOCTESTS := WRITE_DOCS=1 $(GO) test -count=1 -run 'TestDocs|TestDocumented|TestReference' ./internal/config ./internal/mcp ./internal/metrics ./internal/approval/api ./internal/app ./mcptask
generate: ## Make the Go code of the inbox's pages, and the parts of docs that come from the code.
	$(TEMPL) generate -path internal/inbox
	@$(DOCTESTS) >/dev/null || true
	$(DOCTESTS)

picture: build ## Make the animated picture docs/demo.svg from a run of the demo.
	$(GO) run ./docs/picture bin/thoughtgate docs/demo.svg

FUZZTIME ?= 10s
fuzz: ## Run each fuzzer for FUZZTIME, a time or a number such as 3000x.
	@grep -rHoE --include='*_test.go' '^func Fuzz[[:alnum:]_]+' . | sed 's|/[^/]*:func | |' | sort | while read -r pkg target; do \
		echo "fuzz $$pkg $$target"; \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg </dev/null || exit 1; \
	done

SOAK ?= 2m
soak: ## Drive mixed traffic against real gates for SOAK; fail on leaks and broken promises.
	$(GO) test ./e2e/crash -run '^TestSoak$$' -v -count=1 -timeout 24h -soak $(SOAK)

# make test-all tries a sample under the race detector. 0 means all pairs, which takes hours.
PAIRS ?= 0
# It leaves out the runs with real gates, which are in make test-all.
explore: ## Let every call of a held call's life fail in every way, alone, in PAIRS pairs, and in other orders; NAME=held-task/7:lost repeats one run.
	TEST_ALL=1 $(GO) test ./internal/explore -count=1 -timeout 24h -pairs $(PAIRS) -skip TestRealGates $(if $(NAME),-run TestNamedRun -v -name $(NAME))

bench: ## Measure against the budgets, side by side with a plain reverse proxy.
	$(GO) run ./bench

measure: ## Count the lines of code that are shipped.
	$(GO) run ./internal/archtest/measure

conformance: ## Run the official MCP suite directly and through the gate, and compare.
	$(GO) run ./conformance

hosts: ## Run real agent hosts in front of the gate (HOSTS= and SCENARIOS= choose; 3 GB, hours) and write docs/hosts.md and docs/hosts.csv.
	$(GO) run ./e2e/hosts -hosts '$(HOSTS)' -scenarios '$(SCENARIOS)'
