package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/ticket/reuse"
	"vestibule/internal/core/wire"
)

// tickets is what an edge remembers of the tickets of a room's sessions: until when it
// stamped them, and which versions of them were shown.
type tickets struct {
	recent reuse.Recent[stamped]
	lines  reuse.Book             // of the versions that were shown here to be renewed
	copied uint64                 // sessions whose ticket was found to be copied
	found  wire.Outbox[wire.Line] // those, for the regional
}

func newTickets(limit int) tickets {
	return tickets{recent: reuse.NewRecent[stamped](limit), lines: reuse.NewBook(limit, reuse.InFlight)}
}

// stamped is what an edge remembers of a session that it stamped: the newest expiry
// second, and when it stamped it first.
type stamped struct {
	until, since uint32
	net          uint32 // as ticket.Ticket has it
}

// over is the expiry second that is remembered of a session that was ended.
const over = 1

// remember notes that the session of a ticket was stamped until second until.
func (k *tickets) remember(second uint32, t *ticket.Ticket, until uint32) {
	s := k.recent.Get(t.ID)
	if s.until, s.net = until, t.Net; s.since == 0 {
		s.since = second
	}
	k.recent.Put(t.ID, s)
}

// used reports whether a session is remembered that a ticket was stamped for.
func (k *tickets) used(id uint64) bool { return k.recent.Get(id) != (stamped{}) }

// kept reports whether t may be what the browser has of a session that this edge knows
// to be valid, because replies were lost. They are not lost for a whole session: who
// still shows the place two sessions after the turn, or a pass a session after its end,
// keeps an old ticket.
func (k *tickets) kept(ft fleettime.Time, t *ticket.Ticket, life uint32) bool {
	if life == 0 {
		return true
	}
	if t.IsAdmitted() {
		return ft.Second() < int64(t.Until+life)
	}
	return ft.Second() < int64(k.recent.Get(t.ID).since+2*life)
}

// show follows the lines of a session's ticket with t, the version of it that is to be
// renewed. It returns whether t is a copy that somebody else goes on with, and whether
// the ticket was found to be copied just now. Where t is no copy, what follows from it
// is of the line that is followed.
func (k *tickets) show(second uint32, t *ticket.Ticket, life uint32) (isCopy, found bool) {
	v := version(t)
	switch k.lines.Shown(second, t.ID, &v, wire.RenewAfter(life), life) {
	case reuse.Copy:
		return true, false
	case reuse.Found:
		k.copied++
		k.found.Add(wire.Line{ID: t.ID, Stamp: k.lines.Followed(t.ID)}, 0)
		found = true
	case reuse.Fine:
	}
	if v.Stamp != 0 {
		t.Root = v.Root
	}
	return false, found
}

// version returns which version of its session's ticket t is.
func version(t *ticket.Ticket) reuse.Version {
	if t.Stamp == 0 {
		return reuse.Version{}
	}
	return reuse.Version{Stamp: t.Stamp, Parent: t.Parent, Root: t.Root, Seen: t.Seen}
}

// elsewhere reports whether a ticket whose session is bound to net is shown in another
// network.
func elsewhere(t *ticket.Ticket, net uint32) bool {
	return ticket.Elsewhere(t.ID, net, t.Network)
}
