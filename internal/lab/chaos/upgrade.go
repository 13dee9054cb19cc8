//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// pass replaces every node of a fleet by another build.
type pass struct {
	what  string
	back  bool     // to the last release
	roles []string // in this order; none for all nodes in random order
	kill  bool     // every second global and regional is killed; edges are shut down, so that visitors see no error
}

// passes are the passes of `make upgrade`: there and back in the runbook's order, and there in random order; the last
// one only on request.
var passes = []pass{
	{what: "to the new build as the book says: edges, regionals, globals", roles: []string{"edge", "regional", "global"}},
	{what: "back as the book says: globals, regionals, edges", back: true, roles: []string{"global", "regional", "edge"}},
	{what: "to the new build in any order, every second global and regional is killed", kill: true},
	{what: "back with globals last: regionals, edges, globals", back: true, roles: []string{"regional", "edge", "global"}},
}

// upgrades replaces a fleet of the last release node by node by the new build, and back, under waiting and active
// visitors.
func upgrades(ctx context.Context, t *trial) error {
	rng := rand.New(rand.NewPCG(t.o.seed, 3))
	t.planned = math.MaxInt64
	sleep(ctx, t.o.session) // the room is full, and visitors wait
	for _, p := range passes[:t.o.passes] {
		begun := t.since()
		if p.back && t.returns == 0 {
			t.returns = begun
		}
		err := t.pass(ctx, rng, p)
		if err = errors.Join(err, ctx.Err()); err == nil {
			err = t.recover(ctx, false)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.what, err)
		}
		for _, dc := range t.dcs {
			t.j.record("", "longest time in which nobody came in, %s: %.1f s", dc,
				t.people.drought(dc, begun, t.since()).Seconds())
		}
	}
	return t.scripts()
}

// scripts judges how many pages of one build got no script from an edge of the other. A build before the script was a file
// has none for others.
func (t *trial) scripts() error {
	old, err := os.ReadFile(filepath.Join(t.o.old, "edge"))
	if err != nil {
		return err
	}
	asked, none := t.people.scripts.Load(), t.people.scriptless.Load()
	t.j.record("", "scripts asked for by pages, and not answered: %d, %d", asked, none)
	if !bytes.Contains(old, []byte("/.well-known/vestibule/page.")) {
		t.j.record("", "the replaced build has its script in the page: not judged")
		return nil
	}
	t.judge("upgrade: pages without the script of the other build", "", float64(none))
	return nil
}

// pass does one pass. In the middle it rotates keys and changes rooms, and a fleet of both builds runs until it seals
// with the new key.
func (op *operator) pass(ctx context.Context, rng *rand.Rand, p pass) error {
	op.j.record("", "%s", p.what)
	var nodes []*node
	for _, role := range p.roles {
		nodes = append(nodes, op.of(role, "")...)
	}
	if len(p.roles) == 0 {
		nodes = slices.DeleteFunc(op.present(), func(n *node) bool { return !n.ours() })
		rng.Shuffle(len(nodes), func(i, k int) { nodes[i], nodes[k] = nodes[k], nodes[i] })
	}
	for i, n := range nodes {
		if i == len(nodes)/2 {
			if err := errors.Join(op.rotate(ctx), op.edit()); err != nil {
				return err
			}
			sleep(ctx, known+time.Second) // the new key seals
		}
		s := syscall.SIGTERM
		if p.kill && n.role != "edge" && i%2 == 0 {
			s = syscall.SIGKILL
		}
		if err := errors.Join(op.exchange(ctx, n, p.back, s), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// exchange ends a node and starts the other build in its place, with the same configuration and the same folder.
func (op *operator) exchange(ctx context.Context, n *node, back bool, s syscall.Signal) error {
	bin, to := op.path("bin"), "new"
	if back {
		bin, to = op.o.old, "old"
	}
	n.claim() // no other fault touches nodes
	defer n.free()
	err := op.startAgain(ctx, n, s, 0, func() error {
		n.argv[0] = filepath.Join(bin, n.role)
		return nil
	})
	if err != nil {
		return err
	}
	op.j.record("replaced "+n.role, "%-4s     %s (%v)", to, n.name, s)
	if err := op.settled(ctx, wholeWithin); err != nil {
		return err
	}
	return op.wait(ctx, wholeWithin, op.reckoned)
}
