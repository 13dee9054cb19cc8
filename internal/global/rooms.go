package global

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/room/roomfile"
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

// checkFile reads the file if it has changed, and publishes it if it is valid. A changed file must look the same twice
// before it is read: it may be half written, and half a file may be valid, with fewer rooms.
func (p *publisher) checkFile(ctx context.Context) {
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
	p.recordResult(node.RoomsDocument, err)
	p.again = err != nil
	_, large := errors.AsType[*roomstore.TooLargeError](err)
	faults, refused := errors.AsType[room.Faults](err)
	if held {
		p.metrics.trouble.refuse(differs)
	} else if p.good {
		p.metrics.trouble.refuse(nil)
	}
	if p.good && (large || refused || held) != p.rejected {
		p.rejected = !p.rejected // not in force, and retries do not help
		p.metrics.roomsValid.Set(1)
		if p.rejected {
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
		p.again, p.good, p.rejected = false, false, false
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
	p.doc, p.again, p.good, p.rejected = doc, true, true, false
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
		case p.coming(time.Now()): // since the look before this publication: these rooms must not get a newer version than that
			return errComing
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
		p.log.Warn("a room was renamed: its tickets are void, and all its visitors begin again",
			slog.String("room", name), slog.String("before", old))
	}
	changed := len(state.Rooms)
	if before != nil {
		changed = len(roomstore.Changes(before, state))
		if gone := roomstore.Unserved(before, state); len(gone) > 0 {
			p.log.Warn("hosts are served no longer, edges answer 421: to serve their sites without a room, list them under hosts in the file",
				slog.Int("hosts", len(gone)), slog.String("first", gone[0]), slog.String("file", p.file))
		}
	}
	p.log.Info("rooms published", slog.Uint64("version", state.Version), slog.Int("rooms", len(state.Rooms)), slog.Int("changed", changed))
	return nil
}
