package global

import (
	"bytes"
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

	"vestibule/internal/fleet"
	"vestibule/internal/node"
	"vestibule/internal/room"
	"vestibule/internal/roomfile"
	"vestibule/internal/ticket"
	"vestibule/internal/waiting/checkpage"
	"vestibule/internal/wire"
)

// Documents is where global publishes what every node follows.
type Documents interface {
	node.Documents

	// Put writes a document that was at revision when it was read, 0 for one
	// that did not exist. It returns wire.ErrChanged if it no longer is; any
	// other error leaves open whether it was written.
	Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error)

	// Limit returns how many bytes a document may have.
	Limit() int

	// List returns when the documents that match a pattern ("page.*") were written.
	List(ctx context.Context, pattern string) (map[string]time.Time, error)

	// Delete removes a document.
	Delete(ctx context.Context, key string) error
}

// readRooms reads and checks the rooms file and the pages that it names. In the
// document pages are named by their content, in the map by their file.
func readRooms(file string) (room.Document, map[string][]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return room.Document{}, nil, err
	}
	doc, err := roomfile.Parse(data)
	if err != nil {
		return room.Document{}, nil, err
	}
	pages := map[string][]byte{}
	var faults []error
	for i := range doc.Rooms {
		r := &doc.Rooms[i]
		if r.WaitingPage == "" {
			continue
		}
		name := filepath.Join(filepath.Dir(file), r.WaitingPage)
		page, err := os.ReadFile(name)
		pages[name] = page
		if err == nil {
			err = checkpage.Check(page)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("rooms[%d] %q: waiting_page: %w", i, r.Name, err))
			continue
		}
		r.WaitingPage = node.PageHash(page)
	}
	if len(faults) == 0 { // what no store can take is refused here, not when it is to be stored
		_, err = node.PackRooms(doc, node.SectionBytes)
		faults = append(faults, err)
	}
	return doc, pages, errors.Join(faults...)
}

// publisher keeps the store as the rooms file says, and makes the first keys.
// Only a leader runs one.
type publisher struct {
	docs    Documents
	fleet   *node.Fleet
	file    string
	log     *slog.Logger
	metrics *metrics
	fresh   bool // the operator says that the fleet begins

	census   func() census // of the data centres
	founders []string      // the first list of them
	status   []byte        // what was told of them last
	statusAt time.Time

	bus     wire.Bus
	copies  *copies
	askedAt time.Time // when nodes were asked last
	asking  time.Time // since when they are, 0 while they cannot be
	joined  uint64    // version of the newest ring that was told to be made of two

	rotate time.Duration // age at which the newest key is followed by another, 0 for never

	stamp  string // of the file and its pages as they were read last
	seen   string // of them as they were seen last
	again  bool   // what was read is not published yet, as far as is known
	good   bool   // what was read last is sound
	doc    room.Document
	packed *node.PackedRooms // doc, for values of limit bytes; nil before it was needed
	limit  int
	large  bool              // it cannot be stored
	pages  map[string][]byte // by file
}

// lookEvery is how often the rooms file is looked at.
const lookEvery = 250 * time.Millisecond

