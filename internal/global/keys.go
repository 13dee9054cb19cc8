package global

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/push"
	"vestibule/internal/core/ticket"
	"vestibule/internal/node"
)

// ensureKeys makes the first keys of a fleet if no reachable node has any, restores keys that the store lost, merges
// two rings into one, and adds the next key when the newest comes into use.
func (p *publisher) ensureKeys(ctx context.Context, now fleettime.Time, c *census) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stored, revision, err := p.s.Docs.Get(ctx, node.KeysDocument)
	if err != nil {
		return err
	}
	have := ticket.Keyring{}
	if stored != nil {
		if have, err = ticket.DecodeKeyring(stored); err != nil && len(p.s.fleet.Ring().Keys) == 0 {
			return fmt.Errorf("the store holds no keys that can be read: %w", err)
		}
	}
	ring, err := p.known(have, now, c)
	if err != nil {
		return err
	}
	publish := !ring.Equal(have)
	if ring.Due(now, p.s.Config.KeyRotation) {
		if ring, err = ring.Rotate(now, p.s.Config.KeyRotation, rand.Reader); err != nil {
			return err
		}
		publish = true
	}
	if ring.Push == (ticket.Secret{}) && p.s.fleet.Set().Notifies() {
		if ring.Push, err = push.NewSecret(); err != nil {
			return err
		}
		ring.Version, publish = ring.Version+1, true
	}
	if !publish {
		return p.tellNotifiers(ctx, ring.Push)
	}
	data, err := ticket.EncodeKeyring(ring)
	if err != nil {
		return err
	}
	if _, err := p.s.Docs.Put(ctx, node.KeysDocument, data, revision); err != nil {
		return err
	}
	p.s.log.Info("keys published", slog.Uint64("version", ring.Version))
	return p.tellNotifiers(ctx, ring.Push)
}

// tellNotifiers stores the secret of notifications in a document of its own.
func (p *publisher) tellNotifiers(ctx context.Context, secret ticket.Secret) error {
	if secret == (ticket.Secret{}) {
		return nil
	}
	if p.s.EnsurePushes != nil {
		if err := p.s.EnsurePushes(ctx); err != nil {
			return err
		}
	}
	want, err := json.Marshal(secret)
	if err != nil {
		return err
	}
	have, revision, err := p.s.Docs.Get(ctx, node.NotifierDocument)
	if err != nil || bytes.Equal(have, want) {
		return err
	}
	_, err = p.s.Docs.Put(ctx, node.NotifierDocument, want, revision)
	return err
}

// errAsking means that nodes may still have keys.
var errAsking = errors.New("waiting for the fleet's keys from the nodes")

// known returns the keys of the fleet: those of this node, of the store (possibly none) and of the nodes that
// answered. A fleet that may never have admitted anybody gets its first ones once it is initialized.
func (p *publisher) known(stored ticket.Keyring, now fleettime.Time, c *census) (ticket.Keyring, error) {
	heard, since := p.copies.keys()
	own := p.s.fleet.Ring().Join(stored, now)
	switch {
	case len(own.Keys) > 0 || p.fresh:
	case len(heard.Keys) == 0 && !p.asked(time.Now(), askFor), len(heard.Keys) > 0 && time.Since(since) < gatherFor:
		return own, errAsking
	case len(heard.Keys) == 0 && p.new(c):
		return own, errUninitialized
	case len(heard.Keys) == 0:
		p.s.log.Warn("no keys in the store, in data_dir or at any reporting node: making the first ones",
			slog.Duration("asked", askFor))
	}
	ring := own.Join(heard, now)
	if v := ring.Version; v >= max(p.s.fleet.Ring().Version, stored.Version, heard.Version)+ticket.MaxKeys && v != p.joined {
		p.joined = v
		p.s.log.Error("two key rings were in use: the older one stays in use, tickets of the other one stay valid",
			slog.Uint64("version", v))
	}
	return ring, nil
}
