# Vestibule. `make help` lists the targets.

GO ?= go

# Tools, pinned here and nowhere else. They are built into .tools.
GOLANGCI_LINT  := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
BUF            := github.com/bufbuild/buf/cmd/buf@v1.57.2
OAPI_CODEGEN   := github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2
ESBUILD        := github.com/evanw/esbuild/cmd/esbuild@v0.28.2
KUSTOMIZE      := sigs.k8s.io/kustomize/kustomize/v5@v5.7.1
KUBE_VALIDATE  := sigs.k8s.io/kubectl-validate@v0.0.4
H2SPEC         := github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible
NFPM           := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4
CYCLONEDX      := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
KUBE_SCORE     := github.com/zegl/kube-score/cmd/kube-score@v1.20.0
TOOLS          := $(CURDIR)/.tools

# Debian packages for tests and benchmarks: a browser, an HTTP client, a load generator, a server to compare
# with, load balancers, servers that ask the edge (deploy/fronts), promtool for the alert rules, npm for the libraries of
# sites, and the fonts of the pictures in docs, with Chinese, Japanese and Korean letters in the second (2.7 MB in all).
PACKAGES := chromium curl openssl python3 wrk nginx haproxy caddy apache2 prometheus systemd nodejs npm fonts-dejavu-core fonts-wqy-microhei

# What make upgrade replaces: the tag of the last release, or before it has one a commit of its series.
RELEASE := a6cf15c9

# Knobs: make sim SEEDS=5000 FIRST=1, make fuzz FUZZTIME=1m, make run ARGS="--total-active-users 10",
# make browser-runs RUNS=5, make chaos SEED=7 LENGTH=10m, make k8s KILLING=10m, make takeover KILLS=25, make crowd ONLY=draw ROOMS=5.
SEEDS    ?= 500
SMALL    ?= 10000
FIRST    ?= 1
FUZZTIME ?= 20s
BENCHTIME ?= 1s
SEED     ?= 1
LENGTH   ?= 5m
KILLS    ?= 25
KILLING  ?= 2m
RATE     ?= 2000
VISITORS ?= 2000
RUNS     ?= 20
ROOMS    ?= 1
ARGS     ?=
ONLY     ?=

# The image: its name, labels and platform.
IMAGE    ?= vestibule
VERSION  ?= $(shell git describe --tags --always --dirty)
REVISION ?= $(shell git rev-parse HEAD)
SOURCE   ?= $(shell git remote get-url origin 2>/dev/null)
CREATED  ?= $(shell git log -1 --format=%ct)
ARCH     ?= $(shell $(GO) env GOARCH)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

BUILD := $(GO) build -trimpath -ldflags '-s -w' -o bin/
# Links to vestibule run it as a node: images and packages have them.
LINKS := edge regional global nats-server
PROGRAMS := ./cmd/... ./internal/node/natsbus/embedded/nats-server

.PHONY: build
build: ## build all binaries, stripped, into bin/
	$(BUILD) $(PROGRAMS)

.PHONY: image-files
image-files:
	@rm -rf bin/image bin/data && mkdir -p bin/image bin/data
	CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -buildid= -X vestibule/internal/node.imageVersion=$(VERSION) -X vestibule/internal/node.imageCommit=$(REVISION)' -o bin/image/ ./cmd/vestibule
	@for name in $(LINKS); do ln -s vestibule bin/image/$$name; done

.PHONY: image
image: image-files ## write the container image to bin/vestibule-image.tar, and load it into a running Docker engine
	$(GO) run ./internal/lab/image -name $(IMAGE):$(VERSION) -version $(VERSION) -revision $(REVISION) -source '$(SOURCE)' -created $(CREATED) -arch $(ARCH)
	@if docker info >/dev/null 2>&1; then docker load --input bin/vestibule-image.tar; fi

.PHONY: release
release: $(TOOLS)/nfpm $(TOOLS)/cyclonedx-gomod ## write archives, packages, the image and their sums of VERSION (v0.2.0) into dist/; KEY=FILE signs them
	@PATH="$(TOOLS):$$PATH" KEY='$(KEY)' deploy/release/build.sh '$(VERSION)'

