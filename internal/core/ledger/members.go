package ledger

import (
	"slices"

	"vestibule/internal/core/wire"
)

// Members are the data centres of a fleet as a node knows them.
type Members struct {
	Version uint64 // grows with every change; 0 for the list of a configuration
	List    []Member
}

// Member is one data centre of the list.
type Member struct {
	Name      string
	Draining  bool   // nobody is admitted; it leaves the list when all its permits are returned
	Removed   bool   // by force: no member any more, but it may hold permits
	Since     uint64 // version that added it, or its cluster ID; 0 for the first list
	ClusterID uint64 // 0 until it is first heard
}

// named returns the entry of a name, or the zero Member.
func (m *Members) named(name string) Member {
	if i := slices.IndexFunc(m.List, func(o Member) bool { return o.Name == name }); i >= 0 {
		return m.List[i]
	}
	return Member{}
}

// ClusterID returns the cluster ID of a data centre in the list, 0 for unknown.
func (m *Members) ClusterID(name string) uint64 { return m.named(name).ClusterID }

// Membership returns the membership of a data centre, once the list has its cluster ID; 0 for none.
func (m *Members) Membership(name string, clusterID uint64) wire.Membership {
	if e := m.named(name); e.Name != "" && e.ClusterID == clusterID {
		return wire.Membership(e.Since + 1)
	}
	return 0
}

// Has reports whether a data centre is a member. Another cluster ID is another data centre; 0 stands for any.
func (m *Members) Has(name string, clusterID uint64) bool {
	e := m.named(name)
	return e.Name != "" && !e.Removed && (e.ClusterID == 0 || clusterID == 0 || clusterID == e.ClusterID)
}

// Standing returns the membership state of a data centre.
func (m *Members) Standing(name string, clusterID uint64) wire.Standing {
	switch e := m.named(name); {
	case e.Removed && clusterID != 0 && clusterID == e.ClusterID, e.Draining && m.Has(name, clusterID):
		return wire.Draining
	case m.Has(name, clusterID):
		return wire.Listed
	}
	return wire.Unlisted
}
