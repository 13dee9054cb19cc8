package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/control/api"
)

const (
	keysDocument = "keys" // node.KeysDocument
	keysTarget   = "keys of tickets"
)

// keyService rotates and revokes the keys of tickets.
type keyService struct {
	clock
	auditor
	docs  wire.DocumentStore
	ring  func() ticket.Keyring // of this node
	every time.Duration
}

// keysChange is what the audit entry has. It holds no key.
type keysChange struct {
	Version uint64 `json:"version"`
	Revoked bool   `json:"revoked,omitempty"`
}

// rotate takes the next key into use, or begins a ring of new keys.
func (s *keyService) rotate(ctx context.Context, q *request) (any, error) {
	var f faults
	revoke, _ := f.flag("/revoke_old", f.object("", q.body, "revoke_old")["revoke_old"])
	if f.n > 0 {
		return nil, f.err()
	}
	data, revision, err := s.docs.Get(ctx, keysDocument)
	if err != nil {
		return nil, err
	}
	if data == nil {
		return nil, refusef(http.StatusConflict, codeNotNow, "the store has no ticket keys: the leading global makes or restores them")
	}
	stored, err := ticket.DecodeKeyring(data)
	if err != nil {
		return nil, fmt.Errorf("the store holds no keys that can be read: %w", err)
	}
	now := fleettime.Time(s.fleet())
	have := s.ring().Join(stored, now) // a store that was rolled back lacks keys
	change := ticket.Keyring.Advance
	if revoke {
		change = ticket.Keyring.Revoke
	}
	next, err := change(have, now, s.every, rand.Reader)
	if errors.Is(err, ticket.ErrTooSoon) {
		return nil, refusef(http.StatusConflict, codeNotNow,
			"the next key was announced less than %v ago, and edges may not know it: %v", ticket.MinRotation, err)
	}
	if err != nil {
		return nil, err
	}
	if data, err = ticket.EncodeKeyring(next); err != nil {
		return nil, err
	}
	before, after := &keysChange{Version: have.Version}, &keysChange{next.Version, revoke}
	err = s.audited(ctx, s.now(), keysTarget, before, after, func() error {
		_, err := s.docs.Put(ctx, keysDocument, data, revision)
		return err
	})
	if errors.Is(err, wire.ErrChanged) {
		return nil, refusef(http.StatusConflict, codeNotNow, "the keys were changed by another global meanwhile: ask again")
	}
	if err != nil {
		return nil, err
	}
	done := fmt.Sprintf("the next ticket key is in use: version %d of the keys; tickets of the earlier keys stay valid", next.Version)
	if revoke {
		done = fmt.Sprintf("all tickets are revoked: version %d of the keys; each edge refuses them once it has that version", next.Version)
	}
	return api.Forgotten{Done: done}, nil
}
