//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"vestibule/internal/lab/judge"
)

// Reports of nodes and of the machine.

// status is the used part of the status of a global or regional.
type status struct {
	Leading bool
	Waits   []wait
	Region  struct {
		Time   time.Time // of the fleet
		Leased bool
		Edges  []struct{ Name, State string }
	}
	Rooms map[string]counted
}

// wait is something that a data centre waits for.
type wait struct {
	Why    string
	Edge   string
	Until  time.Time // zero if unknown
	Closed bool
	Ended  bool
}

// counted holds a regional's counts of a room.
type counted struct {
	Active       int64 `json:"sessions"`
	Reserved     int64 `json:"sessions_reserved"`
	RateReserved int64 `json:"rate_permits_reserved"`
}

// leader returns the node that reports to lead, and its status.
func (f *fleet) leader(role, place string) (found *node, of status, err error) {
	for _, n := range f.of(role, place) {
		var s status
		if f.get(text(&n.metrics)+"/status", &s) != nil || !s.Leading {
			continue // a dead or stopped node does not lead
		}
		if found != nil {
			return nil, of, fmt.Errorf("%s and %s both lead", found.name, n.name)
		}
		found, of = n, s
	}
	if found == nil {
		return nil, of, fmt.Errorf("no %s leads in %q", role, place)
	}
	return found, of, nil
}

func (f *fleet) ready(n *node) (ready, isolated bool, err error) {
	var r struct{ Ready, Isolated bool }
	err = f.get(text(&n.metrics)+"/readyz", &r)
	return r.Ready, r.Isolated, err
}

// reckoned returns an error unless every data centre has permits and knows the sessions of all its edges: the runbook
// waits for that before the next node is replaced.
func (d *deployment) reckoned() error {
	for _, dc := range d.dcs {
		n, s, err := d.leader("regional", dc)
		if err != nil {
			return err
		}
		alive := 0
		for _, e := range s.Region.Edges {
			switch e.State {
			case "alive":
				alive++
			case "awaiting", "joining":
				return fmt.Errorf("%s: %s is %s", n.name, e.Name, e.State)
			}
		}
		if edges := len(d.of("edge", dc)); !s.Region.Leased || alive != edges {
			return fmt.Errorf("%s: under a lease of global %v, %d of %d edges are alive", n.name, s.Region.Leased, alive, edges)
		}
	}
	return nil
}

func (f *fleet) get(url string, to any) (err error) {
	resp, err := f.ask.Get(url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	return json.NewDecoder(resp.Body).Decode(to)
}

// observe writes the status log, and records stalls of the machine, until end is called.
func (d *deployment) observe(ctx context.Context) (end func() (stood []judge.Span, err error)) {
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	var stood []judge.Span
	var err error
	all.Go(func() { stood = d.stalls(ctx) })
	all.Go(func() { err = d.logStatus(ctx) })
	return func() ([]judge.Span, error) {
		stop()
		all.Wait()
		return stood, err
	}
}

// died returns the errors of processes that ended unexpectedly.
func (f *fleet) died() error {
	var errs []error
	for _, n := range f.present() {
		errs = append(errs, n.died())
	}
	return errors.Join(errs...)
}

// logStatus writes the status of every process, once a second, to find the cause of a failure afterwards.
func (d *deployment) logStatus(ctx context.Context) (err error) {
	f, err := os.Create(d.path("status.jsonl"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		nodes := d.present()
		lines := make([]string, len(nodes))
		var all sync.WaitGroup
		for i, n := range nodes {
			if !n.ours() {
				continue
			}
			at := d.since()
			all.Go(func() {
				var status json.RawMessage
				if d.get(text(&n.metrics)+"/status", &status) != nil {
					return // it is dead or stopped
				}
				line, err := json.Marshal(map[string]any{"at": at.Seconds(), "node": n.name, "status": status})
				if err == nil {
					lines[i] = string(line) + "\n"
				}
			})
		}
		all.Wait()
		if _, err := f.WriteString(strings.Join(lines, "")); err != nil {
			return err
		}
	}
	return nil
}

// stalls records stalls of this process, and so of the machine.
func (d *deployment) stalls(ctx context.Context) []judge.Span {
	const step, limit = 10 * time.Millisecond, 150 * time.Millisecond
	var out []judge.Span
	tick := time.NewTicker(step)
	defer tick.Stop()
	for last := d.since(); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		now := d.since()
		if now-last > limit {
			out = append(out, judge.Span{From: last, To: now})
		}
		last = now
	}
	return out
}
