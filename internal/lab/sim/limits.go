package sim

import (
	"slices"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/ledger/root"
)

// limits are the limits that bind, by the world alone: the operator's settings, the processes and the links.
//
// A raised limit binds at once. A lowered one binds the newcomers of every edge that can hear of it: one that has been
// connected to the newest regional, and that to the newest coordinator, for long enough. It binds everybody once all
// edges and data centres have heard of it, even if they are cut off since, and no more sessions, or admissions of the
// last minute, are left than it allows. Before, an edge that is cut off may use what it was lent, up to the highest
// limit since.
type limits struct {
	set     limit // by the operator
	highest limit // that may be in use anywhere
	lowered struct{ total, rate int64 }

	at      int64 // of the newest look at the links
	edges   []hearing
	centres []hearing // the way from the regional
}

type limit struct{ total, rate int }

// hearing is the way from an edge to the coordinator, and since when it has been whole.
type hearing struct {
	edge     *admission.Engine
	regional *region.Aggregator
	global   *root.Allocator
	since    int64
	knows    int64 // every change before this time was obeyed
}

// observe looks at the way now.
func (h *hearing) observe(now, settling int64, is hearing, whole bool) {
	is.since, is.knows = h.since, h.knows
	if is != *h || !whole {
		is.since = now
	}
	if now-is.since > settling {
		is.knows = now - settling
	}
	*h = is
}

// observe reads the operator's limits, and now and then the links.
func (l *limits) observe(j *oracle) {
	was := l.set
	l.set.total, l.set.rate, _ = j.doc.limits()
	if l.set.total < was.total {
		l.lowered.total = j.now
	}
	if l.set.rate < was.rate {
		l.lowered.rate = j.now
	}
	l.highest.total, l.highest.rate = max(l.highest.total, l.set.total), max(l.highest.rate, l.set.rate)
	if j.now-l.at < int64(100*time.Millisecond) {
		return
	}
	l.at = j.now
	if n := len(j.fleet.centres.all) - len(l.centres); n > 0 {
		l.centres = append(l.centres, make([]hearing, n)...)
	}
	if n := len(j.edges.all) - len(l.edges); n > 0 {
		l.edges = append(l.edges, make([]hearing, n)...)
	}
	knows, some := j.now, false
	for i, r := range j.fleet.centres.all {
		h := &l.centres[i]
		if f := &j.cfg.Faults; h.regional != r.newest().core && (f.Wipe || f.Blank || f.Rollback || f.Torn) {
			h.knows = 0 // its successor need not know of the bound
		}
		h.observe(j.now, l.settling(j), hearing{regional: r.newest().core, global: j.globals.newest().core}, j.linked(r))
		back := slices.ContainsFunc(r.edges, func(e *edgeNode) bool { return e.back })
		if !r.lost && (back || !j.centres[i].forsaken) { // what it does once it is back counts
			knows, some = min(knows, h.knows), true
		}
	}
	for i, e := range j.edges.all {
		h := &l.edges[i]
		if h.edge != e.core {
			h.knows = l.centres[e.centre.id].knows // it has the permits that it gets there
		}
		h.observe(j.now, l.settling(j), hearing{
			edge: e.core, regional: e.centre.newest().core,
			global: j.globals.newest().core,
		}, j.hears(e))
		if !e.down && (e.back || !j.centres[e.centre.id].forsaken) {
			knows = min(knows, h.knows)
		}
	}
	if !some {
		return // no session counts
	}
	if l.highest.total > l.set.total && knows > l.lowered.total && len(j.tickets) <= l.set.total {
		l.highest.total = l.set.total
	}
	if l.highest.rate > l.set.rate && knows > l.lowered.rate && j.rate(j.now) <= l.set.rate {
		l.highest.rate = l.set.rate
	}
}

// settling is the time in which a change reaches a connected edge, and its unused permits are taken back.
func (l *limits) settling(j *oracle) int64 {
	f := &j.cfg.Faults
	d := 10*time.Second + 2*f.Late + 2*f.Vague
	if f.Disk {
		d += 10 * time.Second
	}
	return int64(d)
}

// of returns the limits that bind the newcomers of an edge.
func (l *limits) of(j *oracle, e *edgeNode) limit {
	l.observe(j)
	out := l.highest
	i := slices.Index(j.edges.all, e)
	if i >= len(l.edges) || j.centres[e.centre.id].forsaken || !j.hears(e) {
		return out
	}
	since := l.edges[i].since
	if j.now-max(since, l.lowered.total) > l.settling(j) {
		out.total = l.set.total
	}
	if j.now-max(since, l.lowered.rate) > l.settling(j) {
		out.rate = l.set.rate
	}
	return out
}

// hears reports whether an edge is connected to its newest regional, and that to the newest coordinator.
func (fl *fleet) hears(n *edgeNode) bool {
	return fl.edges.connected(n) && fl.linked(n.centre)
}

// linked reports whether the newest regional of a data centre is connected to the newest coordinator.
func (fl *fleet) linked(r *dataCentre) bool {
	n, g := r.newest(), fl.globals.newest()
	return fl.up(&n.proc) && fl.up(&g.proc) && max(r.cutUp, r.cutDown, r.failing) <= fl.now &&
		g.members == fl.list.store &&
		fl.net.meet(&n.proc, &g.proc)
}

// up reports whether a process runs.
func (k *kernel) up(p *proc) bool { return !p.gone && !p.doomed && p.asleep <= k.now }