// run follows the file until ctx ends.
func (p *publisher) run(ctx context.Context, now func() fleet.Time) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	defer p.metrics.trouble.end()
	repaired := time.Time{}
	for keysAt, roomsAt, membersAt := (time.Time{}), (time.Time{}), (time.Time{}); ; {
		wall := time.Now()
		if p.copies.fresh() {
			keysAt, roomsAt, membersAt = time.Time{}, time.Time{}, time.Time{}
		}
		if wall.Sub(repaired) > repairEvery && len(p.fleet.Alarms()) > 0 {
			keysAt, roomsAt, membersAt, repaired = time.Time{}, time.Time{}, time.Time{}, wall
		}
		c := p.census()
		p.ask(wall, &c)
		if wall.After(membersAt) || c.changes() {
			err := p.tendMembers(ctx, wall, &c)
			if err == nil && !c.unfounded {
				membersAt = wall.Add(storeEvery)
			}
			p.tell(node.MembersDocument, err)
		}
		if wall.Sub(p.statusAt) >= statusEvery {
			p.statusAt = wall
			p.tell(node.MembersStatusDocument, p.tellStatus(ctx, wall))
		}
		if wall.After(keysAt) {
			err := p.ensureKeys(ctx, now())
			if err == nil {
				keysAt = wall.Add(storeEvery)
			}
			p.tell(node.KeysDocument, err)
		}
		if wall.After(roomsAt) {
			p.again = p.good // what was published once may have been lost since
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

// look reads the file if it has changed and publishes it if it is sound. A file
// that was just changed is left alone until it is seen twice as it is: it may be
// half written, and half a file may be a valid one with fewer rooms.
func (p *publisher) look(ctx context.Context) {
	stamp := p.stampNow()
	settled := stamp == p.seen || p.stamp == ""
	p.seen = stamp
	if stamp != p.stamp && settled {
		doc, pages, err := readRooms(p.file)
		if p.stampNow() != stamp { // changed while it was read: this is neither version
			p.stamp = "changing"
			return
		}
		// Pages may be named that were not before.
		p.pages = pages
		p.seen = p.stampNow()
		p.stamp = p.seen
		if err != nil {
			p.again, p.good, p.large = false, false, false
			p.metrics.roomsValid.Set(0)
			p.metrics.roomsRefused.Inc()
			p.log.Error("rooms refused, the last good ones stay", slog.String("file", p.file), slog.Any("error", err))
			return
		}
		p.metrics.roomsValid.Set(1)
		p.doc, p.packed, p.again, p.good, p.large = doc, nil, true, true, false
	}
	if !p.again {
		return
	}
	err := p.publish(ctx)
	p.tell(node.RoomsDocument, err)
	p.again = err != nil
	if _, large := errors.AsType[*node.TooLargeError](err); large != p.large {
		p.large = large // what cannot be stored is not in force, however long it is tried
		p.metrics.roomsValid.Set(1)
		if large {
			p.metrics.roomsValid.Set(0)
			p.metrics.roomsRefused.Inc()
		}
	}
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

// publish writes the document where the store or this node has another one: first
// what it names, then itself.
func (p *publisher) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishWithin)
	defer cancel()
	if limit := p.docs.Limit(); p.packed == nil || p.limit != limit {
		packed, err := node.PackRooms(p.doc, limit)
		if err != nil {
			return err
		}
		p.packed, p.limit = packed, limit
	}
	if err := p.publishParts(ctx); err != nil {
		return err
	}
	stored, revision, err := p.docs.Get(ctx, node.RoomsDocument)
	if err != nil {
		return err
	}
	// A store that came back older is overtaken. So is one that was lost together
	// with what this node knew: nodes tell which versions they know, and none is below
	// the date.
	own := max(p.fleet.Set().Version(), p.copies.roomsVersion())
	version := max(own, uint64(max(0, time.Now().UnixMilli()-1)))
	if stored != nil {
		have, same, err := p.packed.Holds(stored)
		if err != nil {
			p.log.Error("the store holds no rooms that can be read; they are replaced", slog.Any("error", err))
		}
		if err == nil && same && have >= own && p.fleet.Alarm(node.RoomsDocument) == "" {
			return nil
		}
		version = max(version, have)
	}
	data, err := p.packed.Head(version + 1)
	if err != nil {
		return err
	}
	renamed := p.fleet.Set().Renamed(p.doc)
	if _, err := p.docs.Put(ctx, node.RoomsDocument, data, revision); err != nil {
		return err
	}
	for name, old := range renamed {
		p.log.Warn("a room was renamed: its tickets are worth nothing any more, and everybody in it begins anew",
			slog.String("room", name), slog.String("before", old))
	}
	p.log.Info("rooms published", slog.Uint64("version", version+1), slog.Int("rooms", len(p.doc.Rooms)), slog.Int("sections", len(p.packed.Sections())))
	return nil
}

// publishWithin bounds one attempt to publish the rooms.
const publishWithin = 10 * time.Second

// publishParts writes the pages and sections that the store lacks, and deletes those
// that nothing names any more. Neither ever changes under its name, unless somebody
// spoiled it: then there is an alarm.
func (p *publisher) publishParts(ctx context.Context) error {
	parts := maps.Clone(p.packed.Sections())
	if parts == nil {
		parts = map[string][]byte{}
	}
	for name, page := range p.pages {
		if len(page) > p.limit {
			return &node.TooLargeError{What: "waiting_page " + filepath.Base(name), Size: len(page), Limit: p.limit}
		}
		parts[node.PageDocument(node.PageHash(page))] = page
	}
	stored, err := p.docs.List(ctx, "*.*")
	if err != nil {
		return err
	}
	doubted := p.fleet.Alarm(node.RoomsDocument) != ""
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		if _, there := stored[key]; there && !doubted {
			continue
		}
		have, revision, err := p.docs.Get(ctx, key)
		if err != nil {
			return err
		}
		if bytes.Equal(have, parts[key]) {
			continue
		}
		if _, err := p.docs.Put(ctx, key, parts[key], revision); err != nil && !errors.Is(err, wire.ErrChanged) {
			return err // ErrChanged: somebody else has just written it
		}
	}
	for key, at := range stored {
		if parts[key] == nil && node.StoredByContent(key) && time.Since(at) > unnamedFor {
			if err := p.docs.Delete(ctx, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// unnamedFor is how old pages and sections are at least that are deleted because
// nothing names them: a node that is slow may still be reading them.
const unnamedFor = time.Hour

// ensureKeys makes the first keys of a fleet of which no node that can be heard has any,
// gives the store back the keys that it lost, makes two rings one, and adds the next key
// when the one before comes into use.
func (p *publisher) ensureKeys(ctx context.Context, now fleet.Time) error {
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
