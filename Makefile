# Every target works on a clean clone with Go and make; `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# The workspace's modules, as ./folder.
MODULES = $(patsubst $(CURDIR)/%,./%,$(shell go list -m -f '{{.Dir}}'))
PACKAGES = $(addsuffix /...,$(MODULES))

# The race detector needs a C compiler; without one the tests still run.
RACE = $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)
TESTFLAGS ?=
TEST_TIMEOUT ?= 15m

# Tools come from tools/go.mod at the versions it names, and are built once into the build cache.
tool = $$(cd tools && GOWORK=off go tool -n $(1))

# Runs a command in each module, goes on after a failure, and ends with what failed.
define each_module
	@failed=(); \
	for module in $(MODULES); do \
		echo "== $$module: $(1)"; \
		(cd "$$module" && $(2)) || failed+=("$$module"); \
	done; \
	if [ $${#failed[@]} -gt 0 ]; then echo "$(1) failed in: $${failed[*]}"; exit 1; fi; \
	echo "$(1): $(words $(MODULES)) modules, no problems"
endef

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## start the whole system in one process and provision a sample runtime (DEMO=0: without the sample)
	@go run ./cmd/keb up

.PHONY: test
test: ## run all tests with the race detector, against real PostgreSQL and NATS
	@$(if $(RACE),,echo "no C compiler found: testing without the race detector";) \
	gotestsum=$(call tool,gotestsum) && \
	"$$gotestsum" --format pkgname --format-hide-empty-pkg -- $(RACE) -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PACKAGES)

.PHONY: soak
soak: ## run the end to end tests with 200 operations in flight while keb is killed (KEB_E2E_OPERATIONS)
	@cd test && KEB_E2E_OPERATIONS=$${KEB_E2E_OPERATIONS:-200} go test -count=1 -timeout $(TEST_TIMEOUT) -v $(TESTFLAGS) ./...

.PHONY: bench
bench: ## measure steps per second, latency and cost per step; one JSON line per scenario
	@go run ./cmd/keb bench

.PHONY: build
build: ## build every command into bin/
	@mkdir -p bin; \
	for package in $$(go list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' $(PACKAGES)); do \
		folder=$${package%/cmd}; \
		echo "bin/$${folder##*/}" && go build -trimpath -o "bin/$${folder##*/}" "$$package" || exit 1; \
	done

.PHONY: generate
generate: ## generate what is derived from code: event schemas, AsyncAPI
	$(call each_module,generate,go generate ./...)

.PHONY: lint
lint: ## check style, errors, security and the layers with golangci-lint
	@linter=$(call tool,golangci-lint) && export linter && $(MAKE) --no-print-directory lint-modules

.PHONY: lint-modules
lint-modules:
	$(call each_module,lint,"$$linter" run --config "$(CURDIR)/.golangci.yml" ./...)

.PHONY: fmt
fmt: ## format all code
	@linter=$(call tool,golangci-lint) && "$$linter" fmt --config .golangci.yml $(MODULES)

.PHONY: tidy
tidy: ## make go.mod and go.sum of every module match its imports
	$(call each_module,tidy,GOWORK=off go mod tidy)

.PHONY: check
check: lint test ## what a change must pass
