package node

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"vestibule/internal/core/ticket"
)

// Validity of a confirmation that the keys are the newest, and the minimum time between checks. A key is published
// ten minutes before its first use.
const (
	confirmFor   = 10 * time.Second
	confirmEvery = time.Second
)

// keyConfirmation is the confirmation by the store that the keys in use are the newest.
type keyConfirmation struct {
	doubts    chan struct{} // requests
	confirmed atomic.Int64  // last confirmation: nanoseconds since begun, 0 for never
	begun     time.Time
}

// KeysAreNewest reports whether the store has recently confirmed the keys in use. It never blocks: if that is
// unknown, it triggers a check.
func (k *keyConfirmation) KeysAreNewest() bool {
	if at := k.confirmed.Load(); at != 0 && time.Since(k.begun)-time.Duration(at) < confirmFor {
		return true
	}
	select {
	case k.doubts <- struct{}{}:
	default:
	}
	return false
}

// confirm checks the keys of f on request until ctx ends.
func (k *keyConfirmation) confirm(ctx context.Context, f *Fleet) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.doubts:
		}
		at := time.Since(k.begun)
		if err := checkKeys(ctx, f); err != nil {
			f.log.Debug("keys not confirmed by the store", slog.Any("error", err))
		} else {
			k.confirmed.Store(int64(at))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(confirmEvery):
		}
	}
}

// checkKeys returns nil if the store holds the keys in use, possibly after an update.
func checkKeys(ctx context.Context, f *Fleet) error {
	ask, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	// An isolated replica would confirm old keys. Newer ones are accepted from any replica.
	behind := f.docs.Current(ask)
	data, _, err := f.docs.Get(ask, KeysDocument)
	if err != nil {
		return err
	}
	ring, err := ticket.DecodeKeyring(data)
	if err != nil {
		return err
	}
	if ring.Newer(f.Ring()) { // the watch is late or disconnected
		f.Offer(ctx, KeysDocument, data)
	}
	if have := f.Ring(); !have.Equal(ring) {
		return errors.New("the store holds different keys")
	}
	if why := f.Alarm(KeysDocument); why != "" {
		return errors.New(why)
	}
	return behind
}