.PHONY: release-twice
release-twice: $(TOOLS)/nfpm $(TOOLS)/cyclonedx-gomod ## make the release of this commit in two clones, and compare them byte for byte (5 minutes)
	@PATH="$(TOOLS):$$PATH" deploy/release/twice.sh "v$$(sed -n "s/^## \([0-9][^ ]*\).*/\1/p" CHANGELOG.md | head -1)" | $(GO) run ./internal/lab/figures/check

.PHONY: try-package
try-package: ## install, upgrade, remove and purge the newest package of dist/ in a root of Debian's base packages, as root (a few minutes)
	@$(MAKE) --no-print-directory debian-packages PACKAGES=debootstrap
	deploy/release/try.sh "$$(ls -t dist/*_$$(dpkg --print-architecture).deb | head -1)"

.PHONY: run
run: ## the whole tree in one process, with a demo site behind it
	$(BUILD) ./cmd/vestibule
	bin/vestibule demo $(ARGS)

.PHONY: packages
packages: debian-packages $(TOOLS)/h2spec $(TOOLS)/npm/node_modules/.package-lock.json ## install what the tests need, and fail if something is missing

.PHONY: debian-packages
debian-packages:
	@missing() { for p in $(PACKAGES); do command -v $$p >/dev/null || dpkg -s $$p >/dev/null 2>&1 || echo $$p; done; }; \
	need=$$(missing | tr '\n' ' '); if [ -z "$$need" ]; then exit 0; fi; \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get install -y --no-install-recommends $$need >/dev/null || { apt-get update >/dev/null; \
		for p in $$need; do apt-get install -y --no-install-recommends $$p >/dev/null; done; }; fi; \
	need=$$(missing | tr '\n' ' '); test -z "$$need" || { \
		echo "not installed, and tests need them: $${need}(as root: apt-get install -y --no-install-recommends $$need)"; exit 1; }

# The libraries of sites, and Lighthouse, locked by version and content. The registry is npm's own setting.
$(TOOLS)/npm/node_modules/.package-lock.json: internal/allinone/npm/package-lock.json | debian-packages
	$(npm-ci)
$(TOOLS)/lighthouse/node_modules/.package-lock.json: internal/page/preview/npm/package-lock.json | debian-packages
	$(npm-ci)
npm-ci = @to=$(patsubst %/node_modules/.package-lock.json,%,$@); mkdir -p $$to && cp $(dir $<)package.json $< $$to && \
	cd $$to && npm ci --ignore-scripts --no-audit --no-fund >npm.log 2>&1 && touch $@ || { cat npm.log; exit 1; }

# The cores, the page and the simulator are single-threaded, as lint enforces: the race detector can find nothing
# there, and would make them ten times slower. Nor is it of use to tests that only start programs, try a NATS server,
# look at pages or call an API in sequence; `make race` runs it over the tree in one process. It runs on the shells,
# which call the cores from many goroutines, on parallel simulated worlds, and on parallel writers (decision 18).
# `make lint` vets. Binaries without debug information are linked in half the time.
RUNTESTS := $(TOOLS)/runtests
TEST  = $(RUNTESTS) -times $(TOOLS)/times/$@-$(1) $(2) -- -vet=off -ldflags='-s -w' -toolexec 'nice -n 15'
CORES := core/compress core/draw core/fleettime core/estimate lab/mutant core/proof core/room core/room/match core/room/roomfile core/rules lab/sim core/ledger core/ledger/share core/ledger/root core/ledger/region core/strictjson core/admission core/ticket page core/wire
CALM  := $(patsubst %,vestibule/%,$(CORES:%=internal/%) $(addprefix internal/,lab/browsertest lab/chaos lab/judge lab/mutant/overlay lab/figures lab/bench edge/clientaddr core/draw/beacon lab/image core/ticket/reuse lab/runtests lab/nightly) deploy)
PLAIN := $(patsubst %,vestibule/%,$(addprefix cmd/,vestibule edge global regional) $(addprefix internal/,global/control node/natsconf global/history global/notices))
PAGES := $(addprefix vestibule/internal/,page/preview global/console)
APART := $(addprefix vestibule/internal/,lab/e2e allinone)

