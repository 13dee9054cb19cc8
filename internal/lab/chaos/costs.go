//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"
)

// failure is a single failure, as operators meet it.
type failure struct {
	what   string
	faults []fault // simultaneous
}

// failures are measured by `make costs`. They hit the first data centre.
func failures(links bool) []failure {
	dc := places[0]
	kill := func(role string, pick int) fault {
		return fault{act: actKill, role: role, place: dc, leader: role != "edge", pick: pick, lasts: time.Second}
	}
	out := []failure{
		{"nothing", nil},
		{"an edge", []fault{kill("edge", 0)}},
		{"the regional", []fault{kill("regional", 0)}},
		{"global", []fault{kill("global", 0)}},
		{"NATS server 1", []fault{kill("nats", 0)}},
		{"NATS server 2", []fault{kill("nats", 1)}},
		{"NATS server 3", []fault{kill("nats", 2)}},
		{"global and the regional", []fault{kill("global", 0), kill("regional", 0)}},
		{"an edge and the regional", []fault{kill("edge", 0), kill("regional", 0)}},
		{"an edge, the regional and global", []fault{kill("edge", 0), kill("regional", 0), kill("global", 0)}},
	}
	if links {
		out = append(out, failure{"its links, for 10 s", []fault{{act: actPart, place: dc, lasts: 10 * time.Second}}})
	}
	return out
}

// costs runs every failure once and prints the time without admissions, in the affected data centre and in the other.
func costs(ctx context.Context, d *deployment, out io.Writer) (err error) {
	t := d.begin(ctx, out, io.Discard)
	defer func() {
		t.home()
		_, e := t.noted()
		err = errors.Join(err, e)
	}()
	fmt.Fprintf(out, "%-36s %22s %22s\n", "killed, again after 1 s", d.dcs[0]+" (hit)", d.dcs[1])
	sleep(ctx, 2*d.o.session) // the room is full, and visitors come and go
	for _, f := range failures(d.net.links()) {
		begun := d.since()
		if err := t.in.storm(ctx, f.faults); err != nil {
			return err
		}
		if _, err := t.calm(ctx); err != nil {
			return fmt.Errorf("%s: %w", f.what, err)
		}
		sleep(ctx, 20*time.Second)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		var dry []any
		for _, dc := range d.dcs {
			dry = append(dry, t.people.drought(dc, begun, d.since()).Seconds())
		}
		fmt.Fprintf(out, "%-36s %6.1f s nobody came in %6.1f s nobody came in\n", append([]any{f.what}, dry...)...)
	}
	return nil
}

// lostGoal is the time until admissions resume after the loss of global's machine.
const lostGoal = 30 * time.Second

// lost replaces the single machine of a small fleet's global, with its embedded NATS and all data, by a new one with
// only the configuration and the rooms file. Meanwhile an edge starts on an empty disk. It demands that no new key
// appears and all promises of a fault run, and with -strict that admissions resume within lostGoal.
func lost(ctx context.Context, d *deployment, out io.Writer) error {
	o := d.o
	t := d.begin(ctx, out, out)
	sleep(ctx, 2*o.session) // the room is full, and visitors come and go
	before := d.keys.count()
	global := d.of("global", "")[0]
	begun := d.since()
	t.j.record("lost the machine of global", "lose     %s with NATS and all that was stored, for 2 s", global.name)
	err := global.end(syscall.SIGKILL)
	if err == nil {
		sleep(ctx, 2*time.Second)
		err = errors.Join(os.RemoveAll(global.dataDir()), global.start())
	}
	if err == nil {
		var e *node
		if e, err = d.launchEdge(d.dcs[0]); err == nil {
			t.j.record("", "%s begins with an empty folder", e.name)
			err = d.admits(ctx, e)
		}
	}
	var c calm
	healed := d.since()
	if err == nil {
		c, err = t.calm(ctx)
		t.calms = append(t.calms, c)
	}
	sleep(ctx, o.session)
	if err = t.end(ctx, err); err != nil && !errors.Is(err, errBroken) && !errors.Is(err, errBelow) {
		return err
	}
	again := healed - begun + c.again
	fmt.Fprintf(out, "  %-44s %.1f s / %.0f s\n", "lost until people come in everywhere / goal", again.Seconds(), lostGoal.Seconds())
	if again > lostGoal && o.strict {
		err = errors.Join(err, errBelow)
	}
	after := d.keys.count()
	fmt.Fprintf(out, "  %-44s %d / %d\n", "keys ever known to any node / before", after, before)
	if after != before {
		err = errors.Join(err, errors.New("new keys were created"))
	}
	return err
}

// drought returns the longest time without admissions in a data centre.
func (c *crowdOfPeople) drought(dc string, from, to time.Duration) (longest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := from
	for _, at := range append(slices.Clone(c.newest[dc]), to) {
		if at >= from && at <= to {
			longest = max(longest, at-last)
			last = at
		}
	}
	return longest
}
