package ceilings

import (
	"fmt"
	"slices"
)

// judge knows the truth: the sessions of which some edge accepts a ticket, and the admissions. It looks at no
// leader's numbers, but for the overcommit that an operator was told of.
type judge struct {
	cfg      *Config
	admitted []Time
	used     float64
	looks    int
	peak     int
	known    int // the most that was reported
	over     int // the most sessions beyond T
	Ceiling  string
}

// look returns the promise that is broken now, or "".
func (j *judge) look(w *World) string {
	inside, guests := w.inside(), 0
	for _, v := range w.visitors {
		if v.guest && w.accepted(v) {
			guests++
		}
	}
	limit := j.cfg.Accounts[0].Limit
	j.peak = max(j.peak, inside)
	j.used += float64(min(inside, limit)) / float64(limit)
	j.looks++
	j.known = max(j.known, w.overcommit())
	allowed := limit + guests + j.known
	if inside > allowed {
		return fmt.Sprintf("tick %d: %d sessions, T %d, known beyond %d", w.now, inside, limit, allowed-limit)
	}
	j.over = max(j.over, inside-limit)
	if j.Ceiling == "" {
		j.Ceiling = j.ceilings(w)
	}
	return j.rate(w)
}

// overcommit is what leaders report.
func (w *World) overcommit() (n int) {
	for _, l := range w.dc.leaders {
		n = max(n, l.Overcommit)
	}
	return n
}

// inside returns how many sessions are valid.
func (w *World) inside() (n int) {
	for _, v := range w.visitors {
		if v.id != 0 && w.accepted(v) {
			n++
		}
	}
	return n
}

// accepted reports whether any edge accepts a ticket of the session.
func (w *World) accepted(v *visitor) bool {
	for i, c := range w.edges {
		if w.present(i) && c.Accepts(w.reading(i), v.id, v.newest) {
			return true
		}
	}
	return false
}

// rate looks at the admissions of a minute.
func (j *judge) rate(w *World) string {
	j.admitted = slices.DeleteFunc(j.admitted, func(t Time) bool { return t <= w.now-minute })
	if len(j.cfg.Accounts) > 1 && len(j.admitted) > j.cfg.Accounts[1].Limit {
		return fmt.Sprintf("tick %d: %d admissions in a minute, R %d", w.now, len(j.admitted), j.cfg.Accounts[1].Limit)
	}
	return ""
}

// ceilings looks at the invariant: what a child may have out is at most what is stored for it.
func (j *judge) ceilings(w *World) string {
	freed := w.dc.store.docs[head].doc.Watermark
	for i, c := range w.edges {
		if !w.present(i) || c.term == 0 || w.reading(i) > c.ended+ticketLife {
			continue
		}
		doc := w.dc.store.docs[Key(i)].doc
		for a := range c.accounts {
			h := &c.accounts[a]
			if n := h.sums.top(max(c.watermark, freed)) + h.credit; n > doc.ceiling(a) {
				return fmt.Sprintf("tick %d: edge %d has %d out of account %d, ceiling %d", w.now, i, n, a, doc.ceiling(a))
			}
		}
	}
	return ""
}
