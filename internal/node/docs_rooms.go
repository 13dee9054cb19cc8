package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"vestibule/internal/core/ledger"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
)

func sortDocument(d *room.Document) {
	slices.SortStableFunc(d.Rooms, func(a, b room.Settings) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(d.Hosts, func(a, b room.Host) int { return cmp.Compare(a.Name, b.Name) })
}

// roomsOffer is a complete rooms document.
type roomsOffer struct {
	version  uint64
	doc      room.Document
	sections map[string]room.Document // its sections by content hash; nil for a plain document
	pages    map[string][]byte        // its pages by content hash, as far as available
}

// unknown returns the content hashes of the rooms' pages that are not in have.
func (o *roomsOffer) unknown(have map[string][]byte) []string {
	var out []string
	seen := map[string]bool{}
	for i := range o.doc.Rooms {
		for hash := range o.doc.Rooms[i].EachPage {
			if !seen[hash] && have[hash] == nil {
				out = append(out, hash)
			}
			seen[hash] = true
		}
	}
	return out
}

// lateError means that the store does not hold a referenced section yet.
type lateError struct{ error }

// sectionWait is how long one attempt waits for sections.
const sectionWait = 5 * time.Second

// readRooms decodes a rooms document of either form, and reads sections from the store that are not in use already.
func (f *Fleet) readRooms(ctx context.Context, data []byte) (roomsOffer, error) {
	h, err := roomdoc.DecodeHead(data)
	if err != nil {
		return roomsOffer{}, err
	}
	o := roomsOffer{version: h.Version}
	if len(h.Sections) == 0 {
		o.doc, err = room.DecodeDocument(h.Document)
		return o, err
	}
	f.mu.Lock()
	have := f.sections
	f.mu.Unlock()
	o.sections = map[string]room.Document{}
	var missing []string
	for _, hash := range h.Sections {
		if d, ok := have[hash]; ok {
			o.sections[hash] = d
		} else if !slices.Contains(missing, hash) {
			missing = append(missing, hash)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sectionWait)
	defer cancel()
	got, failed := make([][]byte, len(missing)), make([]error, len(missing))
	forEachParallel(missing, func(i int, hash string) {
		got[i], _, failed[i] = f.docs.Get(ctx, roomdoc.SectionDocument(hash))
	})
	late := func(hash string, err error) error {
		return lateError{fmt.Errorf("version %d: section %s: %w", h.Version, hash, err)}
	}
	left := roomdoc.MaxUnpacked
	for i, hash := range missing {
		switch {
		case failed[i] != nil:
			return o, late(hash, failed[i])
		case got[i] == nil:
			return o, late(hash, errors.New("not in the store yet"))
		}
		d, size, err := roomdoc.DecodeSection(hash, got[i], left)
		if err != nil {
			return o, late(hash, err)
		}
		left -= size
		o.sections[hash] = d
	}
	for _, hash := range h.Sections {
		d := o.sections[hash]
		o.doc.Rooms, o.doc.Hosts = append(o.doc.Rooms, d.Rooms...), append(o.doc.Hosts, d.Hosts...)
		if max(len(o.doc.Rooms), len(o.doc.Hosts)) > room.MaxRooms {
			return o, fmt.Errorf("rooms document: rooms, hosts: must be at most %d", room.MaxRooms)
		}
	}
	return o, nil
}

// roomsInUse are the rooms of a fleet.
type roomsInUse struct{ f *Fleet }

func (r roomsInUse) version() uint64 { return r.f.set.Load().Version() }

func (r roomsInUse) adopt(data []byte) (bool, error) {
	version, d, err := roomdoc.DecodeRooms(data)
	if err != nil {
		return false, err
	}
	return r.f.adoptRooms(roomsOffer{version: version, doc: d})
}

func (r roomsInUse) encoded() (uint64, []byte, error) {
	data, err := os.ReadFile(copyFile(r.f.dir, RoomsDocument)) // it is complete
	if err != nil {
		return 0, nil, err
	}
	head, err := roomdoc.DecodeHead(data)
	return head.Version, data, err
}

// adoptRooms switches to rooms, and reports whether it did: not to those in use.
func (f *Fleet) adoptRooms(o roomsOffer) (bool, error) {
	d := o.doc.WithDefaults()
	sortDocument(&d) // the order of rooms has no meaning
	plain, err := room.EncodeDocument(d)
	if err != nil {
		return false, err
	}
	digest := sha256.Sum256(plain)
	if have := f.base; have != nil {
		same := o.version == have.Version() && digest == f.digest
		if err := succeeds(have.Version(), o.version, same); err != nil || same {
			return false, err
		}
	}
	set, err := room.NewSet(o.doc, o.version)
	if err != nil {
		return false, err
	}
	f.digest, f.sections, f.base = digest, o.sections, set
	f.pages.keep(set, o.pages)
	return true, nil
}

// offerRooms is Offer for the rooms. It reads sections from the store without a lock, and drops an offer overtaken
// meanwhile.
func (f *Fleet) offerRooms(ctx context.Context, turn uint64, data []byte) {
	var o roomsOffer
	var err error
	if data != nil {
		if o, err = f.readRooms(ctx, data); err == nil {
			o.pages = f.pages.fetchAll(ctx, o.unknown(*f.pages.byHash.Load()))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if turn != f.turn {
		return
	}
	if late, ok := errors.AsType[lateError](err); ok {
		f.late = data
		f.raise(RoomsDocument, late.Error())
		return
	}
	f.late = nil
	news := false
	switch {
	case err != nil:
	case data == nil:
		_, err = f.adopt(RoomsDocument, nil)
	default:
		news, err = f.adoptRooms(o)
		f.adopted(RoomsDocument, news)
	}
	if f.record(RoomsDocument, err) || !news {
		return
	}
	if len(f.pages.missing) > 0 {
		f.log.Error("pages missing, the built-in one is shown", slog.Any("pages", f.pages.missing))
	}
	if o.sections != nil { // the copy on disk is complete, in the form that every release reads
		if data, err = roomdoc.EncodeRooms(o.version, o.doc); err != nil {
			f.log.Error("last good copy not written", slog.String("document", RoomsDocument), slog.Any("error", err))
			f.changed()
			return
		}
	}
	f.saveCopy(RoomsDocument, data)
}

// LedgerRooms returns the rooms of a set in the form of the ledger.
func LedgerRooms(set *room.Set) []ledger.RoomConfig {
	var out []ledger.RoomConfig
	for _, r := range set.Rooms() {
		out = append(out, ledger.ConfigOf(r))
	}
	return out
}
