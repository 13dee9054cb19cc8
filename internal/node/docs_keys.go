package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"vestibule/internal/core/ticket"
)

// How long the store's word that the keys are the newest is good for, and how often
// it is asked at most. A key is known for ten minutes before anybody seals with it.
const (
	confirmFor   = 10 * time.Second
	confirmEvery = time.Second
)

// KeysAreNewest reports whether the store was asked a moment ago for the keys, and
// holds those in use. It never waits: where that is not known, it has the store asked.
func (f *Fleet) KeysAreNewest() bool {
	if at := f.confirmed.Load(); at != 0 && time.Since(f.begun)-time.Duration(at) < confirmFor {
		return true
	}
	select {
	case f.doubts <- struct{}{}:
	default:
	}
	return false
}

// confirm answers doubts about the keys until ctx ends.
func (f *Fleet) confirm(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.doubts:
		}
		at := time.Since(f.begun)
		if err := f.askKeys(ctx); err != nil {
			f.log.Debug("whether the keys are the newest is not known", slog.Any("error", err))
		} else {
			f.confirmed.Store(int64(at))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(confirmEvery):
		}
	}
}

// askKeys returns nil where the store holds the keys in use, perhaps since now.
func (f *Fleet) askKeys(ctx context.Context) error {
	ask, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	// A copy that was cut off, and we with it, would confirm the keys of before. Newer ones are taken from any.
	behind := f.docs.Current(ask)
	data, _, err := f.docs.Get(ask, KeysDocument)
	if err != nil {
		return err
	}
	ring, err := ticket.DecodeKeyring(data)
	if err != nil {
		return err
	}
	if ring.Newer(f.Ring()) { // the watch is behind, or cut off
		f.Offer(ctx, KeysDocument, data)
	}
	if have := f.Ring(); have.Version != ring.Version || !slices.Equal(have.Keys, ring.Keys) {
		return errors.New("the store holds other keys")
	}
	if why := f.Alarm(KeysDocument); why != "" {
		return errors.New(why)
	}
	return behind
}
