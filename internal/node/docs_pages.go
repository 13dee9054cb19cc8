package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"vestibule/internal/core/room/roomdoc"
)

// Page returns the custom page with this content hash, or nil if this node does not have it yet.
func (f *Fleet) Page(hash string) []byte {
	return (*f.pages.Load())[hash]
}

// keepPages keeps the pages of the room set, from the current and the fetched ones, and records missing ones.
func (f *Fleet) keepPages(got map[string][]byte) {
	have, need := *f.pages.Load(), map[string][]byte{}
	f.missing = nil
	use := func(hash string) {
		if need[hash] != nil {
			return
		}
		page := have[hash]
		if page == nil {
			page = got[hash]
		}
		if page != nil {
			need[hash] = page
		} else if !slices.Contains(f.missing, hash) {
			f.missing = append(f.missing, hash)
		}
	}
	for _, r := range f.base.Rooms() {
		for page := range r.EachPage {
			use(page)
		}
	}
	f.pages.Store(&need)
}

// fetchPages returns the pages available within a second from disk or the store. Rooms of the others show the
// built-in page meanwhile.
func (f *Fleet) fetchPages(ctx context.Context, hashes []string) map[string][]byte {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var mu sync.Mutex
	got := map[string][]byte{}
	forEachParallel(hashes, func(_ int, hash string) {
		page, err := f.fetchPage(ctx, hash)
		if err != nil {
			f.log.Debug("page not available", slog.String("page", hash), slog.Any("error", err))
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

func (f *Fleet) fetchPage(ctx context.Context, hash string) ([]byte, error) {
	file := f.file(roomdoc.PageDocument(hash))
	page, err := os.ReadFile(file)
	if err == nil && roomdoc.Hash(page) == hash {
		return page, nil
	}
	stored, _, err := f.docs.Get(ctx, roomdoc.PageDocument(hash))
	if err != nil {
		return nil, err
	}
	if page, err = roomdoc.DecodePage(hash, stored); err != nil {
		return nil, fmt.Errorf("the store's page: %w", err)
	}
	if err := WriteFile(file, page); err != nil {
		f.log.Error("page not stored", slog.Any("error", err))
	}
	return page, nil
}
