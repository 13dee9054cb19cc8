package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/lab/site"
	"vestibule/internal/lab/visitor"
)

const (
	busy     = 20 // rooms with traffic, and active visitors
	askEvery = 20 * time.Millisecond
	turns    = 3
)

// traffic compares the edges' CPU time for the same request rate in the only room of one fleet and in a few of the
// many rooms of another. They alternate; the other edge is idle.
func traffic(ctx context.Context, out io.Writer, bin string, rooms, edges int, watch time.Duration) error {
	begun := time.Now()
	shop, err := site.Open("127.0.0.1", func() time.Duration { return time.Since(begun) })
	if err != nil {
		return err
	}
	defer shop.Close() // the run is over
	var fleets [2]*crowd
	for i, n := range []int{1, rooms} {
		f, _, err := startFleet(ctx, bin, n, shop.URL())
		if err != nil {
			return err
		}
		defer f.stop()
		stop, err := others(f.nats, n, edges-1)
		if err != nil {
			return err
		}
		defer stop()
		if fleets[i], err = enter(ctx, f, n); err != nil {
			return err
		}
		defer fleets[i].leave()
	}
	var asked [2]int64
	var worked, idle [2]time.Duration
	passed := time.Duration(0)
	for turn := range 2 * turns {
		i := turn % 2
		before, err := usedBy(fleets)
		if err != nil {
			return err
		}
		begun := time.Now()
		n, err := fleets[i].sendRequests(ctx, watch/turns)
		if err != nil {
			return err
		}
		asked[i] += n
		passed += time.Since(begun)
		after, err := usedBy(fleets)
		if err != nil {
			return err
		}
		worked[i] += after[i] - before[i]
		idle[1-i] += after[1-i] - before[1-i]
	}
	half := passed.Seconds() / 2
	for i, what := range []string{"one room", fmt.Sprintf("%d rooms", rooms)} {
		row(out, fmt.Sprintf("idle CPU of bin/edge, %s, %d people inside who do nothing", what, busy), fmt.Sprintf("%.2f %% of a core", 100*idle[i].Seconds()/half), "<= 0.5 %")
		row(out, fmt.Sprintf("CPU of bin/edge, %s, %d people inside who ask", what, busy),
			fmt.Sprintf("%.1f us per request at %.0f/s", float64(worked[i].Microseconds())/float64(asked[i]), float64(asked[i])/half), "-")
	}
	row(out, fmt.Sprintf("%d rooms, %d with traffic, beside one room, per request", rooms, min(busy, rooms)),
		fmt.Sprintf("%.3f", worked[1].Seconds()/float64(asked[1])/(worked[0].Seconds()/float64(asked[0]))), "<= 1.1")
	return nil
}

// usedBy returns the CPU time of the edges.
func usedBy(fleets [2]*crowd) (out [2]time.Duration, err error) {
	for i, c := range fleets {
		if out[i], err = used(c.f.edge.PID()); err != nil {
			return out, err
		}
	}
	return out, nil
}

// crowd is a number of active visitors in the first rooms of a fleet.
type crowd struct {
	f      *nodes
	people []*person
}

// person is a visitor of one room.
type person struct {
	visitor.Visitor
	url string
}

// enter admits visitors to the first rooms of a fleet.
func enter(ctx context.Context, f *nodes, rooms int) (*crowd, error) {
	c := &crowd{f: f}
	for i := range busy {
		at := i % rooms
		p := &person{url: f.edge.at["url"] + f.paths[at], Visitor: visitor.Visitor{
			Client: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}, Host: fmt.Sprintf("a-%d.example", at), Site: site.Header,
		}}
		c.people = append(c.people, p)
		if err := until(ctx, "somebody is let in", func() bool {
			inside, err := p.request(ctx)
			return err == nil && inside
		}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *crowd) leave() {
	for _, p := range c.people {
		p.Client.CloseIdleConnections()
	}
}

// sendRequests sends requests at a steady rate for length, and returns their number.
func (c *crowd) sendRequests(ctx context.Context, length time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, length, nil)
	defer cancel()
	var n atomic.Int64
	var all sync.WaitGroup
	faults := make(chan error, len(c.people))
	for _, p := range c.people {
		all.Go(func() {
			tick := time.NewTicker(askEvery)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				inside, err := p.request(context.WithoutCancel(ctx))
				if err == nil && !inside {
					err = errors.New("a visitor lost its session")
				}
				if err != nil {
					faults <- err
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	close(faults)
	return n.Load(), <-faults
}

// request sends a request, and reports whether the site answered.
func (p *person) request(ctx context.Context) (inside bool, err error) {
	req, err := p.Request(ctx, p.url)
	if err != nil {
		return false, err
	}
	a, err := p.Do(req)
	return a.Inside, err
}
