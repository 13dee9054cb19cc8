// Package e2e holds the end-to-end run: the built binaries as separate
// processes, curl as the browsers, and a site that counts on its own. It has no
// code but tests; `make e2e` runs them.
package e2e
