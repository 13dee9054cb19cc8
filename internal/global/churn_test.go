package global

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// TestChurnOutlivesATerm: a leader stores the churn that it learned, its successor reads it, and an unreadable
// document is replaced.
func TestChurnOutlivesATerm(t *testing.T) {
	ctx, docs := context.Background(), newMemoryStore()
	learned := map[room.ID]estimate.Churn{
		1:       {Life: 5 * time.Minute, YoungFor: 240.5, Early: 4, Beyond: 17, Ended: 10},
		1 << 63: {Life: 15 * time.Second, Beyond: 3, Ended: 1}, 3: {Life: time.Minute},
	}
	var recalled map[room.ID]estimate.Churn
	leader := func() *churnKeeper {
		recalled = nil
		return &churnKeeper{
			docs: docs, learned: func() map[room.ID]estimate.Churn { return learned },
			recall: func(known map[room.ID]estimate.Churn) { recalled = known },
		}
	}
	keep := func(k *churnKeeper) {
		t.Helper()
		testkit.NoError(t, k.keep(ctx))
	}
	first := leader()
	keep(first)
	if recalled != nil {
		t.Errorf("%v recalled from an empty store", recalled)
	}
	second := leader()
	keep(second)
	want := maps.Clone(learned)
	delete(want, 3) // no session has ended in it
	if !maps.Equal(recalled, want) {
		t.Errorf("%v recalled, want %v", recalled, want)
	}
	// Both write: the replaced leader does not stop the new one.
	learned = map[room.ID]estimate.Churn{1: {Life: time.Minute, Beyond: 5, Ended: 20}}
	keep(first)
	learned[1] = estimate.Churn{Life: time.Minute, Beyond: 6, Ended: 21}
	keep(second)
	keep(leader())
	if !maps.Equal(recalled, learned) {
		t.Errorf("%v recalled, want %v", recalled, learned)
	}

	testkit.Must(docs.Put(ctx, churnDocument, []byte(`[{"room":1}]`), docs.Written[churnDocument].Revision))(t)
	third := leader()
	if err := third.keep(ctx); err == nil {
		t.Error("an unreadable document is not reported")
	}
	keep(third)
	keep(leader())
	if !maps.Equal(recalled, learned) {
		t.Errorf("%v recalled after the document was replaced, want %v", recalled, learned)
	}

	docs.fails = true
	learned[1] = estimate.Churn{Life: time.Minute, Beyond: 7, Ended: 22}
	if err := third.keep(ctx); err == nil || errors.Is(err, wire.ErrChanged) {
		t.Errorf("a store that takes nothing: %v", err)
	}
}

// TestASilenceOutlivesATerm: a leader publishes for how long a data centre has been silent, and the next one recalls it
// if it begins soon. A state that cannot be read is replaced.
func TestASilenceOutlivesATerm(t *testing.T) {
	ctx, docs, now := context.Background(), newMemoryStore(), time.Date(2026, 11, 26, 9, 59, 0, 0, time.UTC)
	var recalled map[string]time.Duration
	leader := func(heard time.Duration) *publisher {
		recalled = map[string]time.Duration{}
		return &publisher{
			refill: refill{s: &Server{Options: Options{Docs: docs}}}, recallSilence: func(dc string, silent time.Duration) { recalled[dc] = silent },
			census: func() census {
				return census{leads: true, centres: []root.CentreTotals{
					{Name: "dublin", Heard: time.Second},
					{Name: "nairobi", Heard: heard},
				}}
			},
		}
	}
	publish := func(p *publisher, at time.Duration, want map[string]time.Duration) {
		t.Helper()
		testkit.NoError(t, p.publishStatus(ctx, now.Add(at)))
		if !maps.Equal(recalled, want) {
			t.Errorf("at %v: %v recalled, want %v", at, recalled, want)
		}
	}
	none := map[string]time.Duration{}
	publish(leader(65*time.Second), 0, none)
	publish(leader(70*time.Second), 5*time.Second, map[string]time.Duration{"nairobi": time.Minute})
	publish(leader(0), 36*time.Second, none) // it may have been heard meanwhile
	publish(leader(0), 37*time.Second, none) // it was

	testkit.Must(docs.Put(ctx, node.MembersStatusDocument, []byte(`[]`),
		docs.Written[node.MembersStatusDocument].Revision))(t)
	p := leader(20 * time.Second)
	if err := p.publishStatus(ctx, now.Add(time.Minute)); err == nil {
		t.Error("a state that cannot be read is not reported")
	}
	publish(p, time.Minute, none)
	publish(leader(0), time.Minute, map[string]time.Duration{"nairobi": 20 * time.Second})
}
