package natsbus_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/wire"
	"vestibule/internal/node/natsbus"
)

// A message is kept once per ID, and a room's messages are read in order from a time on.
func TestTheHistoryStreams(t *testing.T) {
	server := newSite(t)
	h := natsbus.NewHistory(connect(t, server.URL(), "global"), 1)
	ctx := within(t)
	read := func(of string, since time.Time) (got []string) {
		err := h.Read(ctx, wire.HistorySeconds, of, since, func(data []byte) bool {
			got = append(got, string(data))
			return len(got) < 700
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := read("*", time.Unix(0, 0)); len(got) != 0 {
		t.Errorf("before anything was written: %v", got)
	}
	begun := time.Now()
	for i := range 600 {
		for _, of := range []string{"shop", "sale"} {
			if err := h.Write(ctx, wire.HistorySeconds, of, fmt.Sprint(of, i/2), []byte(fmt.Sprint(of, i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	var want []string
	for i := 0; i < 600; i += 2 {
		want = append(want, fmt.Sprint("sale", i))
	}
	if got := read("sale", begun.Add(-time.Minute)); !slices.Equal(got, want) {
		t.Errorf("%d messages, want 300: %v", len(got), got)
	}
	if got := read("*", begun.Add(-time.Minute)); len(got) != 600 {
		t.Errorf("%d messages of both, want 600", len(got))
	}
	if got := read("*", time.Now().Add(time.Minute)); len(got) != 0 {
		t.Errorf("of the time to come: %v", got)
	}
	if data, err := h.Newest(ctx, wire.HistorySeconds, "sale"); err != nil || string(data) != "sale598" {
		t.Errorf("the newest: %q, %v", data, err)
	}
	if data, err := h.Newest(ctx, wire.HistorySeconds, "none"); err != nil || data != nil {
		t.Errorf("the newest of no room: %q, %v", data, err)
	}
}

// TestThereIsNoSecretBeforeTheFirstGlobal: a notifier that starts with a new fleet has nothing to wait for yet, and
// warns of nothing.
func TestThereIsNoSecretBeforeTheFirstGlobal(t *testing.T) {
	s := newSite(t)
	pushes := natsbus.NewPushes(connect(t, s.URL(), "notifier"))
	eventually(t, "the server answers", func() bool {
		secret, err := pushes.Secret(within(t))
		if secret != nil {
			t.Fatalf("the secret is %q", secret)
		}
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			t.Fatal(err)
		}
		return err == nil
	})
}
