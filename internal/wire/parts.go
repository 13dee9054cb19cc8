package wire

// Parts tells when all messages of one Seq have arrived. The zero value has
// seen nothing.
type Parts struct {
	seq  uint64
	seen uint64 // bit per part
	done uint64 // newest Seq that was complete
}

// MaxParts bounds how many messages one Seq may take.
const MaxParts = 64

// Take notes part of parts of seq. fresh is false for a message that is older
// than one already taken, or repeats it: its content must be ignored.
// complete is true when this message was the last missing one of its Seq.
func (p *Parts) Take(seq uint64, part, parts uint32) (fresh, complete bool) {
	if parts == 0 || parts > MaxParts || part >= parts || seq < p.seq || seq <= p.done {
		return false, false
	}
	if seq > p.seq {
		p.seq, p.seen = seq, 0
	}
	bit := uint64(1) << part
	if p.seen&bit != 0 {
		return false, false
	}
	p.seen |= bit
	if p.seen == 1<<parts-1 {
		p.done = seq
		return true, true
	}
	return true, false
}

// Done returns the newest Seq that was complete, 0 for none.
func (p *Parts) Done() uint64 { return p.done }
