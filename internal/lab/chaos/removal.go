//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"vestibule/internal/lab/judge"
)

const (
	removedAfter  = 65 * time.Second // longer than the lease of its regionals
	grantedWithin = 3 * time.Minute
)

// removal cuts a data centre off, and removes it by force while its visitors have tickets: under partition_policy cap the
// others get its permits once these have expired, and not before.
func removal(ctx context.Context, t *trial) error {
	lost, permits := places[1], regexp.MustCompile(`(?m)^`+places[0]+`\s+active\s+(\d+)\s`)
	held := func() (n int, err error) { // of all rooms: as long as the other holds its part, less than T of one
		list, err := t.command(ctx, "fleet", "list")
		if m := permits.FindStringSubmatch(list); m != nil {
			return strconv.Atoi(m[1])
		}
		return 0, errors.Join(err, errors.New(list))
	}
	sleep(ctx, t.o.session+10*time.Second) // the room is full
	cut, heal := context.WithCancel(ctx)
	defer heal()
	link, begun := make(chan error, 1), t.since()
	go func() { link <- t.in.part(cut, fault{place: lost, lasts: time.Hour}) }()
	sleep(ctx, removedAfter)
	n, done := 0, false
	err := t.wait(ctx, time.Minute, func() (err error) { // the first server that it asks may be the one that is cut off
		if !done {
			_, err = t.command(ctx, "fleet", "remove", lost, "--force")
			done = err == nil
		}
		if err == nil {
			n, err = held()
		}
		return err
	})
	if err != nil {
		return err
	}
	t.j.record("removed by force", "remove   %s, %.1f s after it was cut off; %s has %d permits of T", lost,
		(t.since() - begun).Seconds(), places[0], n)
	err = t.wait(ctx, grantedWithin, func() (err error) {
		if n, err = held(); err == nil && n < t.o.total {
			err = fmt.Errorf("%s has %d permits of T", places[0], n)
		}
		return err
	})
	if err != nil {
		return err
	}
	t.j.record("", "%s has %d permits of T, %.1f s after the cut", places[0], n, (t.since() - begun).Seconds())
	sleep(ctx, 2*t.o.session) // they are used
	heal()
	if err := <-link; err != nil {
		return err
	}
	for _, e := range t.of("edge", lost) {
		e.outages = append(e.outages, judge.Span{From: begun, To: t.since() + t.o.session})
	}
	return nil
}
