package embedded

import "testing"

// TestBeyondLoopback: an address that other machines reach is told of.
func TestBeyondLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"": false, "127.0.0.1:4222": false, "[::1]:4222": false, "localhost:4222": false, "127.8.0.1:0": false,
		":4222": true, "0.0.0.0:4222": true, "[::]:4222": true, "10.0.0.1:4222": true, "nats.internal:4222": true,
	} {
		if got := beyondLoopback(addr); got != want {
			t.Errorf("%q: %v", addr, got)
		}
	}
}
