package global

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/room/roomfile"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/node"
	"vestibule/internal/page/checkpage"
)

// Documents is where global publishes what every node follows.
type Documents interface {
	node.Documents
	roomstore.Documents
}

// watched lets the store of rooms look at what is watched.
type watched struct {
	Documents
	store *roomstore.Store
}

func (w watched) Watch(ctx context.Context, handle func(key string, data []byte)) error {
	return w.Documents.Watch(ctx, func(key string, data []byte) {
		if key == roomstore.OwnedDocument {
			w.store.Offer(data)
			return
		}
		handle(key, data)
	})
}

// Watched are the documents that a global watches.
var Watched = []string{node.RoomsDocument, roomstore.OwnedDocument, node.KeysDocument, node.MembersDocument, node.ControlsDocument, node.DrawsDocument}

// readRooms reads and checks the rooms file and the pages that it names. In the
// document pages are named by their content, in the map by their file. doubts are about
// what can be used and is probably not meant so.
func readRooms(file string) (doc room.Document, pages map[string][]byte, doubts []string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return room.Document{}, nil, nil, err
	}
	doc, err = roomfile.Parse(data)
	if err != nil {
		return room.Document{}, nil, nil, err
	}
	pages = map[string][]byte{}
	var faults []error
	for i := range doc.Rooms {
		r := &doc.Rooms[i]
		r.Pages(func(named *string) {
			if *named == "" {
				return
			}
			name := filepath.Join(filepath.Dir(file), *named)
			page, err := os.ReadFile(name)
			pages[name] = page
			if err == nil {
				var in []string
				in, err = checkpage.Check(page)
				for _, d := range append(in, roomdoc.PageDoubts(page)...) {
					doubts = append(doubts, *named+": "+d)
				}
			}
			if err != nil {
				faults = append(faults, fmt.Errorf("rooms[%d] %q: waiting_page: %w", i, r.Name, err))
				return
			}
			*named = roomdoc.Hash(page)
		})
	}
	if len(faults) == 0 { // what no store can take is refused here, not when it is to be stored
		_, err = roomstore.Pack(1, doc, roomstore.SectionBytes)
		faults = append(faults, err)
	}
	return doc, pages, doubts, errors.Join(faults...)
}

// publisher keeps the rooms in the store as the rooms file says, where there is one, and makes
// the first keys. Only a leader runs one.
type publisher struct {
	name    string      // of this candidate
	lender  room.Lender // its term
	docs    Documents
	rooms   *roomstore.Store
	fleet   *node.Fleet
	file    string // "" for none
	log     *slog.Logger
	metrics *metrics
	fresh   bool // the operator says that the fleet begins

	census   func() census // of the data centres
	founders []string      // the first list of them
	status   []byte        // what was told of them last
	statusAt time.Time

	churn   *churnKeeper
	churnAt time.Time // when it was stored last

	draws   *drawer
	drawsAt time.Time // when they are looked at again

	bus     wire.Bus
	copies  *copies
	askedAt time.Time // when nodes were asked last
	asking  time.Time // since when they are, 0 while they cannot be
	joined  uint64    // version of the newest ring that was told to be made of two

	rotate time.Duration // age at which the newest key is followed by another, 0 for never

	stamp     string // of the file and its pages as they were read last
	seen      string // of them as they were seen last
	again     bool   // what was read is not published yet, as far as is known
	good      bool   // what was read last is sound
	doc       room.Document
	beaten    bool              // it cannot be stored, or the store is the authority and says something else
	pages     map[string][]byte // by file
	published uint64            // version of the rooms that was published last, or was there
}

// fileEvery is how often the rooms file is looked at.
const fileEvery = 250 * time.Millisecond

