package global

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
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
// document pages are named by their content.
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
		page, err := os.ReadFile(filepath.Join(filepath.Dir(file), r.WaitingPage))
		if err == nil {
			err = checkpage.Check(page)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("rooms[%d] %q: waiting_page: %w", i, r.Name, err))
			continue
		}
		r.WaitingPage = node.PageHash(page)
		pages[r.WaitingPage] = page
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
	stamp   string // of the file as it was read last
	again   bool   // what was read is not published yet
	doc     room.Document
	pages   map[string][]byte
}

// lookEvery is how often the rooms file is looked at.
const lookEvery = 250 * time.Millisecond

// run follows the file until ctx ends.
func (p *publisher) run(ctx context.Context, now func() fleet.Time) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	keys := false
	for {
		if !keys {
			if err := p.ensureKeys(ctx, now()); err != nil {
				p.log.Warn("keys not published yet", slog.Any("error", err))
			} else {
				keys = true
			}
		}
		p.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look reads the file if it has changed and publishes it if it is sound.
func (p *publisher) look(ctx context.Context) {
	if stamp := stampOf(p.file); stamp != p.stamp {
		doc, pages, err := readRooms(p.file)
		// The stamp is taken before reading: a change meanwhile is seen again.
		p.stamp = stamp
		if err != nil {
			p.metrics.roomsValid.Set(0)
			p.metrics.roomsRefused.Inc()
			p.log.Error("rooms refused, the last good ones stay", slog.String("file", p.file), slog.Any("error", err))
			return
		}
		p.metrics.roomsValid.Set(1)
		p.doc, p.pages, p.again = doc, pages, true
	}
	if !p.again {
		return
	}
	if err := p.publish(ctx); err != nil {
		p.log.Warn("rooms not published yet", slog.Any("error", err))
		return
	}
	p.again = false
}

// stampOf tells versions of the file and of the pages beside it apart.
func stampOf(file string) string {
	stamp := ""
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		return err.Error()
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); e.Name() != filepath.Base(file) && ext != ".html" && ext != ".mustache" {
			continue
		}
		if info, err := os.Stat(filepath.Join(filepath.Dir(file), e.Name())); err == nil {
			stamp += fmt.Sprintf("%s %d %d;", e.Name(), info.ModTime().UnixNano(), info.Size())
		}
	}
	return stamp
}

// publish writes the document where the store or this node has another one.
func (p *publisher) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for hash, page := range p.pages {
		if _, err := p.docs.Put(ctx, node.PageDocument(hash), page, 0); err != nil && !errors.Is(err, wire.ErrChanged) {
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
	version := p.fleet.Set().Version() // a store that came back older is overtaken
	if stored != nil {
		have, doc, err := node.DecodeRooms(stored)
		if err != nil {
			p.log.Error("the store holds no rooms that can be read; they are replaced", slog.Any("error", err))
		} else {
			if data, err := room.EncodeDocument(doc); err == nil && bytes.Equal(data, want) && have >= version {
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

// ensureKeys makes the first key of a fleet that has none, and gives the store
// back the keys that it lost.
func (p *publisher) ensureKeys(ctx context.Context, now fleet.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stored, revision, err := p.docs.Get(ctx, node.KeysDocument)
	if err != nil {
		return err
	}
	have := p.fleet.Ring()
	if stored != nil {
		ring, err := ticket.DecodeKeyring(stored)
		if err == nil && !have.Newer(ring) {
			return nil
		}
		if err != nil && len(have.Keys) == 0 {
			return fmt.Errorf("the store holds no keys that can be read: %w", err)
		}
	}
	if len(have.Keys) == 0 {
		if have, err = have.Rotate(now, rand.Reader); err != nil {
			return err
		}
	}
	data, err := ticket.EncodeKeyring(have)
	if err != nil {
		return err
	}
	if _, err := p.docs.Put(ctx, node.KeysDocument, data, revision); err != nil {
		return err
	}
	p.log.Info("keys published", slog.Uint64("version", have.Version))
	return nil
}
