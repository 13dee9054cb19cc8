# Vestibule. `make help` lists the targets.

GO ?= go

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: ## run every test with the race detector
	$(GO) test -race ./...
