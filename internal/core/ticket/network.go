package ticket

// Network stands for where a ticket is shown, as far as its room binds tickets: a
// hash, whose lowest bit tells the ways of binding apart. 0 where tickets are not bound.
type Network uint64

// What a session is bound to (Ticket.Net) has the upper bit set, so that it is never 0.
// The next bit is that of the way of binding.
const (
	bound    = 1 << 31
	boundWay = 1 << 30
)

// Bind returns what the ticket id of a session carries that is bound to network n. It
// tells nothing of the network to who does not know the id; one of 2^30 other networks
// has the same.
func Bind(id uint64, n Network) uint32 {
	return bound | uint32(n&1)*boundWay | uint32(mix(id^uint64(n))>>34)
}

// BindSession binds a session that begins to the network in which its ticket is shown,
// if the room binds tickets.
func (t *Ticket) BindSession() {
	if t.Longer = 0; t.Network != 0 {
		t.Net = Bind(t.ID, t.Network)
	}
}

// Elsewhere reports whether a ticket id that is bound to net is shown in another
// network, n. What is bound in another way than the room says now is shown nowhere else.
func Elsewhere(id uint64, net uint32, n Network) bool {
	if net == 0 || n == 0 {
		return false
	}
	here := Bind(id, n)
	return here != net && (here^net)&boundWay == 0
}

// Derive returns the id of the ticket that somebody is given who shows the ticket id in
// network n, where it is not good: the same one at every edge.
func Derive(id uint64, n Network) uint64 { return max(1, mix(mix(id)+uint64(n))) }

// mix spreads x over 64 bits; it is a permutation (the end of MurmurHash3).
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
