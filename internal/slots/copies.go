package slots

import (
	"slices"

	"vestibule/internal/fleet"
	"vestibule/internal/lineage"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// This file is about tickets of which there are copies: one line of each goes on.

const (
	// maxLines is of how many sessions per room it is remembered which version of the
	// ticket was shown last.
	maxLines = 1 << 16
	// maxDecided is of how many copied tickets per room it is decided at a time who goes on.
	maxDecided = 1 << 10
)

// decided is which line of a copied ticket goes on.
type decided struct {
	wire.Line
	at uint32 // Unix second
}

// takeShown looks at the version of a ticket that an edge renewed: it may be a copy of
// one that others go on with at other edges. What is told late says nothing.
func (b *books) takeShown(acc *account, m wire.Move, latest fleet.Time) {
	made := m.Until - 1 - acc.life
	if m.Shown.Stamp == 0 || b.life == 0 || acc.life == 0 || latest.Second()-int64(made) > lineage.InFlight || mutant.On(mutant.EdgesFollowAlone) {
		return
	}
	if b.lines.Shown(made, m.ID, &m.Shown, wire.RenewAfter(acc.life), acc.life) == lineage.Found {
		b.decide(wire.Line{ID: m.ID, Stamp: b.lines.Followed(m.ID)}, made)
	}
}

// takeCopied decides about the tickets that an edge found to be copied. Edges that find
// it at the same time follow the line of whoever told first.
func (b *books) takeCopied(r *wire.RoomReport, latest fleet.Time) {
	now := uint32(latest.Second())
	for _, l := range r.Copied {
		if mutant.On(mutant.EdgesFollowAlone) || slices.ContainsFunc(b.only, func(d decided) bool { return d.ID == l.ID && now < d.at+2*lineage.InFlight }) {
			continue
		}
		b.lines.Decide(now, l.ID, l.Stamp, b.life)
		b.decide(l, now)
	}
}

// decide tells every edge which line of a copied ticket goes on.
func (b *books) decide(l wire.Line, now uint32) {
	b.only = slices.DeleteFunc(b.only, func(d decided) bool { return d.ID == l.ID || now >= d.at+b.life })
	if len(b.only) == maxDecided {
		return // found again, once there is room
	}
	b.only = append(b.only, decided{l, now})
	for _, acc := range b.accounts {
		acc.lines.Add(l, 0)
		acc.news()
		acc.edge.push = true
	}
}

// tellLines owes an edge that is new what was decided of tickets that may be valid yet.
func (b *books) tellLines(acc *account, now fleet.Time) {
	for _, d := range b.only {
		if now.Second() < int64(d.at+b.life) {
			acc.lines.Add(d.Line, 0)
			acc.news()
		}
	}
}
