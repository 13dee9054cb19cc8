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

// watched gives the store of rooms the watched documents.
type watched struct {
	wire.Documents
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

// Watched lists the documents that a global watches.
var Watched = []string{node.RoomsDocument, roomstore.OwnedDocument, node.KeysDocument, node.MembersDocument, node.ControlsDocument, node.DrawsDocument}

// readRooms reads and checks the rooms file and its pages. The document names pages by their content, the map by their
// file. doubts are about settings that are valid but probably unintended.
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
	if len(faults) == 0 { // refuse here, not on write, if no store can take it
		_, err = roomstore.Pack(1, doc, roomstore.SectionBytes)
		faults = append(faults, err)
	}
	return doc, pages, doubts, errors.Join(faults...)
}

// publisher keeps the rooms in the store equal to the rooms file, if there is one, and makes the first keys. Only a
// leader runs one.
type publisher struct {
	name    string      // of this candidate
	lender  room.Lender // its term
	docs    wire.Documents
	rooms   *roomstore.Store
	fleet   *node.Fleet
	file    string // "" for none
	log     *slog.Logger
	metrics *metrics
	fresh   bool // the operator says that the fleet is new

	census   func() census // of the data centres
	founders []string      // the first list of them
	status   []byte        // last published state of them
	statusAt time.Time

	churn   *churnKeeper
	churnAt time.Time // when it was last stored

	draws   *drawer
	drawsAt time.Time // when to check them again

	bus     wire.Bus
	copies  *copies
	askedAt time.Time // when nodes were last asked
	asking  time.Time // since when nodes are asked, 0 while disconnected
	joined  uint64    // version of the newest ring logged as merged

	rotate time.Duration // age of the newest key at which the next is made, 0 for never

	stamp     string // of the file and its pages as last read
	seen      string // of the file and its pages as last seen
	again     bool   // the file as read may be unpublished
	good      bool   // the file as read is valid
	doc       room.Document
	beaten    bool              // it cannot be stored, or the store is the authority and differs
	pages     map[string][]byte // by file
	published uint64            // version of the rooms last published, or found in the store
}

// fileEvery is how often the rooms file is checked.
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
			p.again = true // the store may have lost a published document
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

// drawAgain is the retry delay of a failed draw. drawsDue is the name that its errors are reported under.
const (
	drawAgain = time.Second
	drawsDue  = node.DrawsDocument + " (what is due)"
)

// storeEvery is how often the contents of the store are checked.
const storeEvery = 10 * time.Second

// repairEvery is the minimum interval between repairs while this node refuses the contents of the store: the node must
// see the result of one attempt before the next.
const repairEvery = 2 * time.Second

// tell records whether a document is published, and logs each new failure once.
func (p *publisher) tell(doc string, err error) {
	if text, news := p.metrics.trouble.note(doc, err); news {
		p.log.Warn("not published yet", slog.String("document", doc), slog.String("error", text))
	}
}

// look reads the file if it has changed, and publishes it if it is valid. A changed file must look the same twice
// before it is read: it may be half written, and half a file may be valid, with fewer rooms.
func (p *publisher) look(ctx context.Context) {
	if p.file != "" {
		p.read()
	}
	if known := p.rooms.Known(); known != nil && known.Version != p.published {
		p.again = true // another writer changed rooms: nodes may not know yet
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
		p.beaten = !p.beaten // not in force, and retries do not help
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
	if p.stampNow() != stamp { // changed during the read: this is neither version
		p.stamp = "changing"
		return
	}
	// The file may name new pages.
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

// stampNow identifies the version of the file and of its pages.
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

// publish makes the rooms equal to the file, if it is valid, and restores what the store lost. Without a file the
// store is the authority. The error is a [*roomstore.DiffersError] if the store is still the authority and the file
// differs.
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

// ensureControls restores this node's controls if the store lost them.
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
		return err // a document of a newer release is not overwritten
	}
	data, err := room.EncodeControls(known)
	if err != nil {
		return err
	}
	_, err = p.docs.Put(ctx, node.ControlsDocument, data, revision)
	return err
}

// takeReleases marks in the store the operators' releases that no global has taken. The ledger lends a release once
// this node reads the mark, so nothing unstored is lent.
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
		return err // the store was rolled back: its document is restored first
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
		err = nil // another writer was first: read again
	}
	return err
}

// ensureKeys makes the first keys of a fleet if no reachable node has any, restores keys that the store lost, merges
// two rings into one, and adds the next key when the newest comes into use.
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
