package fleettime

import (
	"slices"
)

// Place identifies the location of a data folder. A copy of the folder has another one.
type Place struct {
	Device  uint64 `json:"device"`  // of the file system
	Inode   uint64 `json:"inode"`   // of the lock file
	Boot    string `json:"boot"`    // boot ID of the machine's kernel; "" if unknown
	Machine string `json:"machine"` // machine ID; "" if unknown
}

// Same reports whether the lock of the folder at p excludes every other user of the folder at q: it is the same
// file, since the same boot or on the same machine.
func (p Place) Same(q Place) bool {
	file := p.Inode != 0 && p.Inode == q.Inode && p.Device == q.Device
	return file && ((p.Boot != "" && p.Boot == q.Boot) || (p.Machine != "" && p.Machine == q.Machine))
}

// Lives is the content of an edge's data folder: the instance IDs that used it, newest last, and its location then.
// A process locks the folder while it uses it, so the holder of the lock knows that all earlier instances have
// ended.
type Lives struct {
	Place     Place    `json:"place"`
	Instances []uint64 `json:"instances"`
}

// Succeed returns the instances that the holder of the folder's lock at here succeeds. With moved the folder names
// instances but proves nothing about them: it was copied, or its machine cannot be identified.
func (l Lives) Succeed(here Place) (past []uint64, moved bool) {
	if !l.Place.Same(here) {
		return nil, len(l.Instances) > 0
	}
	return Newest(l.Instances), false
}

// MaxLives is how many instances are reported. Sessions of older ones count until lost_after, which costs capacity.
const MaxLives = 16

// Newest returns a copy of the newest instance IDs, at most MaxLives.
func Newest(instances []uint64) []uint64 {
	return slices.Clone(instances[max(0, len(instances)-MaxLives):])
}
