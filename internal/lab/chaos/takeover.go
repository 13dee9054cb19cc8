//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/node/natsbus"
)

// takeoverGoal is the maximum duration of a takeover.
const takeoverGoal = 2 * time.Second

// listener subscribes to every grant on NATS.
type listener struct {
	d *deployment

	mu    sync.Mutex
	terms map[string]uint64 // newest of each parent
	word  map[string]time.Duration
	lease map[string]time.Duration
	again chan struct{} // a new term was seen; of capacity 1
}

// handleGrant records the first grant and the first lease of a newer term.
func (l *listener) handleGrant(parent string, data []byte) {
	now := l.d.since()
	g, err := wire.DecodeGrant(data)
	if err != nil {
		return // children ignore these
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.From.N > l.terms[parent] {
		l.terms[parent] = g.From.N
		l.word[parent], l.lease[parent] = now, 0
	}
	if g.From.N == l.terms[parent] && g.Handshake == wire.Adopted && g.Lease > 0 && l.lease[parent] == 0 {
		l.lease[parent] = now
	}
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// takeovers kills the leading global and the leading regional of a data centre in turn, three candidates each, and
// measures from the kill until the successor grants a lease, as seen on NATS.
func takeovers(ctx context.Context, d *deployment, out io.Writer) error {
	conn, err := natsbus.Connect(natsbus.Options{URL: d.urls, Name: "chaos", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := d.wait(10*time.Second, func() error {
		if !conn.Connected() {
			return wire.ErrDown
		}
		return nil
	}); err != nil {
		return err
	}
	l := &listener{d: d, terms: map[string]uint64{}, word: map[string]time.Duration{}, lease: map[string]time.Duration{}, again: make(chan struct{}, 1)}
	dc := d.dcs[0]
	for _, parent := range []string{wire.Root, dc} {
		stop, err := conn.Subscribe(wire.GrantSubject(parent, "*"), func(_ string, data []byte) { l.handleGrant(parent, data) })
		if err != nil {
			return err
		}
		defer stop()
	}
	_, _, home := d.invite(ctx)
	defer home()
	rng := rand.New(rand.NewPCG(d.o.seed, 2))
	words, leases := map[string][]time.Duration{}, map[string][]time.Duration{}
	for i := range 2 * d.o.takeover {
		role, place, parent := "global", "", wire.Root
		if i%2 == 1 {
			role, place, parent = "regional", dc, dc
		}
		// At any time within a lease, once all candidates are ready.
		sleep(ctx, 2*time.Second+time.Duration(rng.Int64N(int64(2*time.Second))))
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err := d.settled(ctx, 30*time.Second); err != nil {
			return err
		}
		n, err := d.leader(role, place)
		if err != nil {
			return err
		}
		word, lease, err := l.measure(ctx, parent, n)
		if err != nil {
			return fmt.Errorf("%s killed: %w", n.name, err)
		}
		fmt.Fprintf(out, "%3d  %-8s %-20s first word %5.0f ms, first lease %5.0f ms\n", i+1, role, n.name, ms(word), ms(lease))
		words[role], leases[role] = append(words[role], word), append(leases[role], lease)
		words["both"], leases["both"] = append(words["both"], word), append(leases["both"], lease)
		if err := n.start(); err != nil {
			return err
		}
	}
	fmt.Fprintln(out)
	for _, role := range []string{"global", "regional", "both"} {
		for _, m := range []struct {
			what string
			took []time.Duration
		}{{"first word", words[role]}, {"first lease", leases[role]}} {
			slices.Sort(m.took)
			fmt.Fprintf(out, "  %-9s %-12s of %2d: p50 %5.0f ms, p99 %5.0f ms, longest %5.0f ms (goal: p99 <= %.0f ms)\n",
				role, m.what, len(m.took), ms(quantile(m.took, .5)), ms(quantile(m.took, .99)), ms(m.took[len(m.took)-1]), ms(takeoverGoal))
		}
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// measure kills the leader and waits for the first lease of its successor.
func (l *listener) measure(ctx context.Context, parent string, n *node) (word, lease time.Duration, err error) {
	l.mu.Lock()
	before := l.terms[parent]
	l.mu.Unlock()
	if before == 0 {
		return 0, 0, fmt.Errorf("%s has granted nothing yet", parent)
	}
	begun := l.d.since()
	if err := n.end(syscall.SIGKILL); err != nil {
		return 0, 0, err
	}
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		l.mu.Lock()
		if l.terms[parent] > before && l.lease[parent] != 0 {
			word, lease = l.word[parent]-begun, l.lease[parent]-begun
			l.mu.Unlock()
			return word, lease, nil
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-limit.C:
			return 0, 0, errors.New("no takeover within a minute")
		case <-l.again:
		}
	}
}
