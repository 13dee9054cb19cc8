package region

import (
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket/reuse"
	"vestibule/internal/core/wire"
)

// This file decides which line of a copied ticket stays valid.

const (
	// maxLines is the number of sessions per room whose last shown ticket version is remembered.
	maxLines = 1 << 16
	// maxDecided is the maximum number of decisions per room.
	maxDecided = 1 << 10
)

// decided is the line of a copied ticket that stays valid.
type decided struct {
	wire.Line
	at uint32 // Unix second
}

// copies has the copied tickets of a room and the decisions about them.
type copies struct {
	lines     reuse.Book
	decisions []decided // oldest first
}

// observe checks the version of a ticket that an edge renewed against the versions in use at other edges; life is the
// life of tickets. It ignores late reports. If it finds a copy, it returns the line that stays valid and the time at
// which that line was stamped.
func (c *copies) observe(
	m *wire.Move, there, life uint32, latest fleettime.Time,
) (l wire.Line, made uint32, found bool) {
	made = m.Until - 1 - there
	if m.Shown.Stamp == 0 || life == 0 || there == 0 || latest.Second()-int64(made) > reuse.InFlight {
		return l, made, false
	}
	if c.lines.Shown(made, m.ID, &m.Shown, there) != reuse.Found {
		return l, made, false
	}
	return wire.Line{ID: m.ID, Stamp: c.lines.Newest(m.ID)}, made, true
}

// acceptReport handles the report of an edge that found a copied ticket. It reports whether the line of that edge
// stays valid: of several edges that find a copy at the same time, the first one decides.
func (c *copies) acceptReport(l wire.Line, now, life uint32) bool {
	if slices.ContainsFunc(c.decisions, func(d decided) bool { return d.ID == l.ID && now < d.at+2*reuse.InFlight }) {
		return false
	}
	c.lines.Decide(now, l.ID, l.Stamp, life)
	return true
}

// decide sends a decision to every edge. If there is no space for it, it is dropped: the copy will be found again.
func (c *copies) decide(l wire.Line, now, life uint32, to accounts) {
	c.decisions = slices.DeleteFunc(c.decisions, func(d decided) bool { return d.ID == l.ID || now >= d.at+life })
	if len(c.decisions) == maxDecided {
		return
	}
	c.decisions = append(c.decisions, decided{l, now})
	for _, acc := range to {
		acc.lines.Add(l, 0)
		acc.markChanged()
		acc.edge.urgent = true
	}
}

// sendDecisionsTo queues the decisions about tickets that may be valid for a new edge.
func (c *copies) sendDecisionsTo(acc *account, now fleettime.Time, life uint32) {
	for _, d := range c.decisions {
		if now.Second() < int64(d.at+life) {
			acc.lines.Add(d.Line, 0)
			acc.markChanged()
		}
	}
}
