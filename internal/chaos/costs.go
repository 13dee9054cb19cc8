//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// failure is something that goes wrong for itself, as operators meet it.
type failure struct {
	what   string
	faults []fault // all at once
}

// failures are what `make costs` shows the cost of. The first data centre is hit.
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

// costs does every failure once and tells for how long nobody came in, in the
// data centre that was hit and in the other.
func costs(ctx context.Context, o options, network network, out io.Writer) (err error) {
	d, err := deploy(ctx, o, network, shape{globals: 3, regionals: 2, edges: 2})
	defer func() {
		if d != nil {
			err = errors.Join(err, d.stop())
		}
	}()
	if err != nil {
		return err
	}
	j := &journal{out: io.Discard, d: d, done: map[string]int{}}
	people := &crowdOfPeople{d: d, life: o.session*11/10 + 2*time.Second}
	come, home := context.WithCancel(ctx)
	var crowd sync.WaitGroup
	defer crowd.Wait()
	defer home()
	for i := range o.visitors {
		p := people.person(o.seed, i)
		crowd.Go(func() {
			p.pause(come, 0, 10*time.Second)
			p.live(come)
		})
	}
	watch, ended := context.WithCancel(ctx)
	var chronicle error
	var watching sync.WaitGroup
	watching.Go(func() { chronicle = d.chronicle(watch) })
	defer func() {
		ended()
		watching.Wait()
		err = errors.Join(err, chronicle)
	}()
	fmt.Fprintf(out, "%-36s %22s %22s\n", "killed, again after 1 s", d.dcs[0]+" (hit)", d.dcs[1])
	links := newLinks(d)
	sleep(ctx, 2*o.session) // the room is full, and people come and go
	for _, f := range failures(network.links()) {
		begun := d.since()
		if err := d.storm(ctx, f.faults, j, links); err != nil {
			return err
		}
		if _, err := d.calm(ctx, people, j); err != nil {
			return fmt.Errorf("%s: %w", f.what, err)
		}
		sleep(ctx, 20*time.Second)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		var dry []any
		for _, dc := range d.dcs {
			dry = append(dry, people.drought(dc, begun, d.since()).Seconds())
		}
		fmt.Fprintf(out, "%-36s %6.1f s nobody came in %6.1f s nobody came in\n", append([]any{f.what}, dry...)...)
	}
	return nil
}

// drought returns the longest time in which nobody came in, in a data centre.
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
