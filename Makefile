# Every target works on a clean clone with Go and make; `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# The workspace's modules, as ./folder.
MODULES = $(patsubst $(CURDIR)/%,./%,$(shell go list -m -f '{{.Dir}}'))
PACKAGES = $(addsuffix /...,$(MODULES))

# The race detector needs a C compiler; without one the tests still run.
RACE = $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)
TESTFLAGS ?=
TEST_TIMEOUT ?= 30m
# A file for the events of the tests. With it failed tests run again, alone, up to twice; .ci/run says what was flaky. More failures than ten, a
# data race and a panic are no flaky tests. -count=1, as a test that runs again must not be answered from the cache.
TEST_EVENTS ?=
RERUN = $(if $(TEST_EVENTS),--jsonfile "$(TEST_EVENTS)" --rerun-fails=2 --rerun-fails-max-failures=10 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race)

# What make images builds.
IMAGES ?= keb
VERSION ?= dev
GO_IMAGE ?= golang:1.26
DOCKER_BUILD_FLAGS ?=

# Where the Kubernetes servers for the tests of btp-manager are.
KUBE = $(CURDIR)/.keb/kube

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

# The module in tools/ that a server comes from, what it is called there, and the version that go.mod names.
module_etcd = etcd
module_kwok = kwok
server_module = $(or $(module_$(1)),kube)
package_etcd = go.etcd.io/etcd/server/v3
package_kwok = sigs.k8s.io/kwok/cmd/kwok
server_package = $(or $(package_$(1)),k8s.io/kubernetes/cmd/$(1))
version_etcd = go.etcd.io/etcd/server/v3
version_kwok = sigs.k8s.io/kwok
server_version = $$(awk '$$1 == "$(or $(version_$(1)),k8s.io/kubernetes)" { print $$2 }' tools/$(server_module)/go.mod)

