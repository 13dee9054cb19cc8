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

// busy is the number of rooms with traffic, and of active visitors. Each visitor asks every askEvery.
const (
	busy     = 20
	askEvery = 20 * time.Millisecond
)

// measureTraffic lets active visitors into the first rooms, and prints and returns the edge's CPU time per request.
func (f *nodes) measureTraffic(ctx context.Context, out io.Writer, rooms int, length time.Duration) (time.Duration,
	error,
) {
	people := make([]func() error, busy) // each sends one request
	for i := range people {
		v := visitor.Visitor{
			Client: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute},
			Host:   fmt.Sprintf("a-%d.example", i%rooms), Site: site.Header,
		}
		defer v.Client.CloseIdleConnections()
		people[i] = func() error {
			a, err := v.AskJSON(ctx, f.edge.at["url"]+f.paths[i%rooms], false)
			if err == nil && !a.Inside {
				err = errors.New("a visitor has no session")
			}
			return err
		}
		if err := until(ctx, "somebody is let in", func() bool { return people[i]() == nil }); err != nil {
			return 0, err
		}
	}
	before, err := used(f.edge.PID())
	if err != nil {
		return 0, err
	}
	var asked atomic.Int64
	var all sync.WaitGroup
	faults := make([]error, busy)
	begun := time.Now()
	for i, request := range people {
		all.Go(func() {
			tick := time.NewTicker(askEvery)
			defer tick.Stop()
			for time.Since(begun) < length && faults[i] == nil {
				<-tick.C
				faults[i] = request()
				asked.Add(1)
			}
		})
	}
	all.Wait()
	passed := time.Since(begun)
	after, err := used(f.edge.PID())
	if err = errors.Join(append(faults, err)...); err != nil {
		return 0, err
	}
	perRequest := (after - before) / time.Duration(asked.Load())
	row(out, fmt.Sprintf("CPU of bin/edge, %d rooms, %d people inside who ask", rooms, busy),
		fmt.Sprintf("%.1f us per request at %.0f/s", float64(perRequest)/1e3, float64(asked.Load())/passed.Seconds()), "-")
	return perRequest, nil
}
