package ceilings

import (
	"maps"
	"math/rand/v2"
)

// tier is one election: a store, the leaders that it elected, and the children that they lend to.
type tier struct {
	cfg      *Config
	rng      *rand.Rand
	store    store
	leaders  []*leader // the newest last
	children int
	off      []Time // by which the clock of a child is wrong
	net      []envelope
	cut      map[link]bool
	loss     float64
	late     int
	lead     Time   // how long a leader's lease is
	until    Time   // end of the newest leader's lease
	delay    []Time // by which the reports of a child are late
	reports  func(t Time, child int) []Report
	apply    func(t Time, child int, g *Grant)
	elected  func(t Time, l *leader)
	figures  func(w *Write)
	clock    Time
}

// leader is one term.
type leader struct {
	*Lender
	until   Time // of its lease
	stays   Time // for how long it goes on after that
	off     Time
	up      *Child // of a regional: its place at global
	covered bool   // what its edges may have out was at most what it holds
}

func (l *leader) active(t Time) bool { return t < l.until+l.stays }

// link is a way that is cut: of a term to a child or to the store, up or down.
type link struct {
	term, peer int
	down       bool
}

const storePeer = -1

type envelope struct {
	at      Time
	deliver func()
}

// send has something delivered now, late, twice, or never.
func (x *tier) send(t Time, l link, deliver func()) {
	loss := x.loss
	if l.peer == storePeer {
		loss /= 3
	}
	if x.cut[l] || x.rng.Float64() < loss {
		return
	}
	x.net = append(x.net, envelope{t + Time(x.rng.IntN(x.late+1)), deliver})
	if x.late > 0 && x.rng.Float64() < .1 {
		x.net = append(x.net, envelope{t + Time(x.rng.IntN(2*x.late+2)), deliver})
	}
}

// elect begins a term if the lease of the last leader is over.
func (x *tier) elect(t Time, stays Time) *leader {
	if t < x.until {
		return nil
	}
	if l := x.top(); l != nil {
		l.until = min(l.until, t) // from now on it has its stay alone, which Overlap allows for
	}
	l := &leader{until: t + x.lead, stays: stays}
	if b := int(x.cfg.Bound); b > 0 {
		l.off = Time(x.rng.IntN(2*b+1) - b)
	}
	l.Lender = NewLender(t+l.off, x.cfg, len(x.leaders)+1)
	x.until = l.until
	x.leaders = append(x.leaders, l)
	if x.elected != nil {
		x.elected(t, l)
	}
	return l
}

// hold extends the newest leader's lease while it reaches the store and leads.
func (x *tier) hold(t Time) {
	if l := x.top(); l != nil && t < l.until && !l.replaced && !x.cut[link{l.term, storePeer, false}] {
		l.until = t + x.lead
		x.until = l.until
	}
}

func (x *tier) top() *leader {
	if len(x.leaders) == 0 {
		return nil
	}
	return x.leaders[len(x.leaders)-1]
}

// acting are the leaders that may act: the newest two terms.
func (x *tier) acting(t Time) (list []*leader) {
	for _, l := range x.leaders[max(0, len(x.leaders)-2):] {
		if l.active(t) {
			list = append(list, l)
		}
	}
	return list
}

// report sends the reports of a child to whoever may lead.
func (x *tier) report(t Time, child int) {
	for _, r := range x.reports(t, child) {
		for _, l := range x.acting(t) {
			x.send(t+x.delay[child], link{l.term, child, false}, func() {
				if l.active(x.clock) {
					l.Observe(x.clock+l.off, &r)
				}
			})
		}
	}
}

// deliver delivers what is due, in any order, and asks the store what the leaders ask.
func (x *tier) deliver(t Time) {
	x.clock = t
	for range 3 {
		var due, rest []envelope
		for _, e := range x.net {
			if e.at <= t {
				due = append(due, e)
			} else {
				rest = append(rest, e)
			}
		}
		x.net = rest
		x.rng.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
		for _, e := range due {
			e.deliver()
		}
		x.flush(t)
	}
}

func (x *tier) flush(t Time) {
	for _, l := range x.acting(t) {
		for _, w := range l.Writes(t + l.off) {
			x.send(t, link{l.term, storePeer, false}, func() {
				a := x.store.do(&w)
				if a.Done && x.figures != nil {
					x.figures(&w)
				}
				x.send(x.clock, link{l.term, storePeer, true}, func() {
					if l.active(x.clock) {
						l.Stored(x.clock+l.off, &a)
					}
				})
			})
		}
	}
}

// step lets a leader send its grants.
func (x *tier) step(t Time, l *leader) {
	for _, g := range l.Grants(t + l.off) {
		x.send(t, link{l.term, g.To, true}, func() { x.apply(x.clock, g.To, &g) })
	}
}

// sever cuts a leader from a child or from the store, both ways.
func (x *tier) sever(term, peer int) {
	x.cut[link{term, peer, false}], x.cut[link{term, peer, true}] = true, true
}

// store is a key-value store with revisions.
type store struct {
	docs     map[Key]stored
	revision int
}

type stored struct {
	rev int
	doc Doc
}

func (s *store) clone() store { return store{maps.Clone(s.docs), s.revision} }

// do makes a write if the document has the expected revision.
func (s *store) do(w *Write) Answer {
	at := s.docs[w.Key]
	a := Answer{Key: w.Key, Of: w.Doc.Seq, Revision: at.rev, Doc: at.doc}
	if w.Expect == readOnly || (w.Expect != at.rev && !w.Blind) {
		return a
	}
	s.revision++
	s.docs[w.Key] = stored{s.revision, w.Doc}
	a.Done, a.Revision, a.Doc = true, s.revision, w.Doc
	return a
}
