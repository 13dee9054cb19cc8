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
	*kernel
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

func newKeys(kn *kernel) *keys {
	k := &keys{kernel: kn}
	if !k.cfg.Network.Sealed {
		return k
	}
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(k.cfg.Seed >> (8 * (i % 8)))
	}
	k.scratch, k.chance = ticket.NewScratch(seed), rand.NewChaCha8(seed)
	k.turn(epoch.Add(-time.Hour))
	return k
}

// turn adds a key to the ring.
func (k *keys) turn(now fleettime.Time) bool {
	ring, err := k.ring.Rotate(keyTime(now), ticket.MinRotation, k.chance)
	if err != nil {
		return false // too soon after the last one
	}
	codec, err := ticket.NewCodec(ring, k.room, cookieName)
	if err != nil {
		k.fail("invalid key ring: %v", err)
		return false
	}
	k.ring, k.newest, k.known = ring, codec, append(k.known, codec)
	return true
}

// cutFromStore returns until when an edge cannot reach the store.
func (n *edgeNode) cutFromStore() int64 {
	return max(n.cutUp, n.cutDown, n.centre.cutUp, n.centre.cutDown)
}

// tell makes an edge read the newest ring.
func (k *keys) tell(n *edgeNode) {
	if until := n.cutFromStore(); until > k.now {
		k.in(time.Duration(until-k.now), func() { k.tell(n) })
		return
	}
	k.deliver(&n.proc, func() { n.keys = k.newest })
}

// open opens a browser's cookie at an edge. It reports false if the visitor must retry: the ticket may be sealed under
// a key that the edge does not have, and it cannot ask the store (decision 11).
func (k *keys) open(n *edgeNode, p *pass) (t ticket.Ticket, known bool) {
	if n.keys == nil {
		return p.ticket, true
	}
	if p.cookie == "" {
		return t, true
	}
	err := n.keys.Open(&t, p.cookie, k.scratch)
	now := n.core.Clock.Time(n.clock.read(k.now))
	if errors.Is(err, ticket.ErrKey) && n.keys.Behind(keyTime(now)) {
		if n.cutFromStore() > k.now {
			return ticket.Ticket{}, false
		}
		n.keys = k.newest
		err = n.keys.Open(&t, p.cookie, k.scratch)
	}
	if err != nil {
		if p.sealed != 0 && k.now-p.sealed < int64(2*rotation) && k.knowsTime(n) {
			k.fail("%s does not open a ticket of the fleet: %v", n, err)
		}
		return ticket.Ticket{}, true // a ticket that does not open counts as absent
	}
	return t, true
}

// knowsTime reports whether an edge's fleet time is right, to the precision of keys.
func (k *kernel) knowsTime(n *edgeNode) bool {
	off := n.core.Clock.Time(n.clock.read(k.now)).Sub(k.fleetTime())
	return off > -time.Second && off < time.Second
}

// seal seals a ticket for the browser.
func (k *keys) seal(n *edgeNode, t ticket.Ticket) pass {
	if n.keys == nil {
		return pass{ticket: t}
	}
	p := pass{cookie: string(n.keys.Seal(nil, keyTime(n.core.Clock.Time(n.clock.read(k.now))), &t, k.scratch))}
	if known := k.known; slices.Contains(known[max(0, len(known)-2):], n.keys) && k.knowsTime(n) {
		p.sealed = k.now
	}
	return p
}
