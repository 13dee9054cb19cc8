package natsbus_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node/natsbus"
)

type heard struct{ subject, data string }

func listen(t *testing.T, c *natsbus.Conn, subject string) (<-chan heard, func()) {
	t.Helper()
	ch := make(chan heard, 64)
	cancel := testkit.Must(c.Subscribe(subject, func(s string, data []byte) { ch <- heard{s, string(data)} }))(t)
	return ch, cancel
}

// barrier makes sure that earlier requests to the server are done.
func barrier(t *testing.T, from, to *natsbus.Conn) {
	t.Helper()
	ch, cancel := listen(t, to, "sync.test")
	defer cancel()
	arrives(t, from, "sync.test", ch)
}

// arrives publishes a message until ch has it.
func arrives(t *testing.T, from *natsbus.Conn, subject string, ch <-chan heard) {
	t.Helper()
	eventually(t, "a message arrives", func() bool {
		if err := from.Publish(subject, nil); err != nil {
			return false
		}
		select {
		case <-ch:
			return true
		default:
			return false
		}
	})
}

func TestSubscribersHearWhatIsPublishedInOrder(t *testing.T) {
	s := newSite(t)
	a, b := connect(t, s.URL(), "a"), connect(t, s.URL(), "b")
	ch, cancel := listen(t, b, wire.Reports("dublin"))
	barrier(t, a, b)
	for i := range 20 {
		testkit.NoError(t, a.Publish(wire.ReportSubject("dublin", fmt.Sprint("edge-", i)), []byte{byte(i)}))
	}
	testkit.NoError(t, a.Publish(wire.ReportSubject("nairobi", "edge-1"), nil))
	for i := range 20 {
		want := heard{fmt.Sprint("vestibule.v1.dublin.report.edge-", i), string([]byte{byte(i)})}
		if got := testkit.Receive(t, "a report", ch); got != want {
			t.Fatalf("heard %q, want %q", got, want)
		}
	}
	cancel()
	cancel() // repeating it is harmless
	if len(ch) != 0 {
		t.Errorf("heard %v too", <-ch)
	}
}

// Earlier messages of other connections are handled when Flush returns: the final reports of edges count with a
// regional that stops right after them.
func TestFlushWaitsForWhatOthersHaveSent(t *testing.T) {
	s := newSite(t)
	a, b := connect(t, s.URL(), "a"), connect(t, s.URL(), "b")
	var handled atomic.Int64
	cancel := testkit.Must(b.Subscribe(wire.Reports("dublin"), func(string, []byte) {
		runtime.Gosched() // a handler that takes a while
		handled.Add(1)
	}))(t)
	defer cancel()
	ctx := within(t)
	testkit.NoError(t, b.Flush(ctx)) // the server knows the subscription
	for i := 1; i <= 50; i++ {
		for range 100 {
			testkit.NoError(t, a.Publish(wire.ReportSubject("dublin", "edge-1"), []byte("bye")))
		}
		testkit.NoError(t, errors.Join(a.Flush(ctx), b.Flush(ctx)))
		if n := handled.Load(); n != int64(100*i) {
			t.Fatalf("%d of %d are handled", n, 100*i)
		}
	}
	gone, stop := context.WithCancel(ctx)
	stop()
	if err := b.Flush(gone); err == nil {
		t.Error("flushed without any time")
	}
}

func TestAHandlerHasEndedWhenCancelReturns(t *testing.T) {
	s := newSite(t)
	a, b := connect(t, s.URL(), "a"), connect(t, s.URL(), "b")
	entered, leave := make(chan struct{}), make(chan struct{})
	var running atomic.Bool
	cancel := testkit.Must(b.Subscribe("x", func(string, []byte) {
		running.Store(true)
		close(entered)
		<-leave
		running.Store(false)
	}))(t)
	barrier(t, a, b)
	testkit.NoError(t, a.Publish("x", nil))
	testkit.Receive(t, "the handler is called", entered)
	canceled := make(chan bool)
	go func() {
		cancel()
		canceled <- running.Load()
	}()
	close(leave)
	if testkit.Receive(t, "cancel returns", canceled) {
		t.Error("the handler was running when cancel had returned")
	}
}

// State is repeated anyway, so messages that cannot be sent now are rejected, not queued.
func TestNothingIsSentLate(t *testing.T) {
	s := newSite(t)
	a, b := connect(t, s.URL(), "a"), connect(t, s.URL(), "b")
	ch, cancel := listen(t, b, "x")
	defer cancel()
	barrier(t, a, b)
	s.Stop()
	eventually(t, "both see that the server is gone", func() bool { return !a.Connected() && !b.Connected() })
	if err := a.Publish("x", []byte("late")); !errors.Is(err, wire.ErrDown) {
		t.Errorf("published while down: %v, want %v", err, wire.ErrDown)
	}
	s.start()
	eventually(t, "both are connected again", func() bool { return a.Connected() && b.Connected() })
	barrier(t, a, b)
	testkit.NoError(t, a.Publish("x", []byte("new")))
	if got := testkit.Receive(t, "the subscription has outlived the server", ch); got.data != "new" {
		t.Errorf("heard %q first", got.data)
	}
}

func TestNodesMayStartBeforeTheirServer(t *testing.T) {
	addr := testkit.FreeAddr(t)
	a, b := connect(t, "nats://"+addr, "a"), connect(t, "nats://"+addr, "b")
	ch, cancel := listen(t, b, "x")
	defer cancel()
	if a.Connected() || a.Publish("x", nil) == nil {
		t.Fatal("connected to nothing")
	}
	s := &site{t: t}
	s.opts.Name, s.opts.Dir, s.opts.Listen, s.opts.Log = "test", t.TempDir(), addr, quiet
	s.start()
	defer func() { s.Stop() }()
	eventually(t, "both are connected", func() bool { return a.Connected() && b.Connected() })
	barrier(t, a, b)
	testkit.NoError(t, a.Publish("x", nil))
	testkit.Receive(t, "a message", ch)
	if a.URL() != s.URL() {
		t.Errorf("connected to %s, want %s", a.URL(), s.URL())
	}
}

func TestOptionsThatCanNeverWorkAreRefused(t *testing.T) {
	for name, o := range map[string]natsbus.Options{
		"address":     {URL: "nats://[::1"},
		"certificate": {URL: "nats://127.0.0.1:1", Cert: "none.pem", Key: "none.pem"},
		"authorities": {URL: "nats://127.0.0.1:1", CA: "none.pem"},
	} {
		o.Name, o.Log = "a", quiet
		if c, err := natsbus.Connect(o); err == nil {
			c.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}