# Temporary files of builds and tests are in memory where 8 GB are free: each go test removes a gigabyte of binaries, and a
# file system that is mounted with discard then lets no fsync return for seconds, so that leases of the fleets under test end.
test test-% race e2e chaos: export TMPDIR := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 == "tmpfs" && $$4 > 8e6' | grep -q . && \
	awk '/^MemAvailable:/ && $$2 > 8e6' /proc/meminfo | grep -q . && ! grep -q ' /dev/shm .*noexec' /proc/mounts && echo /dev/shm || echo "$${TMPDIR:-/tmp}")

# AREA=edge|global|core|page|node|lab tests a part of the tree, without what takes long.
AREA ?=
QUICK_     := $(patsubst %,./internal/%,$(filter-out lab/mutant lab/sim page,$(CORES)) edge/gate edge/clientaddr edge/origin edge/sse lab/mutant/overlay)
QUICK_edge := -parallel 8 -skip 'OneAddressClosesNoEdge|ALongConnectionRenews|NeverMoreThanTheLimit|OddSpellings|AFrontBelieves|PassesAFront|FrontsSpeakTLS' ./internal/edge/...
QUICK_global := -parallel 16 -skip 'InABrowser|ServersAreKilled|KilledNotifiers|AnEdgeCannotPlantRooms' ./internal/global/... ./internal/notify
QUICK_core := ./internal/core/...
QUICK_page := -parallel 4 -skip 'ARunningPage|EveryLanguageFits|TheScriptWrites|AFormIsNotSentAgain|StatesInABrowser|AScreenReader' ./internal/page/...
QUICK_node := -parallel 16 ./internal/node/...
QUICK_lab  := -short -skip 'ADrawEntersByRank|TheLimitsAreUsedUp|TheOrderOfJoining|ForecastsInASale|NextIsKept|CopiesOfASession' $(patsubst %,./internal/lab/%,bench browsertest chaos figures image judge mutant mutant/overlay nightly process runtests sim testkit/... visitor)

.PHONY: quick
quick: ## test the cores and the gate, or AREA=edge|global|core|page|node|lab, in at most a minute
	@test -z '$(AREA)' || test -n '$(filter edge global core page node lab,$(AREA))' || { echo 'AREA is edge, global, core, page, node or lab'; exit 1; }
	$(GO) test -ldflags='-s -w' $(QUICK_$(AREA))

