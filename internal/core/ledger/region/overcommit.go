package region

import (
	"slices"
)

// overcommitEntry is the number of sessions that a silent edge may have beyond the counted ones: tickets that
// appeared elsewhere since, and all its sessions once lost_after declared it lost. It remains until the edge or its
// successor reports, or until every ticket has expired that the edge stamped before an operator declared it ended.
type overcommitEntry struct {
	edge     string
	instance uint64
	n        int64
	until    int64 // Unix second of the last such expiry; 0 without such a declaration
}

// maxOvercommitEntries bounds the edges with own entries.
const maxOvercommitEntries = 256

// overcommit are the sessions of a room that may be valid beyond those counted.
type overcommit []overcommitEntry

// add adds n sessions of an edge. It reports whether the edge had none before.
func (x *overcommit) add(e *edge, n int64) bool {
	if n <= 0 {
		return false
	}
	i := slices.IndexFunc(*x, func(s overcommitEntry) bool { return s.instance == e.instance })
	isNew := i < 0
	switch {
	case isNew && len(*x) < maxOvercommitEntries:
		*x = append(*x, overcommitEntry{edge: e.name, instance: e.instance})
		i = len(*x) - 1
	case isNew:
		i = maxOvercommitEntries - 1
	}
	(*x)[i].n += n
	(*x)[i].until = 0 // a declaration from before does not cover them
	return isNew
}

// remove removes an instance that reports again, or has ended: its sessions are counted.
func (x *overcommit) remove(instance uint64) {
	*x = slices.DeleteFunc(*x, func(s overcommitEntry) bool { return s.instance == instance })
}

// expire removes the entries of ended edges whose last ticket expired before the second freed. It reports whether there
// were any.
func (x *overcommit) expire(freed int64) bool {
	n := len(*x)
	*x = slices.DeleteFunc(*x, func(s overcommitEntry) bool { return s.until != 0 && s.until < freed })
	return len(*x) < n
}

// sum returns the number of sessions.
func (x overcommit) sum() int64 {
	n := int64(0)
	for _, s := range x {
		n += s.n
	}
	return n
}
