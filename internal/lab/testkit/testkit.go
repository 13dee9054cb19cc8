// Package testkit holds test helpers of several packages: to end a test at an error of its set-up, to wait for other
// goroutines, processes or machines, to read logs, and to start external programs. It imports no core, so that the
// tests of cores can import it.
package testkit

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long a test waits for a required event. It is long because the machine may be busy; a passing
// test does not wait for it.
const Patience = 2 * time.Minute

// Polling starts fast and backs off, since it takes CPU time from other tests.
const (
	soonest = 2 * time.Millisecond
	latest  = 20 * time.Millisecond
)

// Eventually waits until ok returns true, and returns how long that took. It fails the test after [Patience]; what
// describes the condition. The goroutine of the test calls ok.
func Eventually(t testing.TB, what string, ok func() bool) time.Duration {
	t.Helper()
	begun := time.Now()
	for !ok() {
		took := time.Since(begun)
		if took > Patience {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(min(latest, max(soonest, took/20)))
	}
	return time.Since(begun)
}

// Receive returns the next value of ch. It fails the test after [Patience].
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

// Still measures the longest pause of this machine until ctx ends: during a pause leases expire, and requests take
// that much longer.
func Still(ctx context.Context) (worst time.Duration) {
	const step = 20 * time.Millisecond
	tick := time.NewTimer(step)
	defer tick.Stop()
	for begun := time.Now(); ; begun = time.Now() {
		select {
		case <-ctx.Done():
			return worst
		case <-tick.C:
		}
		worst = max(worst, time.Since(begun)-step)
		tick.Reset(step)
	}
}

// Listen serves every connection to the returned address in a goroutine. The connection is closed when serve
// returns or the test ends, which waits for all goroutines.
func Listen(t testing.TB, serve func(net.Conn)) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	var mu sync.Mutex
	conns, over := map[net.Conn]bool{}, false // guarded by mu
	open.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if conns[c] = true; over {
				c.Close() // accepted as the test ended
			}
			mu.Unlock()
			open.Go(func() {
				serve(c)
				mu.Lock()
				defer mu.Unlock()
				c.Close() // maybe closed by the test
				delete(conns, c)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close() // an error has no consequence
		mu.Lock()
		over = true
		for c := range conns {
			c.Close() // as above
		}
		mu.Unlock()
		open.Wait()
	})
	return ln.Addr().String()
}

// Log keeps its output for tests that read it concurrently. The zero value is empty. It is safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns the output so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Has reports whether text was written.
func (l *Log) Has(text string) bool { return strings.Contains(l.String(), text) }
