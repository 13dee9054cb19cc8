//go:build linux

package main

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	shared "vestibule/internal/node"
)

// A data centre comes and goes.

// third is the data centre that is added and removed.
var third = places[2]

// serving returns the data centres that admit visitors.
func (d *deployment) serving() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listed {
		return places
	}
	return places[:2]
}

// connected returns the data centres connected to global: while one of them waits for an edge, global only grants
// returned permits, even if that one drains or is unlisted.
func (d *deployment) connected() []string {
	if len(d.of("regional", third)) > 0 {
		return places
	}
	return d.serving()
}

func (d *deployment) list(listed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listed = listed
}

// changes adds or drains a data centre, and returns the command's output and whether the change was made. Without an
// answer of the store the change may still have been made: the list shows it as soon as it is readable.
func (op *operator) changes(ctx context.Context, verb, dc string) (said string, done bool) {
	said, err := op.command(ctx, "fleet", verb, dc)
	if err == nil {
		return said, true
	}
	active := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(dc) + `\s+` + string(shared.Active))
	err = op.wait(ctx, time.Minute, func() error {
		list, err := op.command(ctx, "fleet", "list")
		done = active.MatchString(list) == (verb == "add")
		return err
	})
	return strings.TrimSpace(said), done && err == nil
}

// member adds or removes the third data centre.
func (op *operator) member(ctx context.Context) error {
	if !op.changing.TryLock() {
		op.j.record("", "(%s is on its way already)", third)
		return nil
	}
	defer op.changing.Unlock()
	if !slices.Contains(op.serving(), third) {
		return op.come(ctx)
	}
	return op.goAway(ctx)
}

func (op *operator) come(ctx context.Context) error {
	if len(op.of("regional", third)) == 0 {
		if err := op.launchRegional(ctx, third, 0, "--bootstrap"); err != nil {
			return err
		}
		for range 2 {
			if _, err := op.launchEdge(third); err != nil {
				return err
			}
		}
	}
	if out, done := op.changes(ctx, "add", third); !done {
		op.j.record("", "(%s is not added: %s)", third, out)
		return nil
	}
	op.j.record("added data centre", "add      %s", third)
	op.list(true)
	for _, e := range op.of("edge", third) {
		if err := op.admits(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// drainWithin is the maximum time of a drain while sessions end and no fault lasts long.
const drainWithin = 2 * time.Minute

func (op *operator) goAway(ctx context.Context) error {
	if out, done := op.changes(ctx, "drain", third); !done {
		op.j.record("", "(%s does not drain: %s)", third, out)
		return nil
	}
	op.j.record("drained data centre", "drain    %s", third)
	begun := op.since()
	op.list(false)
	for _, e := range op.of("edge", third) {
		e.up.Store(false)
	}
	err := op.wait(ctx, drainWithin, func() error {
		out, err := op.command(ctx, "fleet", "list")
		if err != nil {
			return err
		}
		if strings.Contains(out, third) {
			return errors.New("still listed")
		}
		return nil
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		// While the permits of another data centre are unknown, as after a loss of the store, no data centre is
		// removed; dead edges are forgotten after the storm.
		op.j.record("", "(%s drains for more than %v: %v)", third, drainWithin, err)
	default:
		op.j.record("", "%s has left the list, after %.1f s", third, (op.since() - begun).Seconds())
	}
	return nil
}
