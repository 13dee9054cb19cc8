package natsconf_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// TestNotificationsWithCredentials: a subscription goes from an edge to the notifier, and what is due to whoever
// delivers it, with the rights that each has. The notifier reads its own secret and not the keys of tickets, and
// changes neither.
func TestNotificationsWithCredentials(t *testing.T) {
	f := start(t)
	ctx := testkit.Within(t)
	global := f.node(natsbus.RoleGlobal, wire.Root, "global-0", "")
	testkit.NoError(t, global.EnsurePushes(ctx, 0))
	docs := natsbus.NewDocuments(global, 0)
	for _, doc := range []string{node.NotifierDocument, node.KeysDocument} {
		testkit.Must(docs.Put(ctx, doc, []byte(doc), 0))(t)
	}
	conn := f.node(natsbus.RoleNotifier, wire.Root, "notifier-0", natsbus.DocumentsDomain)
	p := natsbus.NewPushes(conn)
	if data, err := p.Secret(ctx); err != nil || string(data) != node.NotifierDocument {
		t.Fatalf("%q, %v", data, err)
	}

	edge := f.node(natsbus.RoleEdge, "nairobi", "edge-0", natsbus.DocumentsDomain)
	testkit.Eventually(t, "an edge stores a subscription", func() bool {
		within, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return edge.StorePush(within, 1, 2, []byte("sealed")) == nil
	})
	following, stop := context.WithCancel(ctx)
	defer stop()
	read, ended, seq, once := make(chan string, 10), make(chan error, 1), uint64(0), sync.Once{}
	go func() {
		ended <- p.Follow(following, natsbus.Follower{
			Set:   func(_, _, n uint64, data []byte) { seq = n; read <- string(data) },
			Marks: func(data []byte) { read <- string(data) },
			Read:  func(time.Time) { once.Do(func() { read <- "current" }) },
		})
	}()
	if got := testkit.Receive(t, "the subscription", read) + testkit.Receive(t, "the end of what is stored",
		read); got != "sealedcurrent" {
		t.Error(got)
	}
	testkit.NoError(t, p.Mark(ctx, []byte("told")))
	if got := testkit.Receive(t, "the mark", read); got != "told" {
		t.Error(got)
	}
	first := seq
	testkit.NoError(t, edge.StorePush(ctx, 1, 2, []byte("again")))
	if got := testkit.Receive(t, "the change", read); got != "again" {
		t.Error(got)
	}
	testkit.NoError(t, errors.Join(p.End(ctx, 1, 2, first), p.Mark(ctx, []byte("still"))))
	if got := testkit.Receive(t, "the mark after an end that is too late", read); got != "still" {
		t.Errorf("%q: a newer subscription is ended", got)
	}
	testkit.NoError(t, p.End(ctx, 1, 2, seq))
	if got := testkit.Receive(t, "the end", read); got != "" {
		t.Errorf("%q, want the end", got)
	}
	for range 2 { // the second is the same
		testkit.NoError(t, p.Enqueue(ctx, []natsbus.Due{{Shard: 3, ID: "1.2.turn", Data: []byte("job")}}))
	}
	if oldest, err := global.Outbox(ctx); err != nil || time.Since(oldest) > time.Minute {
		t.Errorf("the outbox: %v, %v", oldest, err)
	}
	jobs, done := make(chan int, 10), make(chan error, 1)
	go func() {
		done <- p.Deliver(following, 3, 8, func(d *natsbus.Delivery) {
			if d.Tries == 1 {
				if err := d.Again(10 * time.Millisecond); err != nil {
					t.Error(err)
				}
			} else if err := d.Done(); err != nil {
				t.Error(err)
			}
			jobs <- d.Tries
		})
	}()
	for _, want := range []int{1, 2} {
		if got := testkit.Receive(t, "a delivery", jobs); got != want {
			t.Errorf("attempt %d, want %d", got, want)
		}
	}
	testkit.Eventually(t, "nothing waits in the outbox", func() bool {
		oldest, err := global.Outbox(ctx)
		return err == nil && oldest.IsZero()
	})
	states := make(chan string, 1)
	unsubscribe, err := global.Subscribe(wire.NotifyingSubject, func(_ string, data []byte) {
		select {
		case states <- string(data):
		default: // it was heard already
		}
	})
	testkit.NoError(t, err)
	defer unsubscribe()
	testkit.Eventually(t, "its state is heard", func() bool { // the subscription is on its way to the notifier's server
		for _, subject := range []string{wire.NotifierSubject, wire.NotifyingSubject} {
			testkit.NoError(t, conn.Publish(subject, []byte("notifier-0")))
		}
		select {
		case got := <-states:
			return got == "notifier-0"
		default:
			return false
		}
	})
	stop()
	for _, c := range []chan error{ended, done} {
		if err := testkit.Receive(t, "the end", c); err != nil {
			t.Error(err)
		}
	}
	if got := linesOf(&f.log, "permissions violation"); len(got) > 0 {
		t.Errorf("somebody asked for what it may not: %d, the first: %s", len(got), got[0])
	}

	// What a notifier may not.
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if data, _, err := natsbus.NewDocuments(conn, 0).Get(short(), node.KeysDocument); err == nil {
		t.Errorf("it reads the keys: %q", data)
	}
	if _, err := natsbus.NewDocuments(conn, 0).Put(short(), node.KeysDocument, []byte("evil"), 0); err == nil {
		t.Error("it writes the keys")
	}
	if _, err := natsbus.NewDocuments(conn, 0).Put(short(), node.NotifierDocument, []byte("evil"), 0); err == nil {
		t.Error("it writes its secret")
	}
	if data, _, err := docs.Get(ctx, node.KeysDocument); err != nil || !bytes.Equal(data, []byte(node.KeysDocument)) {
		t.Errorf("%q, %v", data, err)
	}
}
