// Package node is what the shells of all tiers share: configuration, logs,
// metrics and debug listener, the process's clock, the last good copies of
// what the fleet was told, and teardown.
//
// A command is eight steps: defaults, flags and file and environment, check,
// log, node, NATS, server, run. Everything that is acquired on the way is
// released in reverse order, by name.
package node
