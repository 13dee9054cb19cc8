package wire

// Parts tracks which messages of a Seq have arrived. The zero value has seen none.
type Parts struct {
	seq   uint64
	total uint32                   // parts of seq, as given by its first message
	left  uint32                   // parts of seq not seen yet
	first uint64                   // bit per part, of the first 64
	rest  *[MaxParts/64 - 1]uint64 // of the others; nil if there are at most 64
	done  uint64                   // newest complete Seq
}

// MaxParts bounds the messages of one Seq. It exceeds the maximum number of rooms; as each part holds at least one
// room, no report or grant needs more.
const MaxParts = 1 << 14

// Take records part of parts of seq. fresh is false for an outdated or repeated message, which must be ignored.
// complete is true for the last missing message of its Seq.
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
		return false, false // the number of parts is fixed per Seq
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

// Done returns the newest complete Seq, 0 for none.
func (p *Parts) Done() uint64 { return p.done }
