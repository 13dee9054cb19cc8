//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/node/natsbus"
)

// parent is a leader that is killed, as one of its children sees it on NATS: global as the first data centre does, a
// regional as its first edge does.
type parent struct {
	role, place string
	took        []time.Duration // from a kill to the first lease of the successor

	mu    sync.Mutex
	term  uint64        // newest
	lease time.Duration // time of its first lease, 0 for none
}

// handleGrant records the first lease of a newer term.
func (p *parent) handleGrant(now time.Duration, data []byte) {
	g, err := wire.DecodeGrant(data)
	if err != nil {
		return // children ignore these
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.From.N > p.term {
		p.term, p.lease = g.From.N, 0
	}
	if g.From.N == p.term && g.Handshake == wire.Adopted && g.Lease > 0 && p.lease == 0 {
		p.lease = now
	}
}

// seen returns the newest term and the time of its first lease.
func (p *parent) seen() (term uint64, lease time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.term, p.lease
}

// takeovers kills the leading global and the leading regional of a data centre in turn, and measures from the kill
// until a child has a lease of the successor.
func takeovers(ctx context.Context, t *trial) error {
	dc := t.dcs[0]
	parents := []*parent{{role: "global"}, {role: "regional", place: dc}}
	for i, child := range []struct {
		role          natsbus.Role
		name, subject string
	}{
		{natsbus.RoleRegional, "regional-1", wire.GrantSubject(wire.Root, dc)},
		{natsbus.RoleEdge, "edge-1", wire.GrantSubject(dc, "edge-1")},
	} {
		conn, err := t.connect(dc, child.role, child.name)
		if err != nil {
			return err
		}
		defer conn.Close()
		stop, err := conn.Subscribe(child.subject, func(_ string, data []byte) { parents[i].handleGrant(t.since(), data) })
		if err != nil {
			return err
		}
		defer stop()
	}
	rng := rand.New(rand.NewPCG(t.o.seed, 2))
	for i := range 2 * t.o.kills {
		// At any time within a lease, once all candidates are ready.
		sleep(ctx, 2*time.Second+time.Duration(rng.Int64N(int64(2*time.Second))))
		if err := t.settled(ctx, 30*time.Second); err != nil {
			return err
		}
		if err := t.takeover(ctx, parents[i%2]); err != nil {
			return err
		}
	}
	for _, p := range parents {
		slices.Sort(p.took)
		t.row("takeover of "+p.role, "%d times: p50 %.2f s, p99 %.2f s, longest %.2f s", len(p.took),
			quantile(p.took, .5).Seconds(), quantile(p.took, .99).Seconds(), p.took[len(p.took)-1].Seconds())
		t.judge("takeover: p99", p.role, quantile(p.took, .99).Seconds())
	}
	return t.recover(ctx, false)
}

// takeover kills the leader, waits for the first lease of its successor, and starts it again.
func (t *trial) takeover(ctx context.Context, p *parent) error {
	n, _, err := t.leader(p.role, p.place)
	if err != nil {
		return err
	}
	before, _ := p.seen()
	if before == 0 {
		return fmt.Errorf("%s has granted nothing yet", n.name)
	}
	n.claim() // no other fault touches nodes
	defer n.free()
	begun := t.since()
	return t.startAgain(ctx, n, syscall.SIGKILL, 0, func() error {
		var lease time.Duration
		err := t.wait(ctx, time.Minute, func() error {
			var term uint64
			if term, lease = p.seen(); term <= before || lease == 0 {
				return errors.New("no takeover within a minute")
			}
			return nil
		})
		if err != nil {
			return err
		}
		p.took = append(p.took, lease-begun)
		t.j.record("killed "+p.role, "kill     %s, which led: a lease of its successor %.2f s later", n.name,
			(lease - begun).Seconds())
		return nil
	})
}
