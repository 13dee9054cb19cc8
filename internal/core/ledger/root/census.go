package root

import (
	"vestibule/internal/core/fleettime"
)

// Census is the coordinator's view of the list of data centres at one moment.
type Census struct {
	Members   uint64 // version of the list in use, 0 for that of the configuration
	Newest    uint64 // newest version that a member reports
	By        string // which one does
	Unfounded bool   // all data centres report that no list was ever stored: the configuration may become the first

	Drained  []string   // may leave the list: they drain, they know it, and nothing of them is out
	Released []string   // removed by force, and nothing of them can be valid any more
	Enrolled []Identity // members to add to the list with their cluster ID: the first that was heard of each name
	Unlisted []Identity // they report, and are not in the list
}

// Identity is a data centre by its name and its cluster ID.
type Identity struct {
	Name      string
	ClusterID uint64
	Copy      bool // the list has this name with another cluster ID
	Gone      bool // it was removed by force
}

// Census returns the view at now, each list by name.
func (f *fleet) Census(now fleettime.Mono) Census {
	c := &f.centres
	out := Census{Members: c.members}
	out.Newest, out.By = c.newest()
	outdated := c.outdated()
	out.Unfounded = c.members == 0 && out.Newest == 0
	for _, d := range c.all {
		given := (d.draining || d.removed) && d.reported() && now.Sub(d.recv) < SilentAfter && !f.pools.outstanding(d)
		out.Unfounded = out.Unfounded && (!d.listed || d.reported())
		if d.listed && d.draining && !outdated && given && d.stored >= c.members {
			out.Drained = append(out.Drained, d.name)
		}
		if d.removed && !outdated && (given || f.pools.allExpired(now, d)) {
			out.Released = append(out.Released, d.name)
		}
		switch id := (Identity{Name: d.name, ClusterID: d.clusterID, Copy: c.isCopy(d), Gone: d.removed}); {
		case d.listed && d.clusterID != d.recorded:
			out.Enrolled = append(out.Enrolled, id)
		case d.heard && !d.listed && now.Sub(d.recv) <= SilentAfter:
			out.Unlisted = append(out.Unlisted, id)
		}
	}
	return out
}
