package wire

// Parts tells when all messages of one Seq have arrived. The zero value has
// seen nothing.
type Parts struct {
	seq   uint64
	total uint32                   // of seq, as its first message said
	left  uint32                   // of seq, not seen yet
	first uint64                   // bit per part, of the first 64
	rest  *[MaxParts/64 - 1]uint64 // of all others; nil where there never were more
	done  uint64                   // newest Seq that was complete
}

// MaxParts bounds how many messages one Seq may take. It is above the number of
// rooms that a room set may have: as a part holds one room at least, no report and
// no grant ever needs more.
const MaxParts = 1 << 14

// Take notes part of parts of seq. fresh is false for a message that is older
// than one already taken, or repeats it: its content must be ignored.
// complete is true when this message was the last missing one of its Seq.
func (p *Parts) Take(seq uint64, part, parts uint32) (fresh, complete bool) {
	if parts == 0 || parts > MaxParts || part >= parts || seq < p.seq || seq <= p.done {
		return false, false
	}
	if seq > p.seq {
		p.seq, p.total, p.left, p.first = seq, parts, parts, 0
		if p.rest = nil; parts > 64 {
			p.rest = new([MaxParts/64 - 1]uint64)
		}
	}
	if parts != p.total {
		return false, false // one Seq is cut once
	}
	word := &p.first
	if part >= 64 {
		word = &p.rest[part/64-1]
	}
	bit := uint64(1) << (part % 64)
	if *word&bit != 0 {
		return false, false
	}
	*word |= bit
	if p.left--; p.left == 0 {
		p.done = seq
		return true, true
	}
	return true, false
}

// Done returns the newest Seq that was complete, 0 for none.
func (p *Parts) Done() uint64 { return p.done }
