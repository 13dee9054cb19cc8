package region

import (
	"errors"
	"fmt"
)

// ErrNoCopy says that the list holds no other cluster ID under the name.
var ErrNoCopy = errors.New("the list of data centres holds no other data centre of this name: nothing is to be done")

// Rejoin declares on an operator's word that this data centre is the one of the list, whose store was
// lost with all nodes that knew its cluster ID. Once the result of Unsaved is stored, the shell leads anew
// (see Rejoins): the data centre is then the successor, and goes on with the books from before. It
// returns ErrNoCopy where it is the one of the list already.
func (a *Aggregator) Rejoin() error {
	if !a.member.isCopy() {
		return fmt.Errorf("data centre %s: %w", a.cfg.DC, ErrNoCopy)
	}
	a.stored.setClusterID(a.member.list.ClusterID(a.cfg.DC))
	a.member.rejoins = true
	return nil
}

// Rejoins reports whether the data centre goes on under another cluster ID: this aggregator does
// nothing any more.
func (a *Aggregator) Rejoins() bool { return a.member.rejoins }
