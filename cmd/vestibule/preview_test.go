package main

import (
	"context"
	"io"
	"testing"

	"vestibule/internal/lab/testkit"
)

// TestThePreviewEndsWhenItIsInterrupted: the command returns, and its listener is closed.
func TestThePreviewEndsWhenItIsInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out testkit.Log
	root := newRootCmd(&out, io.Discard)
	root.SetArgs([]string{"preview", "--listen", "127.0.0.1:0"})
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	testkit.Eventually(t, "it serves", func() bool { return out.Has("http://127.0.0.1:") })
	interrupt()
	testkit.NoError(t, testkit.Receive(t, "its end", ended))
}
