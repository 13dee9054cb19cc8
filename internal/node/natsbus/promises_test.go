package natsbus_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node/natsbus"
)

func durable(version uint64) wire.Durable {
	return wire.Durable{
		Version: version, Promise: wire.Term{N: 7, Nonce: 1<<63 + version},
		Roster: []wire.RosterEntry{{Edge: "edge-1", Instance: 1<<63 + 5, LeaseEpoch: 3, Dead: true, Rooms: []wire.RosterRoom{{
			Room: 9, Sessions: []wire.Expiry{{Until: 1234, Stamped: 5}}, Reserved: -2, ReservedUntil: 99, Silent: true,
		}}}},
	}
}

func TestPromisesReachTheSuccessor(t *testing.T) {
	s := newSite(t)
	old := natsbus.NewPromises(connect(t, s.URL(), "old"), "dublin", 1)
	if d, err := old.Open(within(t), wire.Term{N: 1, Nonce: 11}); err != nil || d.Version != 0 || len(d.Roster) != 0 {
		t.Fatalf("opened nothing: %+v, %v", d, err)
	}
	for v := range uint64(3) {
		testkit.NoError(t, old.Put(within(t), durable(v+1)))
	}
	next := natsbus.NewPromises(connect(t, s.URL(), "next"), "dublin", 1)
	got := testkit.Must(next.Open(within(t), wire.Term{N: 2, Nonce: 22}))(t)
	if diff := cmp.Diff(durable(3), got); diff != "" {
		t.Errorf("the successor reads (-want +got):\n%s", diff)
	}
	if err := old.Put(within(t), durable(4)); !errors.Is(err, wire.ErrFenced) {
		t.Errorf("the predecessor writes: %v, want %v", err, wire.ErrFenced)
	}
	_, err := old.Open(within(t), wire.Term{N: 1, Nonce: 11})
	if by, ok := errors.AsType[*wire.FencedError](err); !ok || !errors.Is(err, wire.ErrFenced) || by.Term != 2 {
		t.Errorf("the predecessor opens: %v, want %v by term 2", err, wire.ErrFenced)
	}
	other := natsbus.NewPromises(connect(t, s.URL(), "other"), "nairobi", 1)
	if d, err := other.Open(within(t), wire.Term{N: 1, Nonce: 33}); err != nil || d.Version != 0 {
		t.Errorf("another data centre reads %+v, %v", d, err)
	}
}

// A leader knows more than an emptied or restored store, and stores it again. A predecessor that resumes meanwhile
// stays fenced.
func TestPromisesOutliveTheirStore(t *testing.T) {
	const bucket = "vestibule_promises"
	for name, spoil := range map[string]func(t *testing.T, js jetstream.JetStream, kv jetstream.KeyValue, backup []byte){
		"the key is deleted": func(t *testing.T, _ jetstream.JetStream, kv jetstream.KeyValue, _ []byte) {
			testkit.NoError(t, kv.Delete(within(t), "dublin"))
		},
		"the stream is purged": func(t *testing.T, js jetstream.JetStream, _ jetstream.KeyValue, _ []byte) {
			stream := testkit.Must(js.Stream(within(t), "KV_"+bucket))(t)
			testkit.NoError(t, stream.Purge(within(t)))
		},
		"the bucket is deleted": func(t *testing.T, js jetstream.JetStream, _ jetstream.KeyValue, _ []byte) {
			testkit.NoError(t, js.DeleteKeyValue(within(t), bucket))
		},
		"those of a predecessor come back": func(t *testing.T, _ jetstream.JetStream, kv jetstream.KeyValue, backup []byte) {
			testkit.Must(kv.Put(within(t), "dublin", backup))(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			old := natsbus.NewPromises(connect(t, s.URL(), "old"), "dublin", 1)
			testkit.Must(old.Open(within(t), wire.Term{N: 1, Nonce: 11}))(t)
			testkit.NoError(t, old.Put(within(t), durable(1)))
			js, kv := s.bucket(bucket)
			e := testkit.Must(kv.Get(within(t), "dublin"))(t)
			p := natsbus.NewPromises(connect(t, s.URL(), "new"), "dublin", 1)
			testkit.Must(p.Open(within(t), wire.Term{N: 2, Nonce: 22}))(t)
			testkit.NoError(t, p.Put(within(t), durable(7)))
			spoil(t, js, kv, e.Value())
			eventually(t, "it is written again", func() bool {
				err := p.Put(within(t), durable(7))
				if errors.Is(err, wire.ErrFenced) {
					t.Fatal("fenced by a store that is older")
				}
				return err == nil
			})
			if err := old.Put(within(t), durable(9)); !errors.Is(err, wire.ErrFenced) && err == nil {
				t.Errorf("the predecessor writes: %v", err)
			}
			next := natsbus.NewPromises(connect(t, s.URL(), "next"), "dublin", 1)
			if d, err := next.Open(within(t), wire.Term{N: 3, Nonce: 33}); err != nil || d.Version != 7 {
				t.Errorf("the successor reads version %d, %v; want 7", d.Version, err)
			}
		})
	}
}

