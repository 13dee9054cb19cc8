package fleettime

import (
	"slices"
)

// Place is where the data folder of a process lies. A copy of the folder lies elsewhere.
type Place struct {
	Device  uint64 `json:"device"`  // of the file system
	Inode   uint64 `json:"inode"`   // of the file that is locked
	Boot    string `json:"boot"`    // this start of the machine's kernel; "" where that is not known
	Machine string `json:"machine"` // the machine's id; "" where it has none
}

// same reports whether nobody can use the folder at q who does not hold the lock of the
// one at p: it is the same file, on a machine that has not been started anew since, or
// on the same machine.
func (p Place) same(q Place) bool {
	file := p.Inode != 0 && p.Inode == q.Inode && p.Device == q.Device
	return file && ((p.Boot != "" && p.Boot == q.Boot) || (p.Machine != "" && p.Machine == q.Machine))
}

// Lives is what the data folder of an edge tells: which incarnations have used it, the
// newest last, and where it lay then. The folder is locked for as long as a process
// uses it, so whoever holds the lock knows that all of them have ended.
type Lives struct {
	Place Place    `json:"place"`
	Incs  []uint64 `json:"incarnations"`
}

// Succeed returns the incarnations that a process succeeds which holds the lock of the
// folder at here. moved says that the folder tells of incarnations and proves nothing
// about them: it was copied, or lies on a machine that cannot be told from others.
func (l Lives) Succeed(here Place) (past []uint64, moved bool) {
	if !l.Place.same(here) {
		return nil, len(l.Incs) > 0
	}
	return Newest(l.Incs), false
}

// MaxLives is how many incarnations are told of. What is no longer told of counts on
// until lost_after, which costs use of the limit.
const MaxLives = 16

// Newest returns a copy of the last incarnations, at most MaxLives.
func Newest(incs []uint64) []uint64 { return slices.Clone(incs[max(0, len(incs)-MaxLives):]) }
