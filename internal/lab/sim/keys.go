package sim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
)

// pass is a browser's ticket, or its cookie if tickets are sealed.
type pass struct {
	ticket ticket.Ticket
	cookie string

	// sealed is the time at which the cookie was sealed, if the edge knew the time and had read the ring within the
	// last rotation; otherwise 0.
	sealed int64
}

// keys are the fleet's key ring and its codecs.
type keys struct {
	ring    ticket.Keyring
	newest  *ticket.Codec
	known   []*ticket.Codec // all codecs ever, oldest first
	scratch *ticket.Scratch
	chance  *rand.ChaCha8
}

// keyPace speeds up the clock of keys: a rotation takes half a minute, so that small worlds have some.
const keyPace = 20

const rotation = ticket.MinRotation / keyPace

// keyTime returns the time on the clock of keys.
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
		return false // too soon after the last one
	}
	codec, err := ticket.NewCodec(ring, w.room, cookieName)
	if err != nil {
		w.oracle.fail(w, "invalid key ring: %v", err)
		return false
	}
	k.ring, k.newest, k.known = ring, codec, append(k.known, codec)
	return true
}

// rotate rotates the keys; every edge reads the ring with its own delay. A disconnected edge reads it after
// reconnecting, and some edges only after others seal with the new key.
func (w *World) rotate(f *fault) {
	if !w.cfg.Network.Sealed || !w.keys.turn(w, w.fleetTime()) {
		return
	}
	w.tracef("#%d the keys are rotated", f.number)
	for i := range w.edges {
		w.in(time.Duration(w.chaos.ExpFloat64()*float64(15*time.Second)), func() { w.tellKeys(int32(i)) })
	}
}

// cutFromStore returns until when an edge cannot reach the store.
func (w *World) cutFromStore(n *edgeNode) int64 {
	r := w.regions[n.region]
	return max(n.cutUp, n.cutDown, r.cutUp, r.cutDown)
}

// tellKeys makes an edge read the newest ring.
func (w *World) tellKeys(i int32) {
	n := w.edges[i]
	if until := w.cutFromStore(n); until > w.now {
		w.in(time.Duration(until-w.now), func() { w.tellKeys(i) })
		return
	}
	w.deliver(&n.proc, func() { n.keys = w.keys.newest })
}

// open opens a browser's cookie at an edge. It reports false if the visitor must retry: the ticket may be sealed under
// a key that the edge does not have, and it cannot ask the store (decision 11).
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
			w.oracle.fail(w, "%s does not open a ticket of the fleet: %v", w.name(n), err)
		}
		return ticket.Ticket{}, true // a ticket that does not open counts as absent
	}
	return t, true
}

// knowsTime reports whether an edge's fleet time is right, to the precision of keys.
func (w *World) knowsTime(n *edgeNode) bool {
	off := n.core.Time(n.clock.read(w.now)).Sub(w.fleetTime())
	return off > -time.Second && off < time.Second
}

// seal seals a ticket for the browser.
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