// Two terms with the same number, as after a loss of the store: the last one to open has the promises, the other
// one notices.
func TestTermsOfTheSameNumberFenceEachOther(t *testing.T) {
	s := newSite(t)
	a := natsbus.NewPromises(connect(t, s.URL(), "a"), "dublin", 1)
	b := natsbus.NewPromises(connect(t, s.URL(), "b"), "dublin", 1)
	for _, p := range []struct {
		store *natsbus.Promises
		nonce uint64
	}{{a, 1}, {b, 2}} {
		testkit.Must(p.store.Open(within(t), wire.Term{N: 1, Nonce: p.nonce}))(t)
	}
	if err := a.Put(within(t), durable(1)); !errors.Is(err, wire.ErrFenced) {
		t.Errorf("the first writes: %v, want %v", err, wire.ErrFenced)
	}
	if err := b.Put(within(t), durable(1)); err != nil {
		t.Errorf("the second writes: %v", err)
	}
}

// A write that timed out may have succeeded. Writing again stores the newest.
func TestAPromiseIsKeptAcrossAWriteThatTimedOut(t *testing.T) {
	s := newSite(t)
	path := newLink(t, s.URL())
	p := natsbus.NewPromises(connect(t, path.url(), "p"), "dublin", 1)
	testkit.Must(p.Open(within(t), wire.Term{N: 1, Nonce: 1}))(t)
	path.down.hold()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Put(ctx, durable(1)); err == nil || errors.Is(err, wire.ErrFenced) {
		t.Errorf("without an answer: %v", err)
	}
	path.down.free()
	eventually(t, "it is written", func() bool {
		err := p.Put(within(t), durable(2))
		if errors.Is(err, wire.ErrFenced) {
			t.Fatal("fenced by itself")
		}
		return err == nil
	})
	next := natsbus.NewPromises(connect(t, s.URL(), "next"), "dublin", 1)
	if d, err := next.Open(within(t), wire.Term{N: 2, Nonce: 2}); err != nil || d.Version != 2 {
		t.Errorf("the successor reads version %d, %v; want 2", d.Version, err)
	}
}

// many returns promises of edges that left sessions of half an hour in a hundred rooms.
func many(version uint64, edges int) wire.Durable {
	d := wire.Durable{Version: version, Promise: wire.Term{N: 7, Nonce: 1}}
	rng := rand.New(rand.NewPCG(version, 1))
	for e := range edges {
		r := wire.RosterEntry{Edge: fmt.Sprintf("pod-%d-%d", version, e), Instance: rng.Uint64(), Dead: true, Left: true}
		for i := range 100 {
			rr := wire.RosterRoom{Room: room.ID(i + 1)}
			for s := range uint32(1820) {
				rr.Sessions = append(rr.Sessions, wire.Expiry{
					Until: 1622133300 + s, Stamped: rng.Uint64N(30),
					Consumed: rng.Uint64N(2),
				})
			}
			r.Rooms = append(r.Rooms, rr)
		}
		d.Roster = append(d.Roster, r)
	}
	return d
}

