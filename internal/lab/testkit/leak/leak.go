// Package leak fails the tests of a package that leave goroutines behind.
package leak

import "go.uber.org/goleak"

// WithNATS runs the tests of a package that embeds nats-server. It ignores the goroutines that the server leaves behind
// with a deleted stream.
func WithNATS(m goleak.TestingM) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
	)
}
