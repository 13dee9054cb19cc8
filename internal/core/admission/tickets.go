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

// stamped is an edge's memory of a session: the newest expiry second, and the second of the admission.
type stamped struct {
	until, since uint32
	net          uint32 // as in ticket.Ticket
	live         bool   // it was renewed by a connection, which gives the visitor no ticket

	// The place that became the session: the version that was answered with it, and the Unix seconds of that answer and
	// of the first request with the session.
	place          placeVersion
	told, received uint32
}

// over is the remembered expiry second of a revoked session.
const over = 1

// remember records a stamp of a ticket's session until second until.
func (k *tickets) remember(second uint32, t *ticket.Ticket, until uint32) {
	s := k.recent.Get(t.ID)
	if s.until, s.net, s.since = until, t.Net, t.Admitted; t.Stamp != 0 && s.received == 0 {
		s.received = second
	}
	k.recent.Put(t.ID, s)
	k.lines.Keep(t.ID, until+1)
}

// placeVersion tells the versions of a place apart.
type placeVersion struct {
	seen   uint32
	answer uint8
}

func versionOfPlace(t *ticket.Ticket) placeVersion { return placeVersion{t.Seen, t.Answer} }

// admitted records that a version of the place of a session is answered with the session at a second.
func (k *tickets) admitted(second uint32, id uint64, place placeVersion) {
	s := k.recent.Get(id)
	s.place, s.told = place, second
	k.recent.Put(id, s)
}

// receive records that the first version of a session is presented: its browser has the session.
func (k *tickets) receive(second uint32, id uint64) {
	if s := k.recent.Get(id); s.until != 0 && s.received == 0 {
		s.received = second
		k.recent.Put(id, s)
	}
}

// onItsWay is the time in seconds in which the answer with a session arrives, and requests of the same browser that were
// sent before.
const onItsWay = 15

// enters returns how to answer a place of a session that is valid here. A browser sends the session beside the place as
// soon as it has it. So the place alone is of another browser, with a copy, once the session was presented. Before, the
// version that was answered with the session comes again if the answer was lost: Kept. Another version is either of
// another tab of the browser or of another browser: Underway, until the answer must have been lost.
func (k *tickets) enters(second uint32, t *ticket.Ticket) Fresh {
	s := k.recent.Get(t.ID)
	other := s.place != versionOfPlace(t)
	switch {
	case s.received != 0 && second >= s.received+onItsWay:
		return Copied
	case other && (s.received != 0 || s.told != 0 && second < s.told+onItsWay):
		return Underway
	}
	k.admitted(second, t.ID, versionOfPlace(t))
	return Kept
}

// continues reports whether t, a version of a session's ticket, is no copy while another client continues. It gives t
// the root of the line that continues.
func (k *tickets) continues(second uint32, t *ticket.Ticket) bool {
	v := version(t)
	if !k.lines.Continues(second, t.ID, &v) {
		return false
	}
	if v.Stamp != 0 {
		t.Root = v.Root
	}
	return true
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

// decided appends the lines that continue to out, up to [wire.MaxEnds].
func (k *tickets) decided(second uint32, out []wire.Line) []wire.Line {
	for _, id := range k.lines.Decided(second) {
		if len(out) == wire.MaxEnds {
			break
		}
		stamp, _ := k.lines.Decision(second, id)
		out = append(out, wire.Line{ID: id, Stamp: stamp})
	}
	return out
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
