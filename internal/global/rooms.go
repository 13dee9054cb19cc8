package global

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/node"
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
var Watched = []string{
	node.RoomsDocument, roomstore.OwnedDocument, node.KeysDocument, node.MembersDocument, node.ControlsDocument,
	node.DrawsDocument,
}

// checkFile reads the file if it has changed, and publishes it if it is valid.
func (p *publisher) checkFile(ctx context.Context) {
	if p.file.name != "" {
		p.readFile()
	}
	if known := p.s.rooms.Known(); known != nil && known.Version != p.published {
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
		p.s.metrics.trouble.refuse(differs)
	} else if p.file.good {
		p.s.metrics.trouble.refuse(nil)
	}
	if p.file.good && (large || refused || held) != p.rejected {
		p.rejected = !p.rejected // not in force, and retries do not help
		p.s.metrics.roomsValid.Set(1)
		if p.rejected {
			p.s.metrics.roomsValid.Set(0)
			p.s.metrics.roomsRefused.Inc()
		}
		if held {
			p.s.log.Error("rooms refused, those in the store stay", slog.String("file", p.file.name), slog.Any("error", differs))
		}
		for _, f := range faults {
			p.s.log.Error("rooms refused, the last good ones stay", slog.String("file", p.file.name), slog.Any("error", f))
		}
	}
}

// readFile reads the file if it has changed.
func (p *publisher) readFile() {
	changed, doubts, err := p.file.read()
	if !changed {
		return
	}
	p.rejected, p.again = false, p.file.good
	if err != nil {
		err = fmt.Errorf("%s: %w", p.file.name, err)
	}
	p.s.metrics.trouble.refuse(err)
	if err != nil {
		p.s.metrics.roomsValid.Set(0)
		p.s.metrics.roomsRefused.Inc()
		p.s.log.Error("rooms refused, the last good ones stay", slog.Any("error", err))
		return
	}
	for _, d := range doubts {
		p.s.log.Warn("a waiting page may not do what it is there for", slog.String("page", d))
	}
	p.s.metrics.roomsValid.Set(1)
}

// publish makes the rooms equal to the file, if it is valid, and restores lost parts of the store. Without a file the
// store is the authority. The error is a [*roomstore.DiffersError] if the store is still the authority and the file
// differs.
func (p *publisher) publish(ctx context.Context) error {
	before := p.s.rooms.Known()
	renamed := p.s.fleet.Set().Renamed(p.file.doc)
	own := p.own.refusal(ctx, p, before)
	ctx = roomstore.By(ctx, audit.By{Name: "rooms file", From: p.s.Config.Name, Operation: "publish"})
	var differs *roomstore.DiffersError
	state, err := p.s.rooms.Publish(ctx, p.s.fleet.Alarm(node.RoomsDocument) != "", func(d *roomstore.Draft) error {
		differs = nil
		switch {
		case p.coming(time.Now()): // since the last look: these rooms must not get a newer version
			return errComing
		case p.file.name == "":
			d.Detach()
		case p.file.good:
			if own != nil {
				return own
			}
			if err := d.Follow(p.file.doc); errors.As(err, &differs) {
				return nil
			} else if err != nil {
				return err
			}
			for name, page := range p.file.pages {
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
		p.s.log.Info("rooms have another authority", slog.Bool("file", state.FromFile))
	}
	if before != nil && before.Version == state.Version {
		return nil
	}
	for name, old := range renamed {
		p.s.log.Warn("a room was renamed: its tickets are void, and all its visitors begin again",
			slog.String("room", name), slog.String("before", old))
	}
	changed := len(state.Rooms)
	if before != nil {
		changed = len(roomstore.Changes(before, state))
		if gone := roomstore.Unserved(before, state); len(gone) > 0 {
			p.s.log.Warn("hosts are served no longer, edges answer 421: to serve their sites without a room, list them under hosts in the file",
				slog.Int("hosts", len(gone)), slog.String("first", gone[0]), slog.String("file", p.file.name))
		}
	}
	p.s.log.Info("rooms published",
		slog.Uint64("version", state.Version), slog.Int("rooms", len(state.Rooms)), slog.Int("changed", changed))
	return nil
}