// run follows the file until ctx ends.
func (p *publisher) run(ctx context.Context, now func() fleettime.Time) {
	tick := time.NewTicker(fileEvery)
	defer tick.Stop()
	defer p.metrics.trouble.end()
	repaired := time.Time{}
	for keysAt, roomsAt, membersAt, controlsAt := (time.Time{}), (time.Time{}), (time.Time{}), (time.Time{}); ; {
		wall := time.Now()
		if p.copies.fresh() {
			keysAt, roomsAt, membersAt, controlsAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		}
		if wall.Sub(repaired) > repairEvery && len(p.fleet.Alarms()) > 0 {
			keysAt, roomsAt, membersAt, controlsAt, repaired = time.Time{}, time.Time{}, time.Time{}, time.Time{}, wall
		}
		c := p.census()
		p.ask(wall, &c)
		if wall.After(membersAt) || c.changes() {
			err := p.tendMembers(ctx, wall, &c)
			if err == nil && !c.Unfounded {
				membersAt = wall.Add(storeEvery)
			}
			p.tell(node.MembersDocument, err)
		}
		if wall.Sub(p.statusAt) >= statusEvery {
			p.statusAt = wall
			p.tell(node.MembersStatusDocument, p.tellStatus(ctx, wall))
		}
		if wall.Sub(p.churnAt) >= storeEvery {
			p.churnAt = wall
			p.tell(churnDocument, p.churn.keep(ctx))
		}
		if wall.After(keysAt) {
			err := p.ensureKeys(ctx, now())
			if err == nil {
				keysAt = wall.Add(storeEvery)
			}
			p.tell(node.KeysDocument, err)
		}
		if wall.After(controlsAt) {
			err := p.ensureControls(ctx)
			if err == nil {
				controlsAt = wall.Add(storeEvery)
			}
			p.tell(node.ControlsDocument, err)
			p.tell(node.DrawsDocument, p.draws.ensure(ctx))
		}
		if wall.After(p.drawsAt) {
			err := p.draws.tend(ctx)
			if err != nil {
				p.drawsAt = wall.Add(drawAgain)
			}
			p.tell(drawsDue, err)
		}
		p.tell(node.ControlsDocument+" (releases)", p.takeReleases(ctx, now()))
		if wall.After(roomsAt) {
			p.again = true // what was published once may have been lost since
			roomsAt = wall.Add(storeEvery)
		}
		p.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// drawAgain is when a draw is tended again with which something went wrong, drawsDue what that is told under.
const (
	drawAgain = time.Second
	drawsDue  = node.DrawsDocument + " (what is due)"
)

// storeEvery is how often it is looked whether the store holds what it should.
const storeEvery = 10 * time.Second

// repairEvery is how often it is put right at most, while this node refuses what
// it holds: the node must have heard of one attempt before the next.
const repairEvery = 2 * time.Second

// tell notes whether a document is published, and logs that it is not yet, once
// for every reason.
func (p *publisher) tell(doc string, err error) {
	if text, news := p.metrics.trouble.note(doc, err); news {
		p.log.Warn("not published yet", slog.String("document", doc), slog.String("error", text))
	}
}

// look reads the file if it has changed, and publishes it if it is sound. A file
// that was just changed is left alone until it is seen twice as it is: it may be
// half written, and half a file may be a valid one with fewer rooms.
func (p *publisher) look(ctx context.Context) {
	if p.file != "" {
		p.read()
	}
	if known := p.rooms.Known(); known != nil && known.Version != p.published {
		p.again = true // somebody else changed rooms: nodes may not have been told
	}
	if !p.again {
		return
	}
	err := p.publish(ctx)
	differs, held := errors.AsType[*roomstore.DiffersError](err)
	if held {
		err = nil // the store's rooms are published
	}
	p.tell(node.RoomsDocument, err)
	p.again = err != nil
	_, large := errors.AsType[*roomstore.TooLargeError](err)
	faults, refused := errors.AsType[room.Faults](err)
	if held {
		p.metrics.trouble.refuse(differs)
	} else if p.good {
		p.metrics.trouble.refuse(nil)
	}
	if p.good && (large || refused || held) != p.beaten {
		p.beaten = !p.beaten // not in force, however long it is tried
		p.metrics.roomsValid.Set(1)
		if p.beaten {
			p.metrics.roomsValid.Set(0)
			p.metrics.roomsRefused.Inc()
		}
		if held {
			p.log.Error("rooms refused, those in the store stay", slog.String("file", p.file), slog.Any("error", differs))
		}
		for _, f := range faults {
			p.log.Error("rooms refused, the last good ones stay", slog.String("file", p.file), slog.Any("error", f))
		}
	}
}

// read reads the file if it has changed.
func (p *publisher) read() {
	stamp := p.stampNow()
	settled := stamp == p.seen || p.stamp == ""
	p.seen = stamp
	if stamp == p.stamp || !settled {
		return
	}
	doc, pages, doubts, err := readRooms(p.file)
	if p.stampNow() != stamp { // changed while it was read: this is neither version
		p.stamp = "changing"
		return
	}
	// Pages may be named that were not before.
	p.pages = pages
	p.seen = p.stampNow()
	p.stamp = p.seen
	if err != nil {
		p.again, p.good, p.beaten = false, false, false
		p.metrics.trouble.refuse(err)
		p.metrics.roomsValid.Set(0)
		p.metrics.roomsRefused.Inc()
		p.log.Error("rooms refused, the last good ones stay", slog.String("file", p.file), slog.Any("error", err))
		return
	}
	for _, d := range doubts {
		p.log.Warn("a waiting page may not do what it is there for", slog.String("page", d))
	}
	p.metrics.trouble.refuse(nil)
	p.metrics.roomsValid.Set(1)
	p.doc, p.again, p.good, p.beaten = doc, true, true, false
}

// stampNow tells versions of the file and of its pages apart.
func (p *publisher) stampNow() string {
	var stamp strings.Builder
	for _, name := range append(slices.Sorted(maps.Keys(p.pages)), p.file) {
		info, err := os.Stat(name)
		if err != nil {
			stamp.WriteString(err.Error() + ";")
			continue
		}
		fmt.Fprintf(&stamp, "%s %d %d;", name, info.ModTime().UnixNano(), info.Size())
	}
	return stamp.String()
}

// publish makes the rooms what the file says, where that is sound, and gives the store back what it
// lost. Without a file the store is the authority. The error is a [*roomstore.DiffersError] where it
// is so still, and the file says something else.
func (p *publisher) publish(ctx context.Context) error {
	before := p.rooms.Known()
	renamed := p.fleet.Set().Renamed(p.doc)
	ctx = roomstore.By(ctx, audit.By{Name: "rooms file", From: p.name, Operation: "publish"})
	var differs *roomstore.DiffersError
	state, err := p.rooms.Publish(ctx, p.fleet.Alarm(node.RoomsDocument) != "", func(d *roomstore.Draft) error {
		differs = nil
		switch {
		case p.file == "":
			d.Detach()
		case p.good:
			if err := d.Follow(p.doc); errors.As(err, &differs) {
				return nil
			} else if err != nil {
				return err
			}
			for name, page := range p.pages {
				d.AddPage("waiting_page "+filepath.Base(name), page)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.published = state.Version
	if differs != nil {
		return differs
	}
	if before != nil && before.FromFile != state.FromFile {
		p.log.Info("rooms have another authority", slog.Bool("file", state.FromFile))
	}
	if before != nil && before.Version == state.Version {
		return nil
	}
	for name, old := range renamed {
		p.log.Warn("a room was renamed: its tickets are worth nothing any more, and everybody in it begins anew",
			slog.String("room", name), slog.String("before", old))
	}
	changed := len(state.Rooms)
	if before != nil {
		changed = len(roomstore.Changes(before, state))
	}
	p.log.Info("rooms published", slog.Uint64("version", state.Version), slog.Int("rooms", len(state.Rooms)), slog.Int("changed", changed))
	return nil
}

// ensureControls gives the store back the controls that it lost, as this node knows them.
func (p *publisher) ensureControls(ctx context.Context) error {
	known := p.fleet.Controls()
	if known == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stored, revision, err := p.docs.Get(ctx, node.ControlsDocument)
	if err != nil {
		return err
	}
	if have, err := room.DecodeControls(stored); stored != nil && (err != nil || have.Version >= known.Version) {
		return err // what a newer release wrote is not written over
	}
	data, err := room.EncodeControls(known)
	if err != nil {
		return err
	}
	_, err = p.docs.Put(ctx, node.ControlsDocument, data, revision)
	return err
}

// takeReleases takes in the store what operators want to have released that no global has taken. The ledger lends
// it once this node reads that it is taken, so nothing is lent that is not stored.
func (p *publisher) takeReleases(ctx context.Context, now fleettime.Time) error {
	known := p.fleet.Controls()
	if known == nil {
		return nil
	}
	if _, n := known.Take(p.lender, int64(now)); n == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stored, revision, err := p.docs.Get(ctx, node.ControlsDocument)
	if err != nil {
		return err
	}
	have, err := room.DecodeControls(stored)
	if err != nil || have.Version < known.Version {
		return err // of a store that came back older: it is given back first
	}
	next, n := have.Take(p.lender, int64(now))
	if n == 0 {
		return nil
	}
	data, err := room.EncodeControls(next)
	if err != nil {
		return err
	}
	if _, err = p.docs.Put(ctx, node.ControlsDocument, data, revision); err == nil {
		p.log.Info("releases taken", slog.Int("releases", n), slog.Uint64("controls", next.Version))
	} else if errors.Is(err, wire.ErrChanged) {
		err = nil // somebody else wrote: what is to be taken then is read anew
	}
	return err
}

// ensureKeys makes the first keys of a fleet of which no node that can be heard has any,
// gives the store back the keys that it lost, makes two rings one, and adds the next key
// when the one before comes into use.
func (p *publisher) ensureKeys(ctx context.Context, now fleettime.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stored, revision, err := p.docs.Get(ctx, node.KeysDocument)
	if err != nil {
		return err
	}
	have := ticket.Keyring{}
	if stored != nil {
		if have, err = ticket.DecodeKeyring(stored); err != nil && len(p.fleet.Ring().Keys) == 0 {
			return fmt.Errorf("the store holds no keys that can be read: %w", err)
		}
	}
	ring, err := p.known(have, now)
	if err != nil {
		return err
	}
	publish := ring.Version != have.Version || !slices.Equal(ring.Keys, have.Keys)
	if ring.Due(now, p.rotate) {
		if ring, err = ring.Rotate(now, p.rotate, rand.Reader); err != nil {
			return err
		}
		publish = true
	}
	if !publish {
		return nil
	}
	data, err := ticket.EncodeKeyring(ring)
	if err != nil {
		return err
	}
	if _, err := p.docs.Put(ctx, node.KeysDocument, data, revision); err != nil {
		return err
	}
	p.log.Info("keys published", slog.Uint64("version", ring.Version))
	return nil
}
