package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/wire"
)

// pageCache holds the custom pages of the room set, in memory and on disk.
type pageCache struct {
	dir  string
	docs wire.DocumentFeed
	log  *slog.Logger

	byHash  atomic.Pointer[map[string][]byte]
	missing []string // content hashes of missing pages that the room set refers to
}

// Page returns the custom page with this content hash, or nil if this node does not have it yet.
func (f *Fleet) Page(hash string) []byte { return (*f.pages.byHash.Load())[hash] }

// keep keeps the pages of a room set, from the current and the fetched ones, records missing ones, and removes the
// copies of all others.
func (c *pageCache) keep(set *room.Set, got map[string][]byte) {
	have, need := *c.byHash.Load(), map[string][]byte{}
	c.missing = nil
	files := map[string]bool{} // of the set
	use := func(hash string) {
		if need[hash] != nil {
			return
		}
		files[copyFile(c.dir, roomdoc.PageDocument(hash))] = true
		page := have[hash]
		if page == nil {
			page = got[hash]
		}
		if page != nil {
			need[hash] = page
		} else if !slices.Contains(c.missing, hash) {
			c.missing = append(c.missing, hash)
		}
	}
	for _, r := range set.Rooms() {
		for page := range r.EachPage {
			use(page)
		}
	}
	c.byHash.Store(&need)
	copies, err := os.ReadDir(c.dir)
	for _, f := range copies {
		if roomdoc.IsPage(f.Name()) && !files[filepath.Join(c.dir, f.Name())] {
			err = errors.Join(err, os.Remove(filepath.Join(c.dir, f.Name())))
		}
	}
	if err != nil {
		c.log.Warn("copies of unused pages not removed", slog.Any("error", err))
	}
}

// fetchAll returns the pages available within a second from disk or the store. Rooms of the others show the
// built-in page meanwhile.
func (c *pageCache) fetchAll(ctx context.Context, hashes []string) map[string][]byte {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var mu sync.Mutex
	got := map[string][]byte{}
	forEachParallel(hashes, func(_ int, hash string) {
		page, err := c.fetch(ctx, hash)
		if err != nil {
			c.log.Debug("page not available", slog.String("page", hash), slog.Any("error", err))
			return
		}
		mu.Lock()
		got[hash] = page
		mu.Unlock()
	})
	return got
}

// forEachParallel calls do with every item, a few concurrently.
func forEachParallel(items []string, do func(i int, item string)) {
	var g sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i, item := range items {
		slots <- struct{}{}
		g.Go(func() {
			do(i, item)
			<-slots
		})
	}
	g.Wait()
}

func (c *pageCache) fetch(ctx context.Context, hash string) ([]byte, error) {
	file := copyFile(c.dir, roomdoc.PageDocument(hash))
	page, err := os.ReadFile(file)
	if err == nil && roomdoc.Hash(page) == hash {
		return page, nil
	}
	stored, _, err := c.docs.Get(ctx, roomdoc.PageDocument(hash))
	if err != nil {
		return nil, err
	}
	if page, err = roomdoc.DecodePage(hash, stored); err != nil {
		return nil, fmt.Errorf("the store's page: %w", err)
	}
	if err := WriteFile(file, page); err != nil {
		c.log.Error("page not stored", slog.Any("error", err))
	}
	return page, nil
}
