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
	fresh   bool          // the operator says that the fleet begins
	rotate  time.Duration // age at which the newest key is followed by another, 0 for never

	stamp   string // of the file and its pages as they were read last
	seen    string // of them as they were seen last
	again   bool   // what was read is not published yet, as far as is known
	good    bool   // what was read last is sound
	doc     room.Document
	pages   map[string][]byte // by file
	trouble map[string]string // what was said last about a thing that does not work yet
}

// lookEvery is how often the rooms file is looked at.
const lookEvery = 250 * time.Millisecond

// run follows the file until ctx ends.
func (p *publisher) run(ctx context.Context, now func() fleet.Time) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	repaired := time.Time{}
	for keysAt, roomsAt := (time.Time{}), (time.Time{}); ; {
		wall := time.Now()
		if wall.Sub(repaired) > repairEvery && len(p.fleet.Alarms()) > 0 {
			keysAt, roomsAt, repaired = time.Time{}, time.Time{}, wall
		}
		if wall.After(keysAt) {
			err := p.ensureKeys(ctx, now())
			if err == nil {
				keysAt = wall.Add(storeEvery)
			}
			p.tell("keys", err)
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

// tell logs that a thing is not published yet, once for every reason.
func (p *publisher) tell(thing string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if p.trouble == nil {
		p.trouble = map[string]string{}
	}
	if text != "" && text != p.trouble[thing] {
		p.log.Warn("not published yet", slog.String("document", thing), slog.Any("error", err))
	}
	p.trouble[thing] = text
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
		p.pages = pages
		// Pages may be named that were not before. A change meanwhile is seen in
		// the next look.
		p.seen = p.stampNow()
		p.stamp = p.seen
		if err != nil {
			p.again, p.good = false, false
			p.metrics.roomsValid.Set(0)
			p.metrics.roomsRefused.Inc()
			p.log.Error("rooms refused, the last good ones stay", slog.String("file", p.file), slog.Any("error", err))
			return
		}
		p.metrics.roomsValid.Set(1)
		p.doc, p.again, p.good = doc, true, true
	}
	if !p.again {
		return
	}
	err := p.publish(ctx)
	p.tell("rooms", err)
	p.again = err != nil
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

// publish writes the document where the store or this node has another one.
func (p *publisher) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, page := range p.pages {
		if _, err := p.docs.Put(ctx, node.PageDocument(node.PageHash(page)), page, 0); err != nil && !errors.Is(err, wire.ErrChanged) {
			return err // ErrChanged: it is there already, and a page never changes under its name
		}
	}
	stored, revision, err := p.docs.Get(ctx, node.RoomsDocument)
	if err != nil {
		return err
	}
	want, err := room.EncodeDocument(p.doc)
	if err != nil {
		return err
	}
	// A store that came back older is overtaken. So is one that was lost together
	// with what this node knew: no version is below the date.
	own := p.fleet.Set().Version()
	version := max(own, uint64(max(0, time.Now().UnixMilli()-1)))
	if stored != nil {
		have, doc, err := node.DecodeRooms(stored)
		if err != nil {
			p.log.Error("the store holds no rooms that can be read; they are replaced", slog.Any("error", err))
		} else {
			if data, err := room.EncodeDocument(doc); err == nil && bytes.Equal(data, want) && have >= own && p.fleet.Alarm(node.RoomsDocument) == "" {
				return nil
			}
			version = max(version, have)
		}
	}
	data, err := node.EncodeRooms(version+1, p.doc)
	if err != nil {
		return err
	}
	if _, err := p.docs.Put(ctx, node.RoomsDocument, data, revision); err != nil {
		return err
	}
	p.log.Info("rooms published", slog.Uint64("version", version+1), slog.Int("rooms", len(p.doc.Rooms)))
	return nil
}

// ensureKeys makes the first keys of a fleet that has none, gives the store back
// the keys that it lost, and adds the next key when the one before comes into use.
func (p *publisher) ensureKeys(ctx context.Context, now fleet.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stored, revision, err := p.docs.Get(ctx, node.KeysDocument)
	if err != nil {
		return err
	}
	ring, publish := p.fleet.Ring(), true
	if stored == nil && len(ring.Keys) == 0 && !p.fresh {
		p.log.Warn("no keys in the store or in data_dir: making the first ones; nodes that have others will refuse these")
	}
	if stored != nil {
		have, err := ticket.DecodeKeyring(stored)
		if err != nil && len(ring.Keys) == 0 {
			return fmt.Errorf("the store holds no keys that can be read: %w", err)
		}
		switch {
		case err != nil || ring.Newer(have):
		case !have.Continues(ring), have.Version == ring.Version && !slices.Equal(have.Keys, ring.Keys):
			// Somebody without our keys began anew. Ours are known, those are not.
			ring.Version = have.Version + 1
		default:
			ring, publish = have, false
		}
	}
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