// keysOf returns the keys of the promises and the size of the largest value.
func (s *site) keysOf(t *testing.T, kv jetstream.KeyValue) (keys []string, largest int) {
	list := testkit.Must(kv.ListKeys(within(t)))(t)
	for key := range list.Keys() {
		e := testkit.Must(kv.Get(within(t), key))(t)
		keys, largest = append(keys, key), max(largest, len(e.Value()))
	}
	slices.Sort(keys)
	return keys, largest
}

// The leftovers of gone edges are in sections of a bounded size: a successor reads all of them, expired ones are
// removed, and a lost one is an unknown past.
func TestLargePromisesLieInSections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := natsbus.NewPromises(connect(t, s.URL(), "one"), "dublin", 1)
	testkit.Must(p.Open(within(t), wire.Term{N: 1, Nonce: 11}))(t)
	js, kv := s.bucket("vestibule_promises")
	sections := func() []string {
		keys, largest := s.keysOf(t, kv)
		if largest > wire.MaxStored {
			t.Errorf("a value of %d bytes, want %d at most", largest, wire.MaxStored)
		}
		return slices.DeleteFunc(keys, func(key string) bool { return key == "dublin" })
	}
	put := func(p *natsbus.Promises, d wire.Durable) {
		t.Helper()
		testkit.NoError(t, p.Put(within(t), d))
	}
	first, second := many(1, 2), many(2, 1)
	put(p, first)
	before := sections()
	if len(before) < 2 {
		t.Fatalf("sections %v, want several", before)
	}
	first.Version++
	put(p, first)
	if after := sections(); !slices.Equal(before, after) {
		t.Errorf("what has not changed is written again: %v, before %v", after, before)
	}
	put(p, second)
	after := sections()
	for _, key := range after {
		if slices.Contains(before, key) {
			t.Errorf("section %s is there still", key)
		}
	}

	next := natsbus.NewPromises(connect(t, s.URL(), "two"), "dublin", 1)
	got, err := next.Open(within(t), wire.Term{N: 2, Nonce: 22})
	if err != nil || !reflect.DeepEqual(second, got) { // cmp takes a minute for so many sessions
		t.Fatalf("the successor reads otherwise: %v\n%s", err, cmp.Diff(second.Roster[0].Rooms[0], got.Roster[0].Rooms[0]))
	}
	if kept := sections(); !slices.Equal(after, kept) {
		t.Errorf("the successor has %v, want what the predecessor wrote: %v", kept, after)
	}
	// A replaced leader writes a section before it learns of that; nothing refers to it.
	if err := p.Put(within(t), many(3, 1)); !errors.Is(err, wire.ErrFenced) {
		t.Errorf("the predecessor writes: %v", err)
	}
	for _, key := range after {
		if _, err := kv.Get(within(t), key); err != nil {
			t.Errorf("section %s that the successor names: %v", key, err)
		}
	}

	stream := testkit.Must(js.Stream(within(t), "KV_vestibule_promises"))(t)
	testkit.NoError(t, stream.Purge(within(t), jetstream.WithPurgeSubject("$KV.vestibule_promises."+after[0])))
	third := natsbus.NewPromises(connect(t, s.URL(), "three"), "dublin", 1)
	got, err = third.Open(within(t), wire.Term{N: 3, Nonce: 33})
	if err != nil || !slices.ContainsFunc(got.Roster,
		func(r wire.RosterEntry) bool { return r.Edge == wire.UnknownPast }) {
		t.Errorf("a section is lost, and the roster says nothing of it: %d entries, %v", len(got.Roster), err)
	}
	nobody := durable(9)
	nobody.Roster = nil
	put(third, nobody)
	if left := sections(); len(left) != 0 {
		t.Errorf("sections %v are left over", left)
	}
}
