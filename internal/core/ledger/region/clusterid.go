package region

import (
	"errors"

	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// membership is what a data centre knows about its place in the list of data centres.
//
// The name is a label: a configuration that is copied onto another NATS makes a second data centre with it. The
// cluster ID is the identity: a random number that the store of a data centre keeps. Its edges remember the number
// while they run, and return it to an aggregator whose store was lost. The list has the cluster ID of every member.
// A data centre whose name is listed with another ID is a copy, and not listed (decision 30).
type membership struct {
	dc      string
	freshID uint64 // the cluster ID, if none is known
	list    ledger.Members
	stored  *stored
	made    bool // the cluster ID was made in this term: an edge that has another one knows better
	rejoins bool // the cluster ID changed in this term: the aggregator stops
}

// makeClusterID makes the cluster ID of a new data centre.
func (m *membership) makeClusterID() {
	m.stored.setClusterID(m.freshID)
	m.made = true
}

// isCopy reports whether the list has another cluster ID under this name.
func (m *membership) isCopy() bool {
	listed, own := m.list.ClusterID(m.dc), m.stored.durable.ClusterID
	return listed != 0 && own != 0 && listed != own
}

// readmitted reports whether the data centre was removed from the list and added again since its ledger was adopted, by
// the newest list that it or its coordinator knows: others may have got its permits. A coordinator of an older release
// would not adopt the ledger under the new membership.
func (m *membership) readmitted(u *uplink) bool {
	have, now := m.stored.membership, u.membership
	if m.list.Version > u.members && u.tells {
		now = max(now, m.list.Membership(m.dc, m.stored.durable.ClusterID))
	}
	return have != 0 && now > have
}

// standing returns the membership state by the newest list that this data centre or its coordinator knows. One that was
// readmitted admits nobody by the permits of before.
func (m *membership) standing(u *uplink) wire.Standing {
	if s := m.listed(u); s != wire.Listed || !m.readmitted(u) {
		return s
	}
	return wire.Draining
}

func (m *membership) listed(u *uplink) wire.Standing {
	if m.list.Version > u.members || m.isCopy() {
		return m.list.Standing(m.dc, m.stored.durable.ClusterID)
	}
	return u.standing
}

// learnClusterID learns the cluster ID of a lost store from a report of an edge. It reports whether reports to global
// can begin.
func (m *membership) learnClusterID(clusterID uint64, u *uplink) (begins bool) {
	own := m.stored.durable.ClusterID
	switch {
	case clusterID == 0 || clusterID == own:
	case own == 0:
		m.stored.setClusterID(clusterID)
		u.standing = wire.Listed
		return true
	case m.made && m.list.ClusterID(m.dc) != own:
		m.rejoin(clusterID)
	}
	return false
}

// rejoin replaces a cluster ID that was reported: the data centre needs a new aggregator.
func (m *membership) rejoin(clusterID uint64) {
	m.stored.setClusterID(clusterID)
	m.rejoins = true
}

// ErrNoCopy is returned for a data centre that is no copy.
var ErrNoCopy = errors.New("the list of data centres holds no other data centre of this name: nothing is to be done")
