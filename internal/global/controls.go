package global

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/control"
	"vestibule/internal/node"
)

// restore writes this node's version of a document, nil for none, if the store lost it. number returns the version.
func restore[T any](
	ctx context.Context, docs wire.DocumentStore, doc string, known *T, number func(*T) uint64,
	decode func([]byte) (*T, error), encode func(*T) ([]byte, error),
) error {
	if known == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stored, revision, err := docs.Get(ctx, doc)
	if err != nil {
		return err
	}
	if stored != nil {
		if have, err := decode(stored); err != nil || number(have) >= number(known) {
			return err // a document of a newer release is not overwritten
		}
	}
	data, err := encode(known)
	if err != nil {
		return err
	}
	_, err = docs.Put(ctx, doc, data, revision)
	return err
}

// ensureControls restores this node's controls if the store lost them.
func (p *publisher) ensureControls(ctx context.Context) error {
	version := func(c *room.Controls) uint64 { return c.Version }
	return restore(ctx, p.s.Docs, node.ControlsDocument, p.s.fleet.Controls(), version, room.DecodeControls, room.EncodeControls)
}

// takeReleases marks in the store the operators' releases that no global has taken. The ledger lends a release once
// this node reads the mark, so nothing unstored is lent.
func (p *publisher) takeReleases(ctx context.Context, now fleettime.Time) error {
	known := p.s.fleet.Controls()
	if known == nil {
		return nil
	}
	if _, n := known.Take(p.lender, int64(now)); n == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stored, revision, err := p.s.Docs.Get(ctx, node.ControlsDocument)
	if err != nil {
		return err
	}
	have, err := room.DecodeControls(stored)
	if err != nil || have.Version < known.Version {
		return err // the store was rolled back: its document is restored first
	}
	next, n := have.Take(p.lender, int64(now))
	if n == 0 {
		return nil
	}
	data, err := room.EncodeControls(next)
	if err != nil {
		return err
	}
	if _, err = p.s.Docs.Put(ctx, node.ControlsDocument, data, revision); err == nil {
		p.s.log.Info("releases taken", slog.Int("releases", n), slog.Uint64("controls", next.Version))
	} else if errors.Is(err, wire.ErrChanged) {
		err = nil // another writer was first: read again
	}
	return err
}

// letIn returns the newest release of a room at this term and how many visitors it has let in.
func (l *leadership) letIn(id room.ID) (release uint64, people int) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	n := numbersOf(l.alloc.Ledger(id))
	return n.Release, n.LetIn
}

// sayLetIn adds to the audit log that the visitors of a release are let in, once they are.
func (p *publisher) sayLetIn(ctx context.Context, now fleettime.Time) error {
	set, controls := p.s.fleet.Set(), p.s.fleet.Controls()
	if set == nil || controls == nil || p.s.Audit == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var errs []error
	for id, c := range controls.Rooms {
		if c = c.At(int64(now)); c == nil || c.Pause == nil || c.Pause.Release == nil {
			continue
		}
		k := c.Pause.Release
		if k.Lender == nil || *k.Lender != p.lender || p.said[id] == k.ID {
			continue
		}
		i := slices.IndexFunc(set.Rooms(), func(r *room.Room) bool { return room.PublicID(r.TicketName()) == id })
		if i < 0 {
			continue
		}
		r := set.Rooms()[i]
		if release, people := p.letIn(r.ID); release != k.ID || people < k.N {
			continue
		}
		e, err := control.LetIn(now.Std(), id, r.Name, p.s.Config.Name, k)
		if err == nil {
			err = p.s.Audit.Add(ctx, e)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if p.said == nil {
			p.said = map[string]uint64{}
		}
		p.said[id] = k.ID
	}
	maps.DeleteFunc(p.said, func(id string, _ uint64) bool { return controls.Rooms[id] == nil })
	return errors.Join(errs...)
}
