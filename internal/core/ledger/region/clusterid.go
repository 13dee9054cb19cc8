package region

import (
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// This file is about two data centres of one name: the configuration of one was
// copied, with its names, onto another NATS. Either would count as the successor of
// the other, and get its books: their permits would be spent twice (decision 30).
//
// A cluster ID tells them apart: a number, made once, that the store of a data centre keeps.
// Its edges remember it while they run, so that an aggregator that finds the store lost
// hears it from them. The list of data centres holds the cluster ID of every member, and
// the coordinator keeps books for each cluster ID. Only the one of the list is lent to.

// membership is the membership view of a data centre: the list of data centres, and its own cluster ID.
type membership struct {
	dc      string
	freshID uint64         // for a cluster ID of its own; 0 for none
	list    ledger.Members // as this node knows it
	made    bool           // its cluster ID was made for a data centre without stored or known state
	stored  *stored

	rejoins bool // its cluster ID is another one since it began: the aggregator does nothing any more
}

// makeClusterID begins a cluster ID of its own. made says that this data centre may be a copy.
func (m *membership) makeClusterID(made bool) {
	if m.freshID != 0 {
		m.stored.setClusterID(m.freshID)
		m.made = made
	}
}

// isCopy reports whether the list holds another cluster ID under this name.
func (m *membership) isCopy() bool { return m.isOther(m.list.ClusterID(m.dc)) }

// isOther reports whether a cluster ID is that of another data centre.
func (m *membership) isOther(clusterID uint64) bool {
	return clusterID != 0 && m.stored.durable.ClusterID != 0 && clusterID != m.stored.durable.ClusterID
}

// notMeant reports whether a grant that names a cluster ID is for another data centre. One that
// names none may mean the one of the list.
func (m *membership) notMeant(clusterID uint64) bool {
	return m.isOther(clusterID) || (clusterID == 0 && m.isCopy())
}

// mayBeCopy reports whether sessions of this home may be another data centre's: it is a
// copy, or began with nothing and has no word from the coordinator yet.
func (m *membership) mayBeCopy(u *uplink) bool {
	known := m.list.ClusterID(m.dc) != 0 || (u.joined && u.standing != wire.Unlisted)
	return m.isCopy() || (m.made && !known)
}

// standing returns how the data centre stands in the newest list that it, or the
// coordinator that it follows, knows.
func (m *membership) standing(u *uplink) wire.Standing {
	if m.list.Version > u.members || m.isCopy() {
		return m.list.Standing(m.dc, m.stored.durable.ClusterID)
	}
	return u.standing
}

// learnClusterID takes the cluster ID from a report of an edge, where nothing was stored. Until then the data centre
// counts as new: a cluster ID that was told cannot be withdrawn, so it leads anew. It reports whether there is
// news for global.
func (m *membership) learnClusterID(clusterID uint64) (news bool) {
	if clusterID == 0 || m.freshID == 0 || clusterID == m.stored.durable.ClusterID {
		return false
	}
	switch {
	case m.stored.durable.ClusterID == 0:
		m.stored.setClusterID(clusterID)
		return true
	case m.made && m.list.ClusterID(m.dc) != m.stored.durable.ClusterID:
		m.stored.setClusterID(clusterID)
		m.made, m.rejoins = false, true
	}
	return false
}
