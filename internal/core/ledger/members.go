package ledger

import (
	"slices"

	"vestibule/internal/core/wire"
)

// Members are the data centres of a fleet as a node knows them.
type Members struct {
	Version uint64 // grows with every change; 0 for the list of a configuration
	List    []Member
	Forced  []Member // taken off by force, and may hold permits; names and cluster IDs
}

// Member is one data centre of the list.
type Member struct {
	Name      string
	Draining  bool   // nobody is let in; it leaves the list when all that it holds has come back
	Since     uint64 // version that added it, or told its cluster ID; 0 for those that founded the fleet
	ClusterID uint64 // tells it from others of its name; 0 where it was not heard yet
}

// ClusterID returns the cluster ID of a data centre in the list, 0 for unknown.
func (m *Members) ClusterID(name string) uint64 {
	if i := slices.IndexFunc(m.List, func(o Member) bool { return o.Name == name }); i >= 0 {
		return m.List[i].ClusterID
	}
	return 0
}

// Standing returns that of the data centre which has a cluster ID, 0 for unknown: another one
// of its name is not listed.
func (m *Members) Standing(name string, clusterID uint64) wire.Standing {
	if s := m.ClusterID(name); s != 0 && clusterID != 0 && s != clusterID {
		return wire.Unlisted
	}
	return m.Find(name)
}

// Find returns the standing of a data centre.
func (m *Members) Find(name string) wire.Standing {
	i := slices.IndexFunc(m.List, func(o Member) bool { return o.Name == name })
	switch {
	case i < 0:
		return wire.Unlisted
	case m.List[i].Draining:
		return wire.Draining
	}
	return wire.Listed
}
