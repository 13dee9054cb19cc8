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

	since    func() time.Duration
	narrowed map[string][]judge.Span // low bandwidth, by place: connections take seconds
}

// slowness is a place with its kind of slowness.
type slowness struct {
	act   act
	place string
}

func newLinks(d *deployment) *links {
	return &links{
		gates: d.gates, cuts: map[[2]string]int{}, heal: map[[2]string]func() error{}, slow: map[slowness]bool{},
		since: d.since, narrowed: map[string][]judge.Span{},
	}
}

func (l *links) do(ctx context.Context, f fault, j *journal) error {
	if f.act == actNarrow || f.act == actLate {
		return l.slowDown(ctx, f, j)
	}
	var pairs [][2]string
	if f.act == actCut {
		j.record("cut one way", "cut      %s -> %s for %.1f s", f.place, f.to, f.lasts.Seconds())
		pairs = append(pairs, [2]string{f.place, f.to})
	} else {
		j.record("cut off", "cut off  %s from all others for %.1f s", f.place, f.lasts.Seconds())
		for _, o := range places {
			if o != f.place {
				pairs = append(pairs, [2]string{f.place, o}, [2]string{o, f.place})
			}
		}
	}
	if err := l.each(pairs, l.cut); err != nil {
		return err
	}
	sleep(ctx, f.lasts)
	return l.each(pairs, l.mend)
}

// slowDown limits the bandwidth of a place, or delays its messages.
func (l *links) slowDown(ctx context.Context, f fault, j *journal) error {
	key := slowness{f.act, f.place}
	l.mu.Lock()
	taken := l.slow[key]
	l.slow[key] = true
	l.mu.Unlock()
	var heal func() error
	var err error
	switch {
	case taken:
		j.record("", "(%s is slow already)", f.place)
		return nil
	case f.act == actLate:
		j.record("made late", "late     %s's nodes and NATS hear each other %v later, for %.1f s",
			f.place, f.by, f.lasts.Seconds())
		heal = l.gates[f.place].late(f.by)
	default:
		j.record("narrowed", "narrow   the way to %s for %.1f s", f.place, f.lasts.Seconds())
		heal, err = narrow(f.place)
	}
	if err != nil {
		return err
	}
	begun := l.since()
	sleep(ctx, f.lasts)
	err = heal()
	l.mu.Lock()
	if f.act == actNarrow {
		l.narrowed[f.place] = append(l.narrowed[f.place], judge.Span{From: begun, To: l.since()})
	}
	l.slow[key] = false
	l.mu.Unlock()
	return err
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
