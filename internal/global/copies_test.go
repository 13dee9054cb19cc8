package global

import (
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/fakes"
	"vestibule/internal/node"
)

// A node announces newer rooms while a leader publishes those of an older store: these do not get a newer version.
func TestRoomsThatComeDuringAPublication(t *testing.T) {
	docs, quiet := newMemoryStore(), slog.New(slog.DiscardHandler)
	c := &copies{log: quiet, offers: map[string]offer{}}
	rooms := roomstore.New(roomstore.Options{Docs: docs, Log: quiet, Floor: c.roomsVersion})
	stored, err := rooms.Change(t.Context(), func(d *roomstore.Draft) error { d.Merge(fakes.Rooms(2)); return nil })
	testkit.NoError(t, err)
	f := testkit.Must(node.NewFleet(t.TempDir(), docs, quiet, prometheus.NewRegistry(), func() {}))(t)
	p := &publisher{refill: refill{copies: c, s: &Server{rooms: rooms, log: quiet, currentTerm: currentTerm{fleet: f}}}}
	docs.interrupt = func() {
		data, err := json.Marshal(wire.Copy{From: "global-1", Version: stored.Version + 100})
		if err != nil {
			t.Error(err)
		}
		c.receive(wire.CopySubject(node.RoomsDocument, "dublin"), data)
	}
	if err := p.publish(t.Context()); !errors.Is(err, errComing) {
		t.Errorf("published: %v", err)
	}
	if state, err := rooms.Read(t.Context()); err != nil || state.Version != stored.Version {
		t.Errorf("version %d became %d, %v", stored.Version, state.Version, err)
	}
}

// A document comes in parts, in any order and more than once, from the node that was asked alone.
func TestPartsOfADocument(t *testing.T) {
	asked := offer{document: "rooms", dc: "dublin", from: "regional-0", version: 5}
	c := &copies{log: slog.New(slog.DiscardHandler), offers: map[string]offer{"rooms": asked}, fetch: &fetch{offer: asked}}
	say := func(dc, from, sum string, version uint64, part, parts int) {
		t.Helper()
		data := testkit.Must(json.Marshal(wire.Copy{
			From: from, Version: version, Sum: sum, Part: part, Parts: parts,
			Data: []byte{byte(part)},
		}))(t)
		c.receive(wire.CopySubject("rooms", dc), data)
	}
	say("dublin", "regional-0", "a", 5, 0, 3)
	say("dublin", "regional-1", "a", 5, 1, 3)     // not asked
	say("lima", "regional-0", "a", 5, 1, 3)       // nor this one
	say("dublin", "regional-0", "a", 4, 1, 3)     // older than announced
	say("dublin", "regional-0", "a", 5, 3, 3)     // no such part
	say("dublin", "regional-0", "b", 6, 2, 3)     // it changed meanwhile: from the beginning
	say("dublin", "regional-0", "b", 6, 0, 1<<30) // too many
	for range 2 {
		say("dublin", "regional-0", "b", 6, 0, 3)
	}
	if c.fetch.left != 1 {
		t.Fatalf("%d parts are missing", c.fetch.left)
	}
	say("dublin", "regional-0", "b", 6, 1, 3)
	if got := slices.Concat(c.fetch.parts...); c.fetch.left != 0 || !slices.Equal(got, []byte{0, 1, 2}) ||
		c.fetch.version != 6 {
		t.Errorf("%d parts are missing of version %d: %v", c.fetch.left, c.fetch.version, got)
	}
}
