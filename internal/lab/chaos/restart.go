//go:build linux

package main

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"
)

// restartAll ends every edge, regional and global that no other fault has claimed, and restarts them. With f.leader
// they are shut down, as by an operator, otherwise killed, as by a power cut. NATS and the machines keep running.
func (d *deployment) restartAll(ctx context.Context, f fault, j *journal) error {
	sig, verb := syscall.SIGKILL, "kill+all"
	if f.leader {
		sig, verb = syscall.SIGTERM, "restart"
	}
	var claimed []*node
	for _, role := range []string{"edge", "regional", "global"} {
		for _, n := range d.of(role, "") {
			if n.claim() {
				claimed = append(claimed, n)
			}
		}
	}
	j.record("started all again", "%-8s %d processes, again after %.1f s", verb, len(claimed), f.lasts.Seconds())
	faults := make([]error, len(claimed))
	var all sync.WaitGroup
	for i, n := range claimed {
		all.Go(func() {
			defer n.free()
			faults[i] = d.startAgain(ctx, n, sig, f.lasts)
		})
	}
	all.Wait()
	return errors.Join(faults...)
}

// startAgain ends a process and restarts it after a while.
func (d *deployment) startAgain(ctx context.Context, n *node, sig syscall.Signal, after time.Duration) error {
	n.up.Store(false)
	well := n.unwell()
	if err := n.end(sig); err != nil {
		return err
	}
	sleep(ctx, after)
	if n.gone.Load() { // removed meanwhile
		return nil
	}
	// A connection may have taken the free port meanwhile.
	if err := d.wait(20*time.Second, func() error { return n.start() }); err != nil {
		return err
	}
	if n.role == "edge" {
		if err := d.admits(ctx, n); err != nil {
			return err
		}
	}
	well()
	return nil
}
