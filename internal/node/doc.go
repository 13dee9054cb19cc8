// Package node is the shared shell of all tiers: configuration, logs, the monitoring listener, the process's clock,
// local copies of the fleet's documents, and shutdown.
//
// A command has eight steps: defaults, flags and file and environment, validation, log, node, NATS, server, run.
// Resources acquired on the way are released in reverse order, by name.
package node
