package region

import (
	"slices"
)

// overcommitEntry is the number of sessions that a silent edge may have beyond the counted ones: tickets that
// appeared elsewhere since, and all its sessions once it was declared lost. It remains until the edge or its
// successor reports.
type overcommitEntry struct {
	instance uint64
	n        int64
}

// maxOvercommitEntries bounds the edges with own entries.
const maxOvercommitEntries = 256

// overcommit are the sessions of a room that may be valid beyond those counted.
type overcommit []overcommitEntry

// add adds n sessions of an edge. It reports whether the edge had none before.
func (x *overcommit) add(instance uint64, n int64) bool {
	if n <= 0 {
		return false
	}
	for i := range *x {
		if (*x)[i].instance == instance {
			(*x)[i].n += n
			return false
		}
	}
	if len(*x) < maxOvercommitEntries {
		*x = append(*x, overcommitEntry{instance: instance, n: n})
	} else {
		(*x)[maxOvercommitEntries-1].n += n
	}
	return true
}

// remove removes an instance that reports again, or has ended: its sessions are counted.
func (x *overcommit) remove(instance uint64) {
	*x = slices.DeleteFunc(*x, func(s overcommitEntry) bool { return s.instance == instance })
}

// sum returns the number of sessions.
func (x overcommit) sum() int64 {
	n := int64(0)
	for _, s := range x {
		n += s.n
	}
	return n
}
