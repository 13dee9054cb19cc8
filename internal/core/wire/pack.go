package wire

// ReportPacker splits a report into parts of at most MaxMessage bytes.
type ReportPacker struct {
	head Report
	out  []Report
	size int
}

// NewReportPacker starts a report with the given head.
func NewReportPacker(head Report) *ReportPacker { return &ReportPacker{head: head} }

// Add adds one room to the report.
func (p *ReportPacker) Add(r RoomReport) {
	size := reportSize(&r)
	if len(p.out) == 0 || (p.size+size > MaxMessage && len(p.out) < MaxParts) {
		p.out = append(p.out, p.head)
		p.size = 0
	}
	last := &p.out[len(p.out)-1]
	last.Rooms = append(last.Rooms, r)
	p.size += size
}

// Reports returns the parts, at least one.
func (p *ReportPacker) Reports() []Report {
	if len(p.out) == 0 {
		p.out = append(p.out, p.head)
	}
	for i := range p.out {
		p.out[i].Part, p.out[i].Parts = uint32(i), uint32(len(p.out))
	}
	return p.out
}

// reportSize returns an upper bound of the room's encoded size, in bytes.
func reportSize(r *RoomReport) int {
	return 180 + 3*len(r.Outcomes) + 3*len(r.Counts) + 12*len(r.Sessions) + 40*len(r.Moves) + 10*len(r.HeldJoined) + 24*len(r.Waiting) + 12*len(r.Arrivals) + 25*len(r.Ends) + 16*len(r.Copied)
}

// GrantPacker splits a grant into parts of at most MaxMessage bytes.
type GrantPacker struct {
	head Grant
	out  []Grant
	size int
}

// NewGrantPacker starts a grant with the given head.
func NewGrantPacker(head Grant) *GrantPacker { return &GrantPacker{head: head} }

// Add adds one room to the grant.
func (p *GrantPacker) Add(r RoomGrant) {
	size := 120 + 25*len(r.Ends) + 16*len(r.Lines)
	if r.View != nil {
		size += 200 + 24*len(r.View.Line.Histogram()) + 16*len(r.View.Paces)
	}
	if len(p.out) == 0 || (p.size+size > MaxMessage && len(p.out) < MaxParts) {
		p.out = append(p.out, p.head)
		p.size = 0
	}
	last := &p.out[len(p.out)-1]
	last.Rooms = append(last.Rooms, r)
	p.size += size
}

// Grants returns the parts, at least one.
func (p *GrantPacker) Grants() []Grant {
	if len(p.out) == 0 {
		p.out = append(p.out, p.head)
	}
	for i := range p.out {
		p.out[i].Part, p.out[i].Parts = uint32(i), uint32(len(p.out))
	}
	return p.out
}
