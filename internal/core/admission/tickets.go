package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/ticket/reuse"
	"vestibule/internal/core/wire"
)

// tickets is an edge's memory of session tickets: their newest expiry, and the versions that were presented.
type tickets struct {
	recent reuse.Recent[stamped]
	lines  reuse.Book             // versions presented here for renewal
	copied uint64                 // sessions with a detected copy
	found  wire.Outbox[wire.Line] // those, for the regional
}

func newTickets(limit int) tickets {
	return tickets{recent: reuse.NewRecent[stamped](limit), lines: reuse.NewBook(limit, reuse.InFlight)}
}

// stamped is an edge's memory of a session: the newest expiry second, and the first stamp.
type stamped struct {
	until, since uint32
	net          uint32 // as in ticket.Ticket
	live         bool   // it was renewed by a connection, which gives the visitor no ticket
}

// over is the remembered expiry second of a revoked session.
const over = 1

// remember records a stamp of a ticket's session until second until.
func (k *tickets) remember(second uint32, t *ticket.Ticket, until uint32) {
	s := k.recent.Get(t.ID)
	if s.until, s.net = until, t.Net; s.since == 0 {
		s.since = second
	}
	k.recent.Put(t.ID, s)
}

// used reports whether a session of this ticket is remembered.
func (k *tickets) used(id uint64) bool { return k.recent.Get(id) != (stamped{}) }

// kept reports whether t may still be a browser's ticket of a session known to be valid here, because responses
// were lost. They are not lost for a whole session: a place presented two sessions after the admission, or a
// session ticket presented a session after its expiry, is an old copy. A connection may keep a session for hours.
func (k *tickets) kept(ft fleettime.Time, t *ticket.Ticket, life uint32) bool {
	if life == 0 {
		return true
	}
	if t.IsAdmitted() {
		return ft.Second() < int64(t.Until+life) || k.recent.Get(t.ID).live
	}
	return ft.Second() < int64(k.recent.Get(t.ID).since+2*life)
}

// show records that version t of a session's ticket is presented for renewal. It returns whether t is a copy while
// another client continues, and whether the copy was detected just now. If t is no copy, it gets the
// root of the line that continues.
func (k *tickets) show(second uint32, t *ticket.Ticket, life uint32) (isCopy, found bool) {
	v := version(t)
	switch k.lines.Shown(second, t.ID, &v, life) {
	case reuse.Copy:
		return true, false
	case reuse.Found:
		k.copied++
		k.found.Add(wire.Line{ID: t.ID, Stamp: k.lines.Newest(t.ID)}, 0)
		found = true
	case reuse.Fine:
	}
	if v.Stamp != 0 {
		t.Root = v.Root
	}
	return false, found
}

// version returns the version of a session's ticket t.
func version(t *ticket.Ticket) reuse.Version {
	if t.Stamp == 0 {
		return reuse.Version{}
	}
	return reuse.Version{Stamp: t.Stamp, Parent: t.Parent, Root: t.Root, Seen: t.Seen}
}

// elsewhere reports whether a ticket bound to net is presented in another network.
func elsewhere(t *ticket.Ticket, net uint32) bool {
	return ticket.Elsewhere(t.ID, net, t.Network)
}
