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
func (in *injector) restartAll(ctx context.Context, f fault) error {
	sig, verb := syscall.SIGKILL, "kill+all"
	if f.leader {
		sig, verb = syscall.SIGTERM, "restart"
	}
	var claimed []*node
	for _, role := range []string{"edge", "regional", "global"} {
		for _, n := range in.of(role, "") {
			if n.claim() {
				claimed = append(claimed, n)
			}
		}
	}
	in.j.record("started all again", "%-8s %d processes, again after %.1f s", verb, len(claimed), f.lasts.Seconds())
	faults := make([]error, len(claimed))
	var all sync.WaitGroup
	for i, n := range claimed {
		all.Go(func() {
			defer n.free()
			faults[i] = in.startAgain(ctx, n, sig, f.lasts, nil)
		})
	}
	all.Wait()
	return errors.Join(faults...)
}

// startAgain ends a process, calls between after a while, and starts the process.
func (op *operator) startAgain(ctx context.Context, n *node, sig syscall.Signal, after time.Duration, between func() error) error {
	n.up.Store(false)
	well := n.unwell()
	if err := n.end(sig); err != nil {
		return err
	}
	sleep(ctx, after)
	if n.gone.Load() { // removed meanwhile
		return nil
	}
	if between != nil {
		if err := between(); err != nil {
			return err
		}
	}
	if err := op.revive(n); err != nil {
		return err
	}
	if n.role == "edge" {
		if err := op.admits(ctx, n); err != nil {
			return err
		}
	}
	well()
	return nil
}

// revive starts a process that has ended. A connection may have taken its free port meanwhile.
func (op *operator) revive(n *node) error {
	return op.wait(20*time.Second, func() error { return n.start() })
}
