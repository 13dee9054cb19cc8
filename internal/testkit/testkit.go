// Package testkit holds what tests of several packages need to wait for what other
// goroutines, processes or machines bring about.
package testkit

import (
	"context"
	"testing"
	"time"
)

// Patience is how long a test waits for what must happen. It is long, because a machine
// may be busy with other things; a test that passes does not wait for it.
const Patience = 2 * time.Minute

const every = 2 * time.Millisecond

// Eventually waits until ok returns true, and returns how long that took. The test fails
// at once where it does not within [Patience]. what says what is waited for. ok is called
// by the goroutine of the test.
func Eventually(t testing.TB, what string, ok func() bool) time.Duration {
	t.Helper()
	begun := time.Now()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !ok() {
		if time.Since(begun) > Patience {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
	return time.Since(begun)
}

// Receive returns the next value of ch. The test fails at once where none comes within
// [Patience].
func Receive[T any](t testing.TB, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(Patience):
		t.Fatalf("never: %s", what)
	}
	return v
}

// Within returns a context that ends with the test, or after [Patience].
func Within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}