# Builds a server, unless the one that is there was built from the same go.mod by the same command; both are in its stamp.
# The stamp goes first and comes last, and the binary is renamed into place: no half of one is ever taken for a server.
# Without its version the kube-apiserver calls itself v0.0.0.
define server
	@set -e; version=$(server_version); minor=$${version#v*.}; flags="-s -w"; \
	if [ $(server_module) = kube ]; then v=k8s.io/component-base/version; \
		flags="$$flags -X $$v.gitVersion=$$version -X $$v.gitMajor=1 -X $$v.gitMinor=$${minor%%.*}"; fi; \
	binary="$(KUBE)/$(1)"; stamp="$(KUBE)/.$(1).stamp"; \
	want="$$(echo "CGO_ENABLED=0 go build -ldflags '$$flags' $(server_package)"; cat tools/$(server_module)/go.mod)"; \
	if [ -x "$$binary" ] && [ "$$want" = "$$(cat "$$stamp" 2>/dev/null)" ]; then echo "$(1) $$version is in .keb/kube"; exit; fi; \
	echo "$(1) $$version: building it from the Go module proxy, which takes minutes the first time"; \
	SECONDS=0; mkdir -p "$(KUBE)"; new="$$binary.$$$$"; trap 'rm -f "$$new" "$$stamp.$$$$"' EXIT; \
	(cd tools/$(server_module) && GOWORK=off CGO_ENABLED=0 go build -ldflags "$$flags" -o "$$new" $(server_package)); \
	rm -f "$$stamp"; mv "$$new" "$$binary"; \
	echo "$$want" >"$$stamp.$$$$"; mv "$$stamp.$$$$" "$$stamp"; \
	echo "$(1) $$version: built in $$SECONDS s"
endef

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## start the whole system in one process and provision a sample runtime (DEMO=0: without the sample)
	@go run ./cmd/keb up --fast

# Nearly all of the time goes into compiling and into tests under the race detector, both of which collect garbage a lot.
test gosec: export GOGC ?= 400

# Without -pgo=off, everything that cmd/keb imports, the standard library too, is compiled a second time for its profile.
.PHONY: test
test: ## run all tests with the race detector, against real PostgreSQL and NATS; those of BTP manager too after make envtest
	@cd tools/nats && GOWORK=off GOFLAGS= CGO_ENABLED=0 go tool -n nats-server >/dev/null
	@$(if $(RACE),,echo "no C compiler found: testing without the race detector";) \
	gotestsum=$(call tool,gotestsum) && \
	"$$gotestsum" --format pkgname --format-hide-empty-pkg $(RERUN) --packages "$(PACKAGES)" \
	-- $(RACE) -pgo=off -ldflags=-w -p 4 -timeout $(TEST_TIMEOUT) $(if $(TEST_EVENTS),-count=1) $(TESTFLAGS)

.PHONY: envtest
envtest: ## build the kube-apiserver and etcd that tests of BTP manager run against, unless they are there
	$(call server,etcd)
	$(call server,kube-apiserver)

# make e2e runs a folder of test/, and the packages that belong to it. servers_FOLDER are the Kubernetes servers that it needs, prepare_FOLDER
# is a shell command that runs before it. Lines of test loggers are left out, as they hide the figures.
SUITE ?=
suites = $(notdir $(patsubst %/,%,$(sort $(dir $(wildcard test/*/*_test.go)))))
cluster = etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok
servers_btpmanager = $(cluster)
servers_charts = $(cluster)
servers_dashboards = etcd kube-apiserver
packages_btpmanager = ./services/btp-manager/...
packages_containers = ./libs/postgres/pgtest
packages_workers = ./libs/worker/contract/...

# What axe-core finds in the console is looked for too, if npm can bring it.
AXE_VERSION = 4.14.1
axe = $(CURDIR)/.keb/axe-$(AXE_VERSION)
prepare_console = [ -f "$(axe)/node_modules/axe-core/axe.min.js" ] || \
	npm install --silent --no-audit --no-fund --prefix "$(axe)" axe-core@$(AXE_VERSION) >/dev/null 2>&1; \
	if [ -f "$(axe)/node_modules/axe-core/axe.min.js" ]; then export KEB_AXE="$(axe)/node_modules/axe-core/axe.min.js"; \
	else echo "npm cannot install axe-core: checking without it"; fi
prepare_workers = if command -v npm >/dev/null; then for folder in clients/node examples/node-worker; do \
	npm ci --no-audit --no-fund --prefix $$folder && npm test --silent --prefix $$folder || exit 1; done; fi
# Root gets a mount namespace of its own, so that nothing stays mounted.
prepare_cluster = $(prepare_chaos)
prepare_chaos = if unshare -m true 2>/dev/null; then own="unshare -m --propagation private"; fi

define newline


endef

.PHONY: e2e
e2e: ## run one suite in full: SUITE=FOLDER, a folder of test/, as docs/contributor.md lists them
	@[ -n "$(filter $(suites),$(SUITE))" ] || { echo "make e2e SUITE=FOLDER: one of $(suites)"; exit 1; }
	$(foreach name,$(servers_$(SUITE)),$(call server,$(name))$(newline))
	@set -o pipefail; own=; $(or $(prepare_$(SUITE)),:); KEB_SUITE=$(SUITE) KUBEBUILDER_ASSETS="$(KUBE)" \
	$$own go test -count=1 -parallel 4 -timeout 90m -v $(TESTFLAGS) ./test/$(SUITE)/... $(packages_$(SUITE)) | { grep -Ev '^ +logger.go:[0-9]+: ' || true; }

.PHONY: dashboards-picture
PICTURES ?= bin/dashboards
dashboards-picture: ## draw every dashboard with data of a live system to PNG, without Grafana (PICTURES=FOLDER); needs Prometheus and Chromium
	@mkdir -p $(PICTURES) && cd test && KEB_PICTURES=$(abspath $(PICTURES)) go test -count=1 -timeout 15m -v -run '^TestPicture_' ./dashboards

.PHONY: chaos
chaos: ## kill, freeze, cut off and fill up everything under load, and count what is lost (KEB_CHAOS_SEED; TESTFLAGS='-run TestChaos/NATS'); Linux
	@$(MAKE) --no-print-directory e2e SUITE=chaos

.PHONY: secrets
secrets: ## look for every secret in everything that is written, told or left behind, and rotate keys under load
	@$(MAKE) --no-print-directory e2e SUITE=secrets

# What finds more the longer it runs.
soak_simulation = cd services/orchestrator && KEB_SIMULATION_FOR=$${KEB_SIMULATION_FOR:-1h} go test -count=1 -timeout 0 -v $(TESTFLAGS) -run '^TestSoak$$' ./internal/simulation
soak_fuzz = cd test && KEB_FUZZ_TIME=$${KEB_FUZZ_TIME:-1m} go test -count=1 -timeout 0 -v $(TESTFLAGS) -run '^TestFuzz$$' .
soak_kill = cd test && KEB_E2E_OPERATIONS=$${KEB_E2E_OPERATIONS:-200} go test -count=1 -timeout 60m -v $(TESTFLAGS) -run Kill .
soak_power = $(prepare_chaos); cd test && KEB_SUITE=power $$own go test -count=1 -timeout 0 -v -run '^TestPower$$' $(TESTFLAGS) ./chaos
soak_faults = $(prepare_chaos); cd test && KEB_SUITE=faults $$own go test -count=1 -timeout 0 -v -run '^TestFaults$$' $(TESTFLAGS) ./chaos
soak_growth = cd test && KEB_SUITE=growth go test -count=1 -timeout 0 -v -run '^TestGrowth$$' $(TESTFLAGS) ./chaos
soaks = simulation fuzz kill power faults growth

.PHONY: soak
soak: ## what finds more the longer it runs, one after the other: SUITE=simulation, fuzz, kill, power, faults or growth, as docs/contributor.md lists them
	@$(foreach suite,$(or $(SUITE),$(soaks)),($(or $(soak_$(suite)),$(error make soak SUITE=$(suite): one of $(soaks)))) &&) :

.PHONY: images
images: ## build the images of all services with Docker (IMAGES=registry/keb VERSION=1.2.3 GO_IMAGE=golang:1.26 DOCKER_BUILD_FLAGS=)
	@grep -v '^#' deploy/docker/images | while read -r name _; do \
		echo "$(IMAGES)/$$name:$(VERSION)" && docker build -q -f deploy/docker/Dockerfile --build-arg "SERVICE=$$name" --build-arg "VERSION=$(VERSION)" \
			--build-arg "GO_IMAGE=$(GO_IMAGE)" $(DOCKER_BUILD_FLAGS) -t "$(IMAGES)/$$name:$(VERSION)" . </dev/null || exit 1; \
	done

bench_ = go run ./cmd/keb bench
bench_scale = go run ./cmd/keb bench scale
bench_outage = go run ./cmd/keb bench outage
bench_fairness = go run ./cmd/keb bench fairness
bench_api = cd services/orchestrator && KEB_SCALE=1 go test -count=1 -timeout $(TEST_TIMEOUT) -v $(TESTFLAGS) -run TestOperatorAPI_Scale .

.PHONY: bench
bench: ## measure steps per second, latency and cost per step (SCENARIO=scale: with a full database; SCENARIO=fairness: an order among thousands of others; SCENARIO=outage: a system that is away; SCENARIO=api: the operator API)
	@$(or $(bench_$(SCENARIO)),$(error make bench has no SCENARIO=$(SCENARIO)))

.PHONY: build
build: ## build every command into bin/
	@mkdir -p bin; \
	for package in $$(go list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' $(PACKAGES) | grep -v /scaffold/); do \
		folder=$${package%/cmd}; \
		echo "bin/$${folder##*/}" && go build -trimpath -o "bin/$${folder##*/}" "$$package" || exit 1; \
	done

.PHONY: generate
generate: ## generate what is derived from code and contracts: event schemas, AsyncAPI, users of NATS, pages of docs
	$(call each_module,generate,go generate ./...)

.PHONY: lint
lint: ## check style, errors, security and the layers with golangci-lint
	@linter=$(call tool,golangci-lint) && export linter && $(MAKE) --no-print-directory lint-modules

.PHONY: lint-modules
lint-modules:
	$(call each_module,lint,"$$linter" run --config "$(CURDIR)/.golangci.yml" ./...)

.PHONY: gosec
gosec: ## check security alone, with the rules of make lint, but over all modules at once
	@cd tools/gosec && KEB_GOSEC_BUILD="$(RACE)" GOWORK=off CGO_ENABLED=0 go test -count=1 -timeout $(TEST_TIMEOUT) -v .

# Where govulncheck learns what is vulnerable; a machine that cannot reach it may have a copy: VULNDB=file:///path.
VULNDB ?= https://vuln.go.dev

.PHONY: vuln
vuln: ## look for known vulnerabilities in what the code calls, with govulncheck (VULNDB=file:///copy)
	@case "$(VULNDB)" in http*) curl -fsS -m 30 -o /dev/null "$(VULNDB)/index/db.json" || \
		{ echo "vuln: $(VULNDB) cannot be reached, so nothing was checked; VULNDB=file:///path names a copy of it" >&2; exit 1; } ;; esac; \
	govulncheck=$(call tool,govulncheck) && export govulncheck && $(MAKE) --no-print-directory vuln-modules

.PHONY: vuln-modules
vuln-modules:
	$(call each_module,vuln,GOWORK=off "$$govulncheck" -db "$(VULNDB)" ./...)

.PHONY: fmt
fmt: ## format all code
	@linter=$(call tool,golangci-lint) && "$$linter" fmt --config .golangci.yml $(MODULES)

.PHONY: tidy
tidy: ## make go.mod and go.sum of every module match its imports
	$(call each_module,tidy,GOWORK=off go mod tidy)

.PHONY: check
check: lint test ## what a change must pass
