package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"vestibule/internal/core/push"
	"vestibule/internal/core/ticket"
)

// tools are made of the fleet's secret.
type tools struct {
	secret ticket.Secret
	sealer *push.Sealer
	sender *sender
}

// fleetSecret is the fleet's secret of notifications. It is safe for concurrent use.
type fleetSecret struct {
	tools atomic.Pointer[tools] // nil without a secret
	none  atomic.Bool           // the store has none yet: no room notifies
}

// learn reads the secret from the store.
func (s *fleetSecret) learn(ctx context.Context, o *Options) error {
	ask, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	data, err := o.Store.Secret(ask)
	if err != nil {
		return err
	}
	had := s.tools.Load()
	s.none.Store(data == nil && had == nil)
	if data == nil {
		return nil
	}
	t := &tools{}
	if err := json.Unmarshal(data, &t.secret); err != nil {
		return fmt.Errorf("the secret of notifications: %w", err)
	}
	if had != nil && had.secret == t.secret {
		return nil
	}
	if t.sealer, err = push.NewSealer(t.secret); err != nil {
		return err
	}
	id, err := push.NewIdentity(t.secret)
	if err != nil {
		return err
	}
	if t.sender = newSender(id, o.Config.Contact, o.Config.Services, o.Out); o.Tune != nil {
		o.Tune(t.sender.client)
	}
	s.tools.Store(t)
	return nil
}
