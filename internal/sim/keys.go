package sim

import (
	"math/rand/v2"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/ticket"
)

// pass is what a browser holds: a ticket, or where they are sealed, a cookie.
type pass struct {
	ticket ticket.Ticket
	cookie string
}

// keys are the fleet's key ring and the codecs made of it.
type keys struct {
	ring    ticket.Keyring
	newest  *ticket.Codec
	scratch *ticket.Scratch
	chance  *rand.ChaCha8
}

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
func (k *keys) turn(w *World, now fleet.Time) bool {
	ring, err := k.ring.Rotate(now, ticket.MinRotation, k.chance)
	if err != nil {
		return false // too soon after the last time
	}
	codec, err := ticket.NewCodec(ring, w.room, cookieName)
	if err != nil {
		w.judge.fail(w, "a key ring is no good: %v", err)
		return false
	}
	k.ring, k.newest = ring, codec
	return true
}

// rotate lets the keys be rotated; every edge hears of it in its own time, and
// some only after others seal with the new key.
func (w *World) rotate(f *fault) {
	if !w.cfg.Network.Sealed || !w.keys.turn(w, w.fleetTime()) {
		return
	}
	w.tell("#%d the keys are rotated", f.number)
	codec := w.keys.newest
	for _, n := range w.edges {
		delay := time.Duration(w.chaos.ExpFloat64() * float64(15*time.Second))
		w.in(delay, func() { w.hear(&n.proc, func() { n.keys = codec }) })
	}
}

// open is how an edge reads what a browser brings.
func (w *World) open(n *edgeNode, p *pass) ticket.Ticket {
	if n.keys == nil {
		return p.ticket
	}
	var t ticket.Ticket
	if p.cookie != "" {
		if err := n.keys.Open(&t, p.cookie, w.keys.scratch); err != nil {
			return ticket.Ticket{} // a ticket that does not open is none
		}
	}
	return t
}

// seal is how an edge gives it back.
func (w *World) seal(n *edgeNode, t ticket.Ticket) pass {
	if n.keys == nil {
		return pass{ticket: t}
	}
	return pass{cookie: string(n.keys.Seal(nil, n.core.Time(n.clock.read(w.now)), &t, w.keys.scratch))}
}
