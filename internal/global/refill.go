package global

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"vestibule/internal/core/compress"
	"vestibule/internal/core/draw"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// A store may lose its documents, or come back older, while the leader knows no newer ones. Every node keeps copies, so
// the leader asks for newer versions: nodes announce theirs, the leader fetches one document at a time from one node,
// and writes it back.
//
// Globals and regionals are trusted. An edge is exposed to visitors, and could plant rooms for the whole fleet: its
// copies are taken only if the store, this leader and all other nodes have no rooms.

const (
	// fetchFor is how long a node may take to send a document before another is asked.
	fetchFor = 3 * time.Second

	// edgesAfter is how long a leader without rooms asks before it takes those of an edge.
	edgesAfter = 5 * time.Second

	// askSoon is how often nodes are asked while this leader has no keys, or knows of a newer version; otherwise it
	// asks every storeEvery.
	askSoon = time.Second

	// askFor is how long a leader without keys asks before it makes the first ones. Live nodes have reconnected by
	// then, even to a restarted server.
	askFor = 10 * time.Second

	// gatherFor is how long other nodes may still answer after the first keys came.
	gatherFor = time.Second
)

// refill restores lost documents from the copies of nodes.
type refill struct {
	s      *Server
	copies *copies
	fresh  bool // the operator says that the fleet is new

	askedAt time.Time // when nodes were last asked
	asking  time.Time // since when nodes are asked, 0 while disconnected

	lost    bool // the rooms came from an edge: so may the rest
	empty   bool // the store was seen without rooms, and this leader knows none
	settled bool // the nodes have been asked for long enough
}

// versions are those that this leader has.
type versions struct{ rooms, controls, draws uint64 }

func (r *refill) have() (v versions) {
	v.rooms = r.s.rooms.KnownVersion()
	if c := r.s.fleet.Controls(); c != nil {
		v.controls = c.Version
	}
	if b := r.s.fleet.Board(); b != nil {
		v.draws = b.Version
	}
	return v
}

// requestCopies publishes this leader's versions, so that nodes hand over newer documents.
func (r *refill) requestCopies(wall time.Time, c *census) {
	every := storeEvery
	have := r.have()
	if len(r.s.fleet.Ring().Keys) == 0 || c.outdated() || len(r.s.fleet.Alarms()) > 0 || have.rooms == 0 {
		every = askSoon
	}
	send := r.nextFetch(wall, have)
	if wall.Sub(r.askedAt) < every && send == nil {
		return
	}
	r.askedAt = wall
	q := wire.CopyAsk{Rooms: have.rooms, Controls: have.controls, Draws: have.draws, Send: send}
	if m := r.s.fleet.Members(); m != nil {
		q.Members = m.Version
	}
	var err error
	if q.Keys, err = r.s.fleet.Ring().Sum(); err == nil {
		var data []byte
		if data, err = json.Marshal(q); err == nil {
			err = r.s.Bus.Publish(wire.AskSubject, data)
		}
	}
	switch {
	case err != nil:
		r.asking = time.Time{} // silence while disconnected does not prove that there are no keys
		r.s.log.Debug("nodes not asked", slog.Any("error", err))
	case r.asking.IsZero():
		r.asking = wall
	}
}

// asked reports whether this leader has asked the nodes for d, while connected.
func (r *refill) asked(wall time.Time, d time.Duration) bool {
	return !r.asking.IsZero() && wall.Sub(r.asking) >= d
}

// nextFetch returns the document that a node is to send now, nil for none.
func (r *refill) nextFetch(wall time.Time, have versions) *wire.CopyWanted {
	c := r.copies
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.fetch; f != nil {
		if f.left == 0 && f.parts != nil || wall.Sub(f.begun) < fetchFor {
			return nil
		}
		r.s.log.Warn("a node did not send a document that it has announced",
			slog.String("document", f.document), slog.String("dc", f.dc), slog.String("node", f.from))
		c.drop()
	}
	o := r.choose(wall, have)
	if o.version == 0 {
		return nil
	}
	c.fetch = &fetch{offer: o, begun: wall}
	return &wire.CopyWanted{Document: o.document, DC: o.dc, From: o.from}
}

