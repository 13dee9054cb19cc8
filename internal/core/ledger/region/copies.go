package region

import (
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket/reuse"
	"vestibule/internal/core/wire"
)

// This file is about copied tickets: one line of each goes on.

const (
	// maxLines is of how many sessions per room it is remembered which version of the
	// ticket was shown last.
	maxLines = 1 << 16
	// maxDecided bounds the copied tickets of a room that are decided at a time.
	maxDecided = 1 << 10
)

// decided is which line of a copied ticket goes on.
type decided struct {
	wire.Line
	at uint32 // Unix second
}

// copies are the copied tickets of a room, and the line of each that goes on.
type copies struct {
	lines reuse.Book
	only  []decided // oldest first
}

// shown looks at the version of a ticket that an edge renewed, where tickets live for life seconds: it
// may be a copy of one that is in use at other edges. A late report is ignored. It returns the line that
// goes on, and when it was stamped, where a copy is found.
func (c *copies) shown(m *wire.Move, there, life uint32, latest fleettime.Time) (l wire.Line, made uint32, found bool) {
	made = m.Until - 1 - there
	if m.Shown.Stamp == 0 || life == 0 || there == 0 || latest.Second()-int64(made) > reuse.InFlight {
		return l, made, false
	}
	if c.lines.Shown(made, m.ID, &m.Shown, there) != reuse.Found {
		return l, made, false
	}
	return wire.Line{ID: m.ID, Stamp: c.lines.Newest(m.ID)}, made, true
}

// follow takes the report of an edge that found a copied ticket. It reports whether the line of that
// edge goes on: of several edges that find a copy at the same time, the first decides.
func (c *copies) follow(l wire.Line, now, life uint32) bool {
	if slices.ContainsFunc(c.only, func(d decided) bool { return d.ID == l.ID && now < d.at+2*reuse.InFlight }) {
		return false
	}
	c.lines.Decide(now, l.ID, l.Stamp, life)
	return true
}

// decide tells every edge which line of a copied ticket goes on. A ticket for which there is no room
// is found again.
func (c *copies) decide(l wire.Line, now, life uint32, to accounts) {
	c.only = slices.DeleteFunc(c.only, func(d decided) bool { return d.ID == l.ID || now >= d.at+life })
	if len(c.only) == maxDecided {
		return
	}
	c.only = append(c.only, decided{l, now})
	for _, acc := range to {
		acc.lines.Add(l, 0)
		acc.news()
		acc.edge.push = true
	}
}

// tell owes a new edge the decisions about tickets that may still be valid.
func (c *copies) tell(acc *account, now fleettime.Time, life uint32) {
	for _, d := range c.only {
		if now.Second() < int64(d.at+life) {
			acc.lines.Add(d.Line, 0)
			acc.news()
		}
	}
}
