package global

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/node"
)

// ensureKeys makes the first keys of a fleet if no reachable node has any, restores keys that the store lost, merges
// two rings into one, and adds the next key when the newest comes into use.
func (p *publisher) ensureKeys(ctx context.Context, now fleettime.Time, c *census) error {
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
	ring, err := p.known(have, now, c)
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