// choose returns the announcement to follow next; the zero value for none.
func (r *refill) choose(wall time.Time, have versions) offer {
	c, known := r.copies, r.s.rooms.Known()
	switch {
	case known == nil && r.fresh:
	case known == nil && r.s.Config.Rooms != "": // the file is published unless a global knows of another authority
		if o := c.best(0, ownedCopy); o.version > 0 && !r.settled {
			return o
		}
	case known != nil && known.FromFile && r.s.Config.Rooms != "": // the file is published again
	default:
		if o := c.best(have.rooms, ownedCopy, node.RoomsDocument); o.version > 0 {
			return o
		}
		if r.empty && !r.settled && r.asked(wall, edgesAfter) {
			if o := c.best(0, wire.EdgeCopy(node.RoomsDocument)); o.version > 0 {
				return o
			}
		}
	}
	for doc, version := range map[string]uint64{node.ControlsDocument: have.controls, node.DrawsDocument: have.draws} {
		if o := c.best(version, doc); o.version > 0 {
			return o
		}
		if r.lost && version == 0 {
			if o := c.best(0, wire.EdgeCopy(doc)); o.version > 0 {
				return o
			}
		}
	}
	return offer{}
}

// takeCopy uses a document that has come completely.
func (r *refill) takeCopy(ctx context.Context) {
	c := r.copies
	c.mu.Lock()
	f := c.fetch
	if f == nil || f.parts == nil || f.left > 0 {
		c.mu.Unlock()
		return
	}
	c.drop()
	c.news = true
	c.mu.Unlock()
	err := r.use(ctx, f)
	attrs := []any{
		slog.String("document", f.document), slog.String("dc", f.dc), slog.String("node", f.from),
		slog.Uint64("version", f.version),
	}
	if err != nil {
		r.s.log.Error("the document of a node cannot be used", append(attrs, slog.Any("error", err))...)
		return
	}
	r.s.log.Warn("the store had lost a document: a node returned it", attrs...)
}

func (r *refill) use(ctx context.Context, f *fetch) error {
	var packed []byte
	for _, part := range f.parts {
		packed = append(packed, part...)
	}
	if roomdoc.Hash(packed) != f.sum {
		return roomdoc.ErrContent
	}
	data, err := compress.Gunzip(packed, 2*roomdoc.MaxUnpacked)
	if err != nil {
		return err
	}
	doc, edge := wire.IsEdgeCopy(f.document)
	switch doc {
	case ownedCopy:
		return r.s.rooms.Adopt(data)
	case node.RoomsDocument:
		if err = r.s.rooms.AdoptRooms(data); err == nil {
			r.lost = edge
		}
		return err
	case node.ControlsDocument:
		_, err = room.DecodeControls(data)
	case node.DrawsDocument:
		_, err = draw.DecodeBoard(data)
	}
	if err == nil {
		r.s.fleet.Offer(ctx, doc, data)
	}
	return err
}

// searched reports whether rooms may be published. While a node has newer ones, they are awaited: older ones must not
// get a newer version. A leader that knows no rooms, over a store without any, first asks the nodes for as long as it
// asks for keys.
func (r *refill) searched(ctx context.Context, wall time.Time) bool {
	coming := r.coming(wall)
	defer func() { r.s.restoring.Store(coming || r.empty && !r.settled) }()
	switch {
	case r.fresh:
		return true
	case coming, !r.asked(wall, gatherFor):
		return false
	case r.settled || r.s.rooms.Known() != nil:
		r.empty = false
		return true
	}
	if !r.empty {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		state, err := r.s.rooms.Read(ctx)
		if err != nil {
			return true // publishing fails too, and says why
		}
		r.empty = state.Version == 0
		return !r.empty
	}
	r.settled = r.asked(wall, askFor)
	return r.settled
}

// errComing means that a node has announced newer rooms.
var errComing = errors.New("a node has newer rooms: they are fetched first")

// coming reports whether rooms of a node are fetched, or will be next.
func (r *refill) coming(wall time.Time) bool {
	have := r.have()
	r.copies.mu.Lock()
	defer r.copies.mu.Unlock()
	o := r.choose(wall, have)
	if f := r.copies.fetch; f != nil {
		o = f.offer
	}
	name, _ := wire.IsEdgeCopy(o.document)
	return name == node.RoomsDocument || name == ownedCopy
}
