package wire

// packer splits a message into parts of at most MaxMessage bytes.
type packer[M any] struct {
	head M
	out  []M
	size int // of the last part
}

// part returns the part for a room of so many bytes.
func (p *packer[M]) part(size int) *M {
	if len(p.out) == 0 || (p.size+size > MaxMessage && len(p.out) < MaxParts) {
		p.out = append(p.out, p.head)
		p.size = 0
	}
	p.size += size
	return &p.out[len(p.out)-1]
}

// parts numbers the parts, at least one, and returns them.
func (p *packer[M]) parts(number func(m *M, part, parts uint32)) []M {
	p.part(0)
	for i := range p.out {
		number(&p.out[i], uint32(i), uint32(len(p.out)))
	}
	return p.out
}

// ReportPacker splits a report into parts of at most MaxMessage bytes.
type ReportPacker struct{ packer[Report] }

// NewReportPacker starts a report with the given head.
func NewReportPacker(head Report) *ReportPacker { return &ReportPacker{packer[Report]{head: head}} }

// Add adds one room to the report.
func (p *ReportPacker) Add(r RoomReport) {
	m := p.part(reportSize(&r))
	m.Rooms = append(m.Rooms, r)
}

// Reports returns the parts, at least one.
func (p *ReportPacker) Reports() []Report {
	return p.parts(func(m *Report, part, parts uint32) { m.Part, m.Parts = part, parts })
}

// reportSize returns an upper bound of the room's encoded size, in bytes.
func reportSize(r *RoomReport) int {
	size := 180 + 3*len(r.Outcomes) + 3*len(r.Counts) + 12*len(r.Sessions) + 40*len(r.Moves) + 10*len(r.HeldJoined) +
		24*(len(r.Waiting)+len(r.Pending)) +
		12*len(r.Arrivals) + 25*len(r.Ends) + 16*len(r.Copied) + 3*len(r.RateUsed) + movesSize(r.Asks, r.Stays, r.Transfers, r.Taken)
	if r.Forwarded != nil {
		size += 40 + 3*len(r.Forwarded.Counts)
	}
	return size
}

// GrantPacker splits a grant into parts of at most MaxMessage bytes.
type GrantPacker struct{ packer[Grant] }

// NewGrantPacker starts a grant with the given head.
func NewGrantPacker(head Grant) *GrantPacker { return &GrantPacker{packer[Grant]{head: head}} }

// Add adds one room to the grant.
func (p *GrantPacker) Add(r RoomGrant) {
	size := 120 + 25*len(r.Ends) + 16*len(r.Lines) + movesSize(r.Asks, r.Stays, r.Transfers, r.Taken)
	if r.View != nil {
		size += 200 + 24*len(r.View.Line.Histogram()) + 16*len(r.View.Paces)
	}
	m := p.part(size)
	m.Rooms = append(m.Rooms, r)
}

// Grants returns the parts, at least one.
func (p *GrantPacker) Grants() []Grant {
	return p.parts(func(m *Grant, part, parts uint32) { m.Part, m.Parts = part, parts })
}

// movesSize returns an upper bound of the encoded size of the sessions that change data centres.
func movesSize(asks []Ask, stays []Stay, transfers []Transfer, taken []Taken) int {
	return 36*len(asks) + 30*len(stays) + 54*len(transfers) + 36*len(taken)
}
