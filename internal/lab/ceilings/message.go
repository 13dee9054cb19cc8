package ceilings

import "slices"

// Time is a reading of fleet time, in ticks. Readings of two nodes differ by at most twice
// [Config.Bound].
type Time int64

// never lies before every reading.
const never Time = -1

// Expiry is the net number of tickets that end in a second: stamped less renewed away.
type Expiry struct {
	At Time
	N  int
}

// Sums are the net numbers of a child by expiry second, ascending.
type Sums []Expiry

// add changes the net number of the second at.
func (s *Sums) add(at Time, n int) {
	i, ok := slices.BinarySearchFunc(*s, at, func(x Expiry, at Time) int { return int(x.At - at) })
	switch {
	case !ok:
		*s = slices.Insert(*s, i, Expiry{at, n})
	case (*s)[i].N+n == 0:
		*s = slices.Delete(*s, i, i+1)
	default:
		(*s)[i].N += n
	}
}

// after returns S(v): the sum over the seconds after v.
func (s Sums) after(v Time) (n int) {
	for i := len(s) - 1; i >= 0 && s[i].At > v; i-- {
		n += s[i].N
	}
	return n
}

// top returns the largest S(v) with v ≥ w, at least 0.
func (s Sums) top(w Time) (most int) {
	n := 0
	for i := len(s) - 1; i >= 0 && s[i].At > w; i-- {
		n += s[i].N
		most = max(most, n)
	}
	return most
}

// drop forgets the seconds up to w.
func (s *Sums) drop(w Time) {
	*s = slices.DeleteFunc(*s, func(x Expiry) bool { return x.At <= w })
}

// Report is what a child says of itself. Every number is cumulative or a state.
type Report struct {
	From      int
	Instance  int // data centres: the term of the regional that speaks
	Term      int // the leader that it follows
	Epoch     int // of its leases under that leader
	Seq       int
	Granted   int  // Seq of the newest grant applied
	Clock     Time // everything before is in the report
	Watermark Time // the newest that it was told
	Revision  int  // the newest of the store that it was told
	Blank     bool // data centres: it does not know what it holds
	Lines     []ReportLine
	Ends      map[int]end // sessions that it lets in no more
}

// ReportLine is one account of a report.
type ReportLine struct {
	Sums    Sums
	Credit  int // permits granted and unspent
	Got     int // permits granted in the epoch
	Ceiling int // the newest that it was told
	Want    int // permits that it could use
	Out     int // a regional that succeeded another: what its edges may have out, which may be more than it holds
}

// Grant is what a leader says to a child. Without Lines it is a promise: follow me, then report.
type Grant struct {
	To        int
	Instance  int
	Term      int
	Epoch     int
	Seq       int
	Acked     int // Seq of the newest report whose renewals are below the ceiling
	Watermark Time
	Lease     Time // the child may spend until its clock reads this
	Revision  int
	Complete  bool // Deny has every end that a listed child knows
	Adopt     bool // to a blank data centre: Held is what it holds
	Lines     []GrantLine
	Deny      []int // sessions to let in no more
	Clear     []int // ends that this child may book
}

// GrantLine is one account of a grant.
type GrantLine struct {
	Total   int // permits granted in the epoch
	Ceiling int
	Held    int
}

// Key names a document: a child, or head.
type Key int

// head is the document with the watermark and the list of children.
const head Key = -1

// Doc is a stored document.
type Doc struct {
	Term, Seq int   // the leader that wrote it, and its number of this write
	Instance  int   // of a data centre: the newest regional that was heard
	Ceilings  []int // of a child, by account
	Watermark Time  // of the head
	Children  []int // of the head
}

// Write asks the store to replace a document of revision Expect; readOnly only reads.
type Write struct {
	Key    Key
	Expect int
	Blind  bool // a removed rule: whatever the revision is
	Doc    Doc
}

const readOnly = -1

// Answer is what the store answers: done, or the document that is there instead.
type Answer struct {
	Key      Key
	Of       int // Seq of the write
	Done     bool
	Revision int // 0 for no document
	Doc      Doc
}
