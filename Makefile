# Tools are built from the Go module proxy at these versions, outside go.mod.
GOLANGCI := v2.15.0
GOFUMPT  := v0.12.0
BIN      := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cbcast-ci/bin
LINT     := $(BIN)/golangci-lint-$(GOLANGCI)
FUMPT    := $(BIN)/gofumpt-$(GOFUMPT)
CACHE    := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cbcast-ci
BROWSER  ?= $(or $(shell command -v chromium),$(shell command -v google-chrome),chromium)
SSE      ?= $(CACHE)/sse
SERVERS  ?= $(CACHE)/servers
CLIS     ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cbcast-ci/clis
T        ?= 30s

.PHONY: check lint test race e2e ui sse consumers compose-test upgrade manifests fuzz chaos bench cover golden demo
check: lint race                      ## what a change must pass; seeds of the fuzz tests run with the tests
lint: $(LINT) $(FUMPT)
	@out=$$($(FUMPT) -l .); test -z "$$out" || { echo "gofumpt: run '$(FUMPT) -w .' for:"; echo "$$out"; exit 1; }
	go vet ./...
	$(LINT) run
	go test -count=1 -run 'Imports|Docs' ./test
test:                                 ## the README's test command
	go test ./...
race:
	go test -race -shuffle=on -timeout 20m ./...
e2e:                                  ## against the real agent programs, fetched once, with no network but loopback
	test/e2e/fetch $(CLIS)
	CBCAST_E2E_CLIS=$(CLIS) go test -count=1 -timeout 20m -parallel 5 -v ./test/e2e
ui:                                   ## the page in a headless browser
	CBCAST_UI_BROWSER=$(BROWSER) go test -count=1 -timeout 15m -v ./test/ui
sse:                                  ## other people's SSE clients, a browser's too, through nginx and over cuts
	test/sse/fetch $(SSE)
	CBCAST_SSE_TOOLS=$(SSE) CBCAST_UI_BROWSER=$(BROWSER) go test -count=1 -timeout 15m -v ./test/sse
consumers:                            ## against a real Prometheus, OpenTelemetry collector and S3 server
	test/consumers/fetch $(SERVERS)
	CBCAST_CONSUMER_TOOLS=$(SERVERS) go test -count=1 -timeout 15m -v ./test/consumers
compose-test:                         ## docker-compose.yml for real, with an engine of its own
	test/compose/run $(CACHE)/compose
upgrade:                              ## the version before this one beside it; needs the history
	CBCAST_UPGRADE=1 go test -count=1 -timeout 15m -v ./test/upgrade
manifests:                            ## deploy/kubernetes against the types of k8s.io/api
	test/kubernetes/check
fuzz:                                 ## each fuzz test for T
	@grep -rhoE --include='*_test.go' '^func Fuzz\w+' -H . | sed 's|/[^/]*:func |  |' | while read -r dir name; do \
	  echo "$$dir $$name"; go test "$$dir" -run '^$$' -fuzz "^$$name\$$" -fuzztime $(T) || exit 1; done
chaos:                                ## the long form, with its figures
	CBCAST_CHAOS=long go test -count=1 -timeout 60m -v -run Chaos ./...
bench:
	go test -run '^$$' -bench . -benchtime 3s ./bench/...
cover:
	go test -coverprofile=/dev/stdout -coverpkg=./... ./... | grep -v '^ok' > cover.out; go tool cover -func=cover.out | tail -1
golden:                               ## rewrite the golden files; read the diff
	go test ./internal/run ./test/... -update
demo:
	go run ./cmd/cbcast demo
$(LINT):
	GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI) && mv $(BIN)/golangci-lint $@
$(FUMPT):
	GOBIN=$(BIN) go install mvdan.cc/gofumpt@$(GOFUMPT) && mv $(BIN)/gofumpt $@
