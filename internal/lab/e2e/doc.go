// Package e2e holds the end-to-end tests: the built binaries as separate processes, curl as the browsers, and a
// site that counts independently. `make e2e` runs them.
package e2e
