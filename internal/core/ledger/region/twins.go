package slots

import (
	"slices"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// This file tells processes apart that bear one edge's name: who has succeeded whom,
// and who is another edge.

// hasEnded reports whether an edge has ended: a process of its name told that it uses
// the data folder which that edge used, or an operator told so, to us or to a predecessor,
// and the edge was not heard since. The name alone proves nothing: two processes may have
// got one by mistake.
func (r *roster) hasEnded(e *edge) bool {
	if e.belied && !mutant.On(mutant.BeliedEnded) {
		return false
	}
	return e.forgotten || e.ended != 0 || slices.ContainsFunc(r.edges, func(o *edge) bool {
		return o.name == e.name && o.state != awaiting && o.state != lost && o.proves(e)
	})
}

// endedNow notes for all successors that an edge of a predecessor has ended by now.
func (l *lives) endedNow(now fleet.Mono, e *edge) {
	e.ended = l.latest(now).Second() + 1
	l.stored.patch(e, func(r *wire.RosterEntry) { r.Ended = e.ended })
}

// proves reports whether o has told that e ended before it began.
func (o *edge) proves(e *edge) bool {
	return o != e && (slices.Contains(o.succeeds, e.inc) || (o.num > e.num && mutant.On(mutant.TwinSucceeds)))
}

// claim takes note of which incarnations an edge tells that they have ended. From
// here on a word of one of them that was written later belies it.
func (l *lives) claim(now fleet.Mono, by *edge, m *wire.Report) {
	if len(m.Succeeds) == 0 || slices.Equal(by.succeeds, m.Succeeds) {
		return
	}
	by.succeeds = m.Succeeds
	for _, e := range l.roster.edges {
		if e.name == by.name && by.proves(e) {
			l.roster.claimed(e, l.latest(now))
		}
	}
	for _, inc := range m.Succeeds {
		l.rooms.found(inc)
	}
}

// claimed takes note that an incarnation has ended, as another one or an operator tells;
// latest is what fleet time is at most.
func (r *roster) claimed(e *edge, latest fleet.Time) {
	if e.claimed == 0 {
		e.claimed, e.claimedAt = r.said+1, latest
	}
}

// belie takes note of a report that an edge wrote after another one told that it has
// ended: it answers a grant that was sent later, or was written later by every clock.
// So the folder has lied, as that of a machine that was cloned while it ran does. What
// the edge did meanwhile was counted nowhere.
func (r *roster) belie(e *edge, m *wire.Report) {
	if e.claimed == 0 || e.belied || (m.Acked < e.claimed && (!isSynced(m) || earliest(m) <= e.claimedAt)) {
		return
	}
	e.belied = true
	r.unknownEdges++
	r.lastUnknown = e.name
}

// meetTwins finds the edges of one name that live beside each other: each has answered
// what was sent after the other one was known.
func (r *roster) meetTwins() {
	for i, n := 0, 0; i < len(r.edges); i = n {
		for n = i + 1; n < len(r.edges) && r.edges[n].name == r.edges[i].name; {
			n++
		}
		same := r.edges[i:n]
		for _, e := range same {
			was := e.twin
			e.twin = e.state == alive && slices.ContainsFunc(same, func(o *edge) bool {
				return o != e && o.state == alive && o.acked > e.first && e.acked > o.first
			})
			if e.twin && !was {
				r.twins++
				e.due = true // it is told at once
			}
		}
	}
}
