//go:build linux

package main

import (
	"context"
	"sync"
	"time"

	"vestibule/internal/lab/judge"
)

// links tracks cut and slow links, with the number of concurrent faults.
type links struct {
	gates map[string]*gateway

	mu   sync.Mutex
	cuts map[[2]string]int
	heal map[[2]string]func() error
	slow map[slowness]bool

	narrowed map[string][]judge.Span // low bandwidth, by place: connections take seconds
}

// slowness is a place with its kind of slowness.
type slowness struct {
	kind  *kind
	place string
}

func newLinks(d *deployment) *links {
	return &links{
		gates: d.gates, cuts: map[[2]string]int{}, heal: map[[2]string]func() error{}, slow: map[slowness]bool{},
		narrowed: map[string][]judge.Span{},
	}
}

func (in *injector) cut(ctx context.Context, f fault) error {
	in.j.record("cut one way", "cut      %s -> %s for %.1f s", f.place, f.to, f.lasts.Seconds())
	return in.links.drop(ctx, f.lasts, [2]string{f.place, f.to})
}

// part drops packets between a place and all others.
func (in *injector) part(ctx context.Context, f fault) error {
	in.j.record("cut off", "cut off  %s from all others for %.1f s", f.place, f.lasts.Seconds())
	var pairs [][2]string
	for _, o := range places {
		if o != f.place {
			pairs = append(pairs, [2]string{f.place, o}, [2]string{o, f.place})
		}
	}
	return in.links.drop(ctx, f.lasts, pairs...)
}

// drop drops packets from one place to another for a while.
func (l *links) drop(ctx context.Context, d time.Duration, pairs ...[2]string) error {
	if err := l.each(pairs, l.cut); err != nil {
		return err
	}
	sleep(ctx, d)
	return l.each(pairs, l.mend)
}

// narrow limits the bandwidth of a place.
func (in *injector) narrow(ctx context.Context, f fault) error {
	l, begun := in.links, in.since()
	slowed, err := l.slowDown(ctx, f, func() (func() error, error) {
		in.j.record("narrowed", "narrow   the way to %s for %.1f s", f.place, f.lasts.Seconds())
		return narrow(f.place)
	})
	if slowed {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.narrowed[f.place] = append(l.narrowed[f.place], judge.Span{From: begun, To: in.since()})
	}
	return err
}

// late delays the messages of a place.
func (in *injector) late(ctx context.Context, f fault) error {
	_, err := in.links.slowDown(ctx, f, func() (func() error, error) {
		in.j.record("made late", "late     %s's nodes and NATS hear each other %v later, for %.1f s", f.place, f.by,
			f.lasts.Seconds())
		return in.links.gates[f.place].late(f.by), nil
	})
	return err
}

// slowDown slows a place down for a while, unless it is slow in the same way already.
func (l *links) slowDown(ctx context.Context, f fault, begin func() (heal func() error, err error)) (bool, error) {
	key := slowness{f.kind, f.place}
	l.mu.Lock()
	taken := l.slow[key]
	l.slow[key] = true
	l.mu.Unlock()
	if taken {
		return false, nil
	}
	heal, err := begin()
	if err != nil {
		return false, err
	}
	sleep(ctx, f.lasts)
	err = heal()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slow[key] = false
	return true, err
}

func (l *links) each(pairs [][2]string, do func([2]string) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range pairs {
		if err := do(p); err != nil {
			return err
		}
	}
	return nil
}

func (l *links) cut(p [2]string) (err error) {
	if l.cuts[p]++; l.cuts[p] == 1 {
		l.heal[p], err = cut(p[0], p[1])
	}
	return err
}

func (l *links) mend(p [2]string) error {
	if l.cuts[p]--; l.cuts[p] == 0 {
		return l.heal[p]()
	}
	return nil
}
