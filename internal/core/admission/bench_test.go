package admission

import (
	"crypto/sha256"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit"
)

type byteStream byte

func (s *byteStream) Read(p []byte) (int, error) {
	for i := range p {
		*s++
		p[i] = byte(*s)
	}
	return len(p), nil
}

// cookies returns a codec like that of an edge.
func cookies(b *testing.B) (*ticket.Codec, *ticket.Scratch) {
	b.Helper()
	ring, err := ticket.Keyring{}.Rotate(day-1000, 0, new(byteStream))
	testkit.NoError(b, err)
	c, err := ticket.NewCodec(ring, sale, ticket.CookieName("sale", true))
	testkit.NoError(b, err)
	return c, ticket.NewScratch(sha256.Sum256([]byte("bench")))
}

// cycle is an edge's work for one cookie: open, decide, seal.
func cycle(b *testing.B, e *Engine, c *ticket.Codec, s *ticket.Scratch, t ticket.Ticket, want Verdict, goal string) {
	b.Helper()
	now := at(0)
	value := string(c.Seal(nil, day, &t, s))
	dst := make([]byte, 0, ticket.ValueSize)
	b.ReportAllocs()
	for b.Loop() {
		var got ticket.Ticket
		testkit.NoError(b, c.Open(&got, value, s))
		d := e.Arrive(now, sale, got)
		if d.Verdict != want {
			b.Fatalf("%v (%v), want %v", d.Verdict, d.Reason, want)
		}
		dst = c.Seal(dst[:0], day, &d.Ticket, s)
	}
	b.Logf("goal: %s", goal)
}

const goal = "at most 500 ns/op, 400 is the aim, 0 allocs/op"

// BenchmarkDecideAdmitted is a visitor with a session: cookie in, cookie out.
func BenchmarkDecideAdmitted(b *testing.B) {
	e, _ := newEdge(b, at(0), 10, 10)
	c, s := cookies(b)
	first := e.Arrive(at(0), sale, ticket.Ticket{})
	if first.Verdict != Admit {
		b.Fatal(first)
	}
	cycle(b, e, c, s, first.Ticket, Serve, goal)
}

// BenchmarkDecideRenewal is the same visitor with a request that renews.
func BenchmarkDecideRenewal(b *testing.B) {
	e, r := newEdge(b, at(0), 10, 10)
	c, s := cookies(b)
	t := e.Arrive(at(0), sale, ticket.Ticket{}).Ticket
	r.held.RenewCeil = 1 << 40
	r.grant(at(0), 0, 0)
	state := stateOf(e)
	dst := make([]byte, 0, ticket.ValueSize)
	old := t
	old.Until -= 100
	value := string(c.Seal(nil, day, &old, s))
	b.ReportAllocs()
	for b.Loop() {
		state.account.tickets.recent.Put(old.ID, stamped{until: old.Until}) // with an old last stamp
		state.account.moves.list = state.account.moves.list[:0]             // reported
		var got ticket.Ticket
		testkit.NoError(b, c.Open(&got, value, s))
		d := e.Arrive(at(0), sale, got)
		if d.Ticket.Until == old.Until {
			b.Fatal("not renewed")
		}
		dst = c.Seal(dst[:0], day, &d.Ticket, s)
	}
	b.Logf("goal: %s", goal)
}

// BenchmarkDecideNew is a visitor without a ticket that is queued.
func BenchmarkDecideNew(b *testing.B) {
	e, r := newEdge(b, at(0), 10, 10)
	g := r.held
	g.View = view(1000, day-30_000, day-20_000)
	r.room(at(0), g)
	c, s := cookies(b)
	dst := make([]byte, 0, ticket.ValueSize)
	b.ReportAllocs()
	for b.Loop() {
		d := e.Arrive(at(0), sale, ticket.Ticket{})
		if d.Verdict != Queue {
			b.Fatal(d.Verdict, d.Reason)
		}
		dst = c.Seal(dst[:0], day, &d.Ticket, s)
	}
	b.Logf("goal: %s", goal)
}

// BenchmarkDecideWaiting is a waiting visitor that polls.
func BenchmarkDecideWaiting(b *testing.B) {
	e, r := newEdge(b, at(0), 10, 10)
	g := r.held
	g.View = view(1000, day-30_000, day-20_000)
	r.room(at(0), g)
	c, s := cookies(b)
	cycle(b, e, c, s, waiting(77, time.Second), Queue, goal)
}

// BenchmarkDecideAdmission is a visitor without a ticket that is admitted.
func BenchmarkDecideAdmission(b *testing.B) {
	e, r := newEdge(b, at(0), 1<<40, 1<<40)
	_ = r
	c, s := cookies(b)
	state := stateOf(e)
	dst := make([]byte, 0, ticket.ValueSize)
	b.ReportAllocs()
	for b.Loop() {
		if len(state.account.moves.list) == cap(state.account.moves.list) {
			state.account.moves.list = state.account.moves.list[:0] // reported
		}
		d := e.Arrive(at(0), sale, ticket.Ticket{})
		if d.Verdict != Admit {
			b.Fatal(d.Verdict, d.Reason)
		}
		dst = c.Seal(dst[:0], day, &d.Ticket, s)
	}
	b.Logf("goal: %s", goal)
}

var _ = fleettime.Never