# Two lanes run beside each other, since most tests wait: first those that late answers spoil, beside those that only
# compute and give way to all others.
LANES := e2e test-cores test-browser test-shells test-programs test-pages
.PHONY: test
test: packages $(RUNTESTS) ## run every test, with the race detector where useful, and the end-to-end run
	@rm -rf $(TOOLS)/times; mkdir -p $(TOOLS)/times; status=0; $(MAKE) --no-print-directory -k -j 2 $(LANES) || status=$$?; \
	echo '== THE SLOWEST TESTS'; $(RUNTESTS) -slowest 10 $(TOOLS)/times/*; exit $$status

.PHONY: $(RUNTESTS)
$(RUNTESTS):
	@mkdir -p $(TOOLS)/times; $(GO) build -o $@ ./internal/lab/runtests

.PHONY: test-cores
test-cores: $(RUNTESTS)
	nice -n 19 $(call TEST,1) -p 1 -timeout 20m $(filter-out %/lab/sim,$(CALM))
	nice -n 19 $(call TEST,3) -short -timeout 15m ./internal/lab/sim
	nice -n 19 $(call TEST,2) -race -short -timeout 15m -run TestEqualSeedsGiveEqualRuns ./internal/lab/sim

# An edge is tested with the front that production uses; `make nethttp` has the other one. TestFrontsAgree compares them.
# A sweep over ten thousand rooms is not for the race detector.
.PHONY: test-shells
test-shells: $(RUNTESTS)
	nice -n 5 $(call TEST,1) -race -p 2 -parallel 4 -timeout 15m -skip TenThousandRooms vestibule/internal/edge $$($(GO) list ./... | grep -v -x -e vestibule/internal/edge $(APART:%=-e %) $(CALM:%=-e %) $(PLAIN:%=-e %) $(PAGES:%=-e %))
	nice -n 5 $(call TEST,2) -race -p 2 -timeout 15m -run 'EightWriters|ManyWriters|Stream|Successor|TwoLeaders|Store' $(addprefix ./internal/global/,control console history notices)
	nice -n 5 $(call TEST,3) -timeout 15m -run TenThousandRooms ./internal/global/roomstore

# More than two tabs at a time starve the leases.
.PHONY: test-browser
test-browser: packages $(RUNTESTS)
	nice -n 3 $(call TEST,1) -parallel 6 -timeout 15m -skip 'Browser|TestADataCentreIsAddedAndDrainedUnderLoad|TestHistoryAgainstTheSitesLog' ./internal/allinone
	nice -n 3 $(call TEST,2) -parallel 2 -timeout 15m -run Browser ./internal/allinone

.PHONY: test-pages
test-pages: packages $(RUNTESTS)
	nice -n 3 $(call TEST,1) -p 1 -parallel 4 -timeout 15m $(PAGES)

.PHONY: test-programs
test-programs: packages $(RUNTESTS)
	$(call TEST,1) -p 2 -parallel 4 -timeout 15m $(PLAIN)
	cd internal/global/control/contract && $(call TEST,2) -timeout 15m ./...
	cd deploy/compose && $(call TEST,3) -timeout 15m ./...

.PHONY: race
race: packages $(RUNTESTS) ## test the tree in one process with the race detector
	$(call TEST,1) -race -parallel 4 -timeout 15m ./internal/allinone

.PHONY: nethttp
nethttp: packages ## test an edge with front: nethttp, and with all cases of long tests
	$(GO) test -count=1 -parallel 4 -timeout 20m ./internal/edge -args -front nethttp -thorough -cases 3000 -mixed 20000
	$(GO) test -count=1 -timeout 20m -run TestOddSpellings ./internal/edge -args -thorough

.PHONY: worlds
worlds: ## test the cores and the simulator with all cases of long tests
	$(GO) test -count=1 -timeout 20m $(CORES:%=./internal/%)

.PHONY: e2e
e2e: packages $(RUNTESTS) ## hundreds of visitors (curl) against the built binaries as separate processes, and an official client that manages rooms
	$(call TEST,1) -count=1 -parallel 4 -timeout 10m -skip 'TestClientsThroughFronts|TestEdgesFailBehindFronts|TestRestartOfAllBehindHAProxy|TestFirstPage' ./internal/lab/e2e

.PHONY: times
times: packages ## measure what make test does not judge: the seconds of a start, a restart, loads at the head of the line, a dead site, an API under attack (four minutes)
	$(GO) test -count=1 -v -parallel 1 -timeout 10m -run '^(TestTheHeadOfTheLine|TestStopOfEverything|TestEndToEnd|TestHostileBodiesBesideASale|TestADeadSiteIsTold)$$' ./internal/lab/e2e

.PHONY: first-page
first-page: packages ## measure the time from `make run` to a waiting page with a number, in a browser
	$(GO) test -count=1 -v -run TestFirstPage ./internal/lab/e2e -args -make-run

.PHONY: drain
drain: packages ## stop edges with SIGTERM behind HAProxy and nginx at RATE requests a second, and count failures
	$(GO) test -count=1 -v -run TestDrain ./internal/lab/e2e -args -drain-rate $(RATE)

.PHONY: fronts
fronts: packages ## play browsers, payment services and CDNs at each listener of an edge and through nginx, HAProxy and Caddy with one and two edges, and kill and hang these (eight minutes)
	$(GO) test -count=1 -v -parallel 1 -timeout 20m -run 'TestClientsThroughFronts|TestEdgesFailBehindFronts' ./internal/lab/e2e -args -fronts

.PHONY: restart
restart: ## restart every process of a fleet while visitors wait, with short and long sessions, and measure the pause of admissions and wrong forecasts (six minutes)
	$(GO) test -count=1 -v -timeout 9m -run TestRestart ./internal/lab/e2e -args -restart-people 130
	$(GO) test -count=1 -v -timeout 9m -run TestRestartUnderLoad ./internal/lab/e2e -args -restart-people 130 -restart-session 5m

.PHONY: notify
notify: ## deliver notifications to 100,000 subscribers, and kill notifiers and their NATS server for ten minutes (15 minutes)
	$(GO) test -count=1 -v -timeout 15m -run TestDeliveryInTime ./internal/notify -args -subscribers 100000 -turns 2000
	$(GO) test -count=1 -v -timeout 30m -run TestKilledNotifiers ./internal/notify -args -killing 10m

.PHONY: draw
draw: ## let VISITORS gather for an event with a draw, and count admissions out of order (three minutes)
	$(GO) test -count=1 -v -timeout 15m -run TestADraw ./internal/lab/e2e -args -drawn $(VISITORS)

.PHONY: chaos
chaos: ## kill, stop, isolate and slow the built binaries for LENGTH, by SEED, under traffic
	$(GO) run ./internal/lab/chaos storms -seed $(SEED) -length $(LENGTH) $(ARGS)

.PHONY: takeover
takeover: ## kill the leading global and a leading regional KILLS times each, and measure
	$(GO) run ./internal/lab/chaos takeover -seed $(SEED) -kills $(KILLS) $(ARGS)

.PHONY: lost
lost: ## lose all globals and their NATS servers with the store, and measure the pause of admissions
	$(GO) run ./internal/lab/chaos lost -seed $(SEED) $(ARGS)

.PHONY: removal
removal: ## cut a data centre off under partition_policy cap, remove it by force, and judge T (four minutes)
	$(GO) run ./internal/lab/chaos removal -seed $(SEED) $(ARGS)

.PHONY: closures
closures: ## lose processes, stores and disks in the ways that close data centres, those that match ONLY, and measure for how long (20 minutes)
	$(GO) run ./internal/lab/chaos closures -seed $(SEED) -only '$(ONLY)' $(ARGS)

.PHONY: upgrade
upgrade: ## upgrade a fleet of the last release node by node to this build, and back, under traffic (3 to 4 minutes)
	@commit=; for r in $(RELEASE); do commit=$$(git rev-parse --verify --quiet $$r^{commit}) && break; done; \
	if [ -z "$$commit" ]; then echo "The history lacks $(RELEASE), so no upgrade was tried: git fetch --unshallow --tags fetches it."; exit 1; fi; \
	old=$(TOOLS)/release-$$commit; \
	if [ ! -d $$old ]; then rm -rf $$old.source && mkdir -p $$old.source && git archive $$commit | tar -x -C $$old.source && \
		$(GO) build -C $$old.source -o $$old.new/ ./cmd/edge ./cmd/global ./cmd/regional && mv $$old.new $$old && rm -r $$old.source || exit 1; fi; \
	$(GO) run ./internal/lab/chaos upgrade -seed $(SEED) -old $$old $(ARGS)

.PHONY: crowd
crowd: ## run ROOMS crowds of real clients of each kind against four edges, and compare forecasts with actual waits (17 minutes each)
	$(GO) test -count=1 -v -parallel 3 -timeout 2h -run 'TestCrowds/$(ONLY)' ./internal/lab/e2e -args -crowds $(ROOMS)

.PHONY: machine
machine: ## measure how many people a machine of 2 cores and 4 GB lets wait and admits (5 minutes)
	$(GO) test -count=1 -v -run TestMachine ./internal/lab/e2e -args -machine 6000

.PHONY: siege
siege: ## attack an edge from one address in 19 ways, those that match ONLY, beside visitors, with both fronts (10 minutes)
	$(GO) test -count=1 -v -timeout 30m -run TestSiege ./internal/lab/e2e -args -siege -siege-only '$(ONLY)'

.PHONY: lint
lint: $(TOOLS)/golangci-lint ## check style, package dependencies, and that the cores use no clock or random source
	$(TOOLS)/golangci-lint config verify
	$(TOOLS)/golangci-lint run ./...
	$(GO) mod tidy -diff
	cd internal/global/control/contract && $(GO) mod tidy -diff
	cd deploy/compose && $(GO) mod tidy -diff

# Until Go 1.27 a fuzzer without findings may fail with a bare "context deadline exceeded" at
# its end (go.dev/issue/75804). Only that is ignored, with a message; a named input, a panic or
# any other failure is not.
.PHONY: fuzz
fuzz: ## fuzz every parser for FUZZTIME, one per core at a time
	@mkdir -p $(TOOLS)/fuzz; grep -rho --include='*_test.go' '^func Fuzz[A-Za-z]*' internal | sed 's/func //' | sort | \
	xargs -P $$(getconf _NPROCESSORS_ONLN) -I '{}' $(MAKE) --no-print-directory fuzz-one ONLY='{}'

.PHONY: fuzz-one
fuzz-one:
	@log=$(TOOLS)/fuzz/$(ONLY).log; p=./$$(dirname $$(grep -rl --include='*_test.go' '^func $(ONLY)(' internal)); \
	if ! $(GO) test -run '^$$' -fuzz '^$(ONLY)$$' -parallel 1 -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$p >$$log 2>&1; then \
		if grep -A1 '^--- FAIL' $$log | tail -1 | grep -qx ' *context deadline exceeded' && ! grep -q 'Failing input\|panic' $$log; \
		then echo "$(ONLY): its time was over in the middle of a run (go.dev/issue/75804); nothing was found"; \
		else echo "$$p $(ONLY)"; cat $$log; exit 1; fi; \
	fi; \
	echo "$$p $(ONLY): $$(grep -h '^fuzz: elapsed' $$log | tail -1)"; rm -f $$log

.PHONY: h2spec
h2spec: $(TOOLS)/h2spec ## check the HTTP/2 of the fast front against RFC 9113
	PATH="$(TOOLS):$$PATH" $(GO) test -count=1 -v -run TestH2Spec ./internal/edge

.PHONY: sim
sim: ## check the promises in SEEDS varied fleets without and with faults, and SMALL small worlds, from seed FIRST
	$(GO) build -o bin/vestibule ./cmd/vestibule
	bin/vestibule simulate --vary --seeds $(SEEDS) --seed $(FIRST)
	bin/vestibule simulate --vary --faults --seeds $(SEEDS) --seed $(FIRST)
	bin/vestibule simulate --small --seeds $(SMALL) --seed $(FIRST)

.PHONY: shrink
shrink: ## find a shorter run of the small world SEED that breaks a promise
	$(GO) build -o bin/vestibule ./cmd/vestibule
	bin/vestibule simulate shrink $(SEED) $(ARGS)

.PHONY: mutants
mutants: ## remove each rule of the hard limit; a named test and simulated worlds must detect it
	$(GO) run ./internal/lab/mutant/overlay -out $(TOOLS)/mutants
	$(GO) test -count=1 -v -timeout 3h -tags mutants -overlay $(TOOLS)/mutants/overlay.json ./internal/lab/mutant/gate

.PHONY: figures
figures: ## print the figures of the simulator's experiments, those with names that contain ONLY, each next to its goal (minutes)
	@mkdir -p $(TOOLS)
	$(GO) test -count=1 -v -timeout 2h -run TestFigures ./internal/lab/sim -args -figures -only '$(ONLY)' -json $(TOOLS)/figures.jsonl

.PHONY: bench
bench: packages ## print the figures of the benchmarks, each next to its goal
	@mkdir -p $(TOOLS)
	$(GO) run ./internal/lab/bench -benchtime $(BENCHTIME) -json $(TOOLS)/bench.jsonl

# docs/figures.json has the rows of the document. Change it for rows that neither command measures.
.PHONY: record
record: ## take what make figures and make bench measured last over into docs/FIGURES.md; read the diff before you commit it
	$(GO) test -count=1 -v ./internal/lab/figures -run TestTheDocument -rewrite -args $(wildcard $(TOOLS)/figures.jsonl $(TOOLS)/bench.jsonl)

# Debian packages to compare the edge with.
COMPARED := redis-server nghttp2-client libnginx-mod-http-lua lua-nginx-redis
.PHONY: compare
compare: packages ## compare the edge with each front to nginx, HAProxy, Caddy and Redis, in turns on one core (five minutes)
	@$(MAKE) --no-print-directory debian-packages PACKAGES='$(COMPARED)'
	$(GO) test -run '^$$' -v -bench Compare -benchtime 1x -timeout 30m ./internal/edge

.PHONY: scale
scale: ## measure 1,000 rooms with 50 edges, idle and with traffic in 20 of them, and 10,000 rooms at the start (three minutes)
	$(GO) test -count=1 -v -timeout 15m -run TestScale ./internal/lab/e2e -args -scale 1000

# internal/lab/nightly has the parts and the minutes that each may take. FROM=siege begins there, PARTS="siege scale"
# runs these alone. .tools/nightly.json has the newest result of each with its commit.
FROM  ?=
PARTS ?=
.PHONY: nightly
nightly: ## run each command that shows a goal, and what is too long for a commit, from part FROM on; end with a table of kept, missed and not run (a night)
	@mkdir -p $(TOOLS)
	$(GO) run ./internal/lab/nightly -results $(TOOLS)/nightly.json -from '$(FROM)' $(PARTS)

.PHONY: changes
changes: ## 10,000 changes of rooms by eight writers while nats-servers are killed, and a million requests of all kinds to the API (an hour)
	$(GO) test ./internal/global/roomstore -run TestChangesWhileServersAreKilled -v -changes 10000 -timeout 2h
	$(GO) test ./internal/global/control -run TestRequestsOfAllKinds -v -bodies 1000000 -timeout 1h

.PHONY: history
history: ## play a sale of ten minutes and compare the history with the site's log (15 minutes)
	$(GO) test -count=1 -v -timeout 30m -run TestHistoryAgainst ./internal/allinone -args -come 10m

.PHONY: terraform
terraform: ## manage rooms by the real Terraform provider, which terraform init must get; make test replays its requests
	cd internal/global/control/contract && $(GO) test -count=1 -v -timeout 20m -run TestTerraform . -args -terraform

.PHONY: browser-runs
browser-runs: packages ## play what browsers do to waiting rooms RUNS times each: returns from a bank, restored tabs, service workers, speculation rules, Turbo, htmx (a minute a run)
	$(GO) test -count=1 -v -timeout 3h -run 'TestClientsInABrowser|TestLibrariesInABrowser|TestEightTabs|TestThePageIsSoonRight' ./internal/allinone -args -runs $(RUNS)
	$(GO) test -count=1 -v -timeout 10m -run TestTheFirstChartOverASlowLineInABrowser ./internal/global/console

.PHONY: pictures
pictures: packages ## recreate the pictures in docs/images; make test compares those of the waiting page
	$(GO) test -count=1 -run TestPictures ./internal/page/preview -rewrite
	@mkdir -p $(TOOLS)/console
	SCREENSHOTS=$(TOOLS)/console $(GO) test -count=1 -run TestScreensInABrowser ./internal/global/console
	cp $(TOOLS)/console/first-rooms.png docs/images/console-rooms.png
	cp $(TOOLS)/console/first-room.png docs/images/console-room.png
	cp $(TOOLS)/console/first-room-phone-dark.png docs/images/console-phone.png

.PHONY: lighthouse
lighthouse: build packages $(TOOLS)/lighthouse/node_modules/.package-lock.json ## run Lighthouse (npm) on the waiting page and on each screen of the console (five minutes)
	LIGHTHOUSE=$(TOOLS)/lighthouse/node_modules/.bin/lighthouse internal/page/preview/lighthouse.sh
	LIGHTHOUSE=$(TOOLS)/lighthouse/node_modules/.bin/lighthouse $(GO) test -count=1 -v -run TestScreensInABrowser ./internal/global/console

# Kubernetes knows no newer version than 1.30 offline. The first run builds the tools: ten minutes of one core.
# The schemas of Prometheus Operator are not Kubernetes' own.
NO_MONITORS := patches: [{target: {group: monitoring.coreos.com}, patch: "{$$patch: delete, apiVersion: v1, kind: K, metadata: {name: n}}"}]
.PHONY: k8s-check
k8s-check: $(TOOLS)/kustomize $(TOOLS)/kubectl-validate $(TOOLS)/kube-score ## build the Kubernetes overlays and validate them, their configurations and the alert rules
	@command -v promtool >/dev/null || $(MAKE) --no-print-directory debian-packages PACKAGES=prometheus
	@mkdir -p $(TOOLS)/k8s
	@set -e; for o in deploy/k8s/overlays/*; do out=$(TOOLS)/k8s/$$(basename $$o).yaml; \
		$(TOOLS)/kustomize build $$o >$$out; $(TOOLS)/kubectl-validate --version 1.30 $$out; \
		$(TOOLS)/kube-score score --output-format ci $$out >$$out.score || { grep CRITICAL $$out.score; exit 1; }; done; \
	for c in deploy/k8s/components/*; do d=$(TOOLS)/k8s/with-$$(basename $$c); mkdir -p $$d; o=nairobi; case $$c in *control|*notify) o=global;; esac; \
		printf 'resources: [../../../deploy/k8s/overlays/%s]\ncomponents: [../../../%s]\n' $$o $$c >$$d/kustomization.yaml; \
		case $$c in *monitoring) echo '$(NO_MONITORS)' >>$$d/kustomization.yaml;; esac; \
		$(TOOLS)/kustomize build $$d >$$d.yaml; $(TOOLS)/kubectl-validate --version 1.30 $$d.yaml; done
	$(GO) test -count=1 ./deploy

# The first run builds the programs of Kubernetes into $XDG_CACHE_HOME/vestibule-k8s: twelve minutes of one core.
# Only root can run containers. POD_IMAGE and the pause image are not in a registry: kubelet finds them on its machine.
POD_IMAGE := vestibule.test/vestibule
KUBE_VERSION := 1.35.4
KUBE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/vestibule-k8s/$(KUBE_VERSION)
.PHONY: k8s
k8s: ## run both data centres and global as pods of a local Kubernetes node; roll, scale, evict and kill them under traffic
	@command -v etcd containerd runc >/dev/null && test -x /usr/lib/cni/bridge || $(MAKE) --no-print-directory debian-packages PACKAGES="etcd-server containerd runc containernetworking-plugins"
	internal/lab/chaos/kubernetes.sh $(KUBE) $(KUBE_VERSION)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/pause/vestibule ./internal/lab/chaos/pause
	$(GO) run ./internal/lab/image -files bin/pause -name vestibule.test/pause:1 -out bin/pause.tar
	$(MAKE) --no-print-directory image IMAGE=$(POD_IMAGE)
	$(GO) run ./internal/lab/chaos pods -image $(POD_IMAGE):$(VERSION) -kube $(KUBE)/bin -seed $(SEED) -length $(KILLING) $(ARGS)

.PHONY: generate
generate: $(TOOLS)/buf $(TOOLS)/oapi-codegen ## regenerate code
	cd internal/core/wire/proto && $(TOOLS)/buf lint && $(TOOLS)/buf build --exclude-source-info -o ../testdata/schema.binpb
	cd internal/global/control/api && $(TOOLS)/oapi-codegen -config config.yaml ../openapi.yaml
	$(MAKE) --no-print-directory scripts

# esbuild changes names and blanks alone: old browsers get the syntax that was written for them.
.PHONY: scripts
scripts: $(TOOLS)/esbuild ## make the minified scripts and style of the waiting page anew
	cd internal/page && $(TOOLS)/esbuild *.js *.css --minify-whitespace --minify-identifiers --charset=utf8 --outdir=min --log-level=warning && sha256sum *.js *.css min/*.js min/*.css >min/SUMS

.PHONY: golden
golden: ## rewrite the golden files; read the diff before you commit it
	$(GO) test ./internal/core/wire -rewrite
	$(GO) test ./internal/page -rewrite
	$(GO) test ./internal/core/room -run TestTheReferenceIsTheSchema -rewrite
	$(GO) test ./internal/edge/gate -run TestDecisiveHeaders -rewrite
	$(GO) test ./internal/edge/origin -run TestFrontsTake -rewrite
	$(GO) test ./internal/allinone -run TestConfigurationDocument -rewrite
	$(GO) test ./cmd/vestibule -run TestReference -rewrite

$(TOOLS)/golangci-lint:
	GOBIN=$(TOOLS) $(GO) install $(GOLANGCI_LINT)
$(TOOLS)/buf:
	GOBIN=$(TOOLS) $(GO) install $(BUF)
$(TOOLS)/oapi-codegen:
	GOBIN=$(TOOLS) $(GO) install $(OAPI_CODEGEN)
$(TOOLS)/esbuild:
	GOBIN=$(TOOLS) $(GO) install $(ESBUILD)
$(TOOLS)/kustomize:
	GOBIN=$(TOOLS) $(GO) install $(KUSTOMIZE)
$(TOOLS)/h2spec:
	GOBIN=$(TOOLS) $(GO) install $(H2SPEC)
$(TOOLS)/kubectl-validate:
	GOBIN=$(TOOLS) $(GO) install $(KUBE_VALIDATE)
$(TOOLS)/nfpm:
	GOBIN=$(TOOLS) $(GO) install $(NFPM)
$(TOOLS)/cyclonedx-gomod:
	GOBIN=$(TOOLS) $(GO) install $(CYCLONEDX)
$(TOOLS)/kube-score:
	GOBIN=$(TOOLS) $(GO) install $(KUBE_SCORE)
