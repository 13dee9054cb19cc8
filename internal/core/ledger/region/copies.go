package region

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket/reuse"
	"vestibule/internal/core/wire"
)

// This file decides which line of a copied ticket stays valid.

const (
	// maxLines is the number of sessions per room whose last shown ticket version is remembered.
	maxLines = 1 << 16
	// lateReport is the age in seconds of a renewal from which a report of it is ignored.
	lateReport = 5
	// sameFinding is how long edges may find the same copy after one of them has, in seconds.
	sameFinding = 10
)

// copies has the copied tickets of a room and the decisions about them.
type copies struct {
	lines reuse.Book
}

// observe checks the version of a ticket that an edge renewed against the versions in use at other edges; life is the
// life of tickets. It ignores late reports. If it finds a copy, it decides, and returns the line that stays valid.
func (c *copies) observe(
	m *wire.Move, there, life uint32, latest fleettime.Time,
) (l wire.Line, found bool) {
	made := m.Until - 1 - there
	if m.Shown.Stamp == 0 || life == 0 || there == 0 || latest.Second()-int64(made) > lateReport {
		return l, false
	}
	c.lines.Keep(m.ID, m.Until+life)
	if c.lines.Shown(made, m.ID, &m.Shown, there) != reuse.Found {
		return l, false
	}
	return wire.Line{ID: m.ID, Stamp: c.lines.Newest(m.ID)}, true
}

// acceptReport handles the report of an edge that found a copied ticket. It reports whether the line of that edge
// stays valid: of several edges that find a copy at the same time, the first one decides.
func (c *copies) acceptReport(l wire.Line, now, life uint32) bool {
	if stamp, at := c.lines.Decision(now, l.ID); at != 0 && (stamp == l.Stamp || now < at+sameFinding) {
		return false
	}
	c.lines.Decide(now, l.ID, l.Stamp, life)
	return true
}

// send sends a decision to every edge. An edge with a full outbox does not get it, and finds the copy again.
func (c *copies) send(l wire.Line, to accounts) {
	for _, acc := range to {
		acc.lines.Add(l, 0)
		acc.markChanged()
		acc.edge.urgent = true
	}
}

// sendAllTo queues the decisions in force for a new edge: it may be shown old tickets for as long as the others.
func (c *copies) sendAllTo(acc *account, now fleettime.Time) {
	at := uint32(now.Second())
	for _, id := range c.lines.Decided(at) {
		stamp, _ := c.lines.Decision(at, id)
		acc.lines.Add(wire.Line{ID: id, Stamp: stamp}, 0)
		acc.markChanged()
	}
}
