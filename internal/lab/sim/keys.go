package sim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
)

// pass is what a browser holds: a ticket, or where they are sealed, a cookie.
type pass struct {
	ticket ticket.Ticket
	cookie string

	// Sealed is when an edge sealed the cookie that had heard of the ring within the last
	// rotation and knew the time; 0 where it had not.
	sealed int64
}

// keys are the fleet's key ring and the codecs made of it.
type keys struct {
	ring    ticket.Keyring
	newest  *ticket.Codec
	known   []*ticket.Codec // every one there was, oldest first
	scratch *ticket.Scratch
	chance  *rand.ChaCha8
}

// keyPace is how much faster keys grow old than people: a rotation takes half a minute, so
// that there are some in a small world.
const keyPace = 20

const rotation = ticket.MinRotation / keyPace

// keyTime returns the time by which keys go.
func keyTime(t fleettime.Time) fleettime.Time { return epoch.Add(keyPace * t.Sub(epoch)) }

// cookieName is bound into every seal.
const cookieName = "__Host-sale"

func (k *keys) begin(w *World) {
	if !w.cfg.Network.Sealed {
		return
	}
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(w.cfg.Seed >> (8 * (i % 8)))
	}
	k.scratch, k.chance = ticket.NewScratch(seed), rand.NewChaCha8(seed)
	k.turn(w, epoch.Add(-time.Hour))
}

// turn adds a key to the ring.
func (k *keys) turn(w *World, now fleettime.Time) bool {
	ring, err := k.ring.Rotate(keyTime(now), ticket.MinRotation, k.chance)
	if err != nil {
		return false // too soon after the last time
	}
	codec, err := ticket.NewCodec(ring, w.room, cookieName)
	if err != nil {
		w.judge.fail(w, "a key ring is no good: %v", err)
		return false
	}
	k.ring, k.newest, k.known = ring, codec, append(k.known, codec)
	return true
}

// rotate lets the keys be rotated; every edge hears of it in its own time, one that is cut
// off when it is not any more, and some only after others seal with the new key.
func (w *World) rotate(f *fault) {
	if !w.cfg.Network.Sealed || !w.keys.turn(w, w.fleetTime()) {
		return
	}
	w.tell("#%d the keys are rotated", f.number)
	for i := range w.edges {
		w.in(time.Duration(w.chaos.ExpFloat64()*float64(15*time.Second)), func() { w.tellKeys(int32(i)) })
	}
}

// cutFromStore returns until when an edge hears nothing of the store.
func (w *World) cutFromStore(n *edgeNode) int64 {
	r := w.regions[n.region]
	return max(n.cutUp, n.cutDown, r.cutUp, r.cutDown)
}

// tellKeys lets an edge take the newest ring.
func (w *World) tellKeys(i int32) {
	n := w.edges[i]
	if until := w.cutFromStore(n); until > w.now {
		w.in(time.Duration(until-w.now), func() { w.tellKeys(i) })
		return
	}
	w.hear(&n.proc, func() { n.keys = w.keys.newest })
}

// open is how an edge reads what a browser brings. It reports false where the visitor
// is to come back in a moment: the ticket may be sealed under a key that the edge has not
// heard of, and it cannot ask the store (decision 11).
func (w *World) open(n *edgeNode, p *pass) (t ticket.Ticket, known bool) {
	if n.keys == nil {
		return p.ticket, true
	}
	if p.cookie == "" {
		return t, true
	}
	err := n.keys.Open(&t, p.cookie, w.keys.scratch)
	now := n.core.Time(n.clock.read(w.now))
	if errors.Is(err, ticket.ErrKey) && n.keys.Behind(keyTime(now)) {
		if w.cutFromStore(n) > w.now {
			return ticket.Ticket{}, false
		}
		n.keys = w.keys.newest
		err = n.keys.Open(&t, p.cookie, w.keys.scratch)
	}
	if err != nil {
		if p.sealed != 0 && w.now-p.sealed < int64(2*rotation) && w.knowsTime(n) {
			w.judge.fail(w, "%s takes a ticket of the fleet for none: %v", w.name(n), err)
		}
		return ticket.Ticket{}, true // a ticket that does not open is none
	}
	return t, true
}

// knowsTime reports whether an edge goes by the fleet's time, as far as keys show.
func (w *World) knowsTime(n *edgeNode) bool {
	off := n.core.Time(n.clock.read(w.now)).Sub(w.fleetTime())
	return off > -time.Second && off < time.Second
}

// seal is how an edge gives it back.
func (w *World) seal(n *edgeNode, t ticket.Ticket) pass {
	if n.keys == nil {
		return pass{ticket: t}
	}
	p := pass{cookie: string(n.keys.Seal(nil, keyTime(n.core.Time(n.clock.read(w.now))), &t, w.keys.scratch))}
	if known := w.keys.known; slices.Contains(known[max(0, len(known)-2):], n.keys) && w.knowsTime(n) {
		p.sealed = w.now
	}
	return p
}
