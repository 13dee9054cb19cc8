package region

// reserved are the sessions of an edge that does not report, beyond those that it reported.
type reserved struct {
	spent      int64 // admitted or renewed since its last report
	until      int64 // Unix second
	silent     bool  // it may be renewing (partition_policy serve): its reserved sessions do not expire
	pinned     int64 // sessions whose newest ticket is of the silent edge
	unreported int64 // further sessions, whose moves were never reported
	stampLife  int64 // life of the tickets that the silent edge may stamp, in seconds
	fromLost   int64 // reserved when the silent edge was declared lost; late reports do not reduce it before until
}

// sum returns the sessions that a report of the edge would correct.
func (p *reserved) sum() int64 { return p.spent + p.pinned + p.unreported }

// none reports whether nothing is reserved.
func (p *reserved) none() bool {
	return p.spent == 0 && p.pinned == 0 && p.unreported == 0 && p.fromLost == 0
}

// count returns the sessions that count.
func (p *reserved) count(c *counts) int64 {
	if p.until < c.freed {
		if p.silent {
			return p.sum()
		}
		return 0
	}
	return p.sum() + p.fromLost
}

// expire drops the sessions of a lost edge once they have expired.
func (p *reserved) expire(c *counts) {
	if p.until < c.freed {
		p.fromLost = 0
	}
}
