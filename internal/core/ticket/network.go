package ticket

// Network identifies the client network of a request, in a room that binds tickets: a hash with the kind in its lowest
// bit of binding. 0 if tickets are not bound.
type Network uint64

// A bound session's Ticket.Net has the upper bit set, so that it is never 0. The next bit is the kind of binding.
const (
	bound    = 1 << 31
	boundWay = 1 << 30
)

// Bind returns Ticket.Net of session id bound to network n. It reveals nothing about the network without the id. One of
// 2^30 other networks has the same value.
func Bind(id uint64, n Network) uint32 {
	return bound | uint32(n&1)*boundWay | uint32(mix(id^uint64(n))>>34)
}

// BindSession binds a new session to the network of its request, if the room binds tickets.
func (t *Ticket) BindSession() {
	if t.Longer = 0; t.Network != 0 {
		t.Net = Bind(t.ID, t.Network)
	}
}

// Elsewhere reports whether ticket id, bound to net, is presented from another network n. It is false if the kinds of
// binding differ.
func Elsewhere(id uint64, net uint32, n Network) bool {
	if net == 0 || n == 0 {
		return false
	}
	here := Bind(id, n)
	return here != net && (here^net)&boundWay == 0
}

// Derive returns the id of the new ticket for a client that presents ticket id from the wrong network n: the same at
// every edge.
func Derive(id uint64, n Network) uint64 { return max(1, mix(mix(id)+uint64(n))) }

// mix spreads x over 64 bits; it is a permutation (the end of MurmurHash3).
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
