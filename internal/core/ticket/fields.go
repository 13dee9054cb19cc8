package ticket

// Fields follow the fixed layout in version extended, so that a later release can add to tickets while releases from this
// one on run beside it. A field is its number, the length of its data, and the data. Numbers ascend and are given out in
// order. A ticket with an unknown critical field does not open. An unknown ignorable field stays as it is when the ticket
// is sealed again, in whatever order releases meet the ticket.
const (
	ignorableField = 1 << 7 // the first ignorable number; lower ones are critical, 0 is none
	maxFields      = 64     // bytes of all fields: a cookie header holds several tickets
)

// readFields reads the fields. It reports whether they are well formed and not critical. This release knows none.
func (t *Ticket) readFields(p []byte) bool {
	if len(p) == 0 {
		return false // the shorter version suffices
	}
	for rest, last := p, byte(0); len(rest) > 0; {
		if len(rest) < 2 || len(rest)-2 < int(rest[1]) || rest[0] <= last || rest[0] < ignorableField {
			return false
		}
		last, rest = rest[0], rest[2+int(rest[1]):]
	}
	t.Others = string(p)
	return true
}
