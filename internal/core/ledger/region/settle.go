package region

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// This file settles instances that were killed: a successor in the same data folder makes their last report from the
// snapshot in it (admission.Predecessor). The report counts every ticket that the instance may have stamped after the
// snapshot, so it is as good as a goodbye.

// maySettle reports whether the last report m of edge e, made from its data folder, counts: the folder has the newest
// snapshot that the edge reported, and is not void. An edge that is not on the roster counts only if the roster lost
// edges.
func (es edges) maySettle(e *edge, m *report) bool {
	if e == nil {
		return es.find(wire.UnknownPast, 0) != nil
	}
	return e.folder != 0 && m.Stored >= e.folder
}

// settles begins to settle an edge, whose own reports count no more unless one contradicts its end. It reports whether
// the edge was settled before.
func (l *lifecycle) settles(now fleettime.Mono, e *edge) (already bool) {
	if e.settled {
		return e.state == left
	}
	e.settled, e.parts = true, wire.Parts{}
	l.roster.markEnded(e, l.latest(now))
	return false
}

// isSettled reports whether the last report of an instance is stored, as far as a successor needs it.
func (l *lifecycle) isSettled(e *edge) bool {
	return e.state == left && (!e.counted() || l.stored.saved >= e.storeVersion)
}

// storeFolders is the most time from a snapshot that an edge reports to a store that refuses older ones.
const storeFolders = 10 * time.Second

// recordFolder records the newest snapshot in the data folder of an edge. The first one, and none after one, are
// stored at once; later numbers with the next change, or after [storeFolders].
func (l *lifecycle) recordFolder(now fleettime.Mono, e *edge, m *report) {
	if m.Settles || m.Stored == e.folder {
		return
	}
	was := e.folder
	e.folder = m.Stored
	switch i := l.stored.index(e.name, e.instance); {
	case i < 0: // it is stored when the edge joins
	case (was == 0) != (e.folder == 0):
		e.folderNeeds = l.stored.change(func(d *wire.Durable) { d.Roster[i].Stored = e.folder })
	case now.Sub(l.foldersAt) >= storeFolders:
		l.foldersAt = now
		l.stored.change(func(d *wire.Durable) { d.Roster[i].Stored = e.folder })
	default:
		l.stored.durable.Roster[i].Stored = e.folder
	}
}

// folderUse returns what an edge may believe about its data folder.
func (s *stored) folderUse(e *edge) wire.Folder {
	if e.folder == 0 && s.saved >= max(e.folderNeeds, e.storeVersion) {
		return wire.FolderVoid
	}
	return wire.FolderSettles
}
