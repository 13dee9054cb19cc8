package global

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/drand"
	"vestibule/internal/node"
)

// drawer runs the draws of events: it announces each with a commit and publishes its record after entries close. Only
// a leader has one. [draw.Board.Due] decides the next step. A secret and a record are written only if absent, so a
// draw has one of each, even if leaders crash or overlap.
type drawer struct {
	docs    wire.Documents
	secrets wire.DocumentStore // of globals alone; no secret is removed from it
	journal *audit.Journal     // nil for none
	fleet   *node.Fleet
	name    string // of this candidate
	log     *slog.Logger

	clock   func() (fleettime.Time, time.Duration)                            // fleet time and its uncertainty
	waiting func(room string) uint64                                          // visitors that wait in a room, by its id
	beacon  string                                                            // policy
	fetch   func(ctx context.Context, closes time.Time) (*draw.Beacon, error) // verified
	// since when the store has no secret, by its key
	missing map[string]fleettime.Time
	noted   map[string]bool // hashes of the notices in the audit stream
}

// drawWithin bounds one attempt, with all requests to stores and beacons.
const drawWithin = 5 * time.Second

// secretLost is how long the store must report a missing secret before the secret counts as lost.
const secretLost = time.Minute

// ensure restores this node's registry if the store lost it.
func (d *drawer) ensure(ctx context.Context) error {
	version := func(b *draw.Board) uint64 { return b.Version }
	return restore(ctx, d.docs, node.DrawsDocument, d.fleet.Board(), version, draw.DecodeBoard, draw.EncodeBoard)
}

// runDue does the due steps.
func (d *drawer) runDue(ctx context.Context) error {
	now, bound := d.clock()
	events := d.fleet.Set().Draws()
	if due := d.fleet.Board().Due(now, bound, events); due.Nothing() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, drawWithin)
	defer cancel()
	board, revision, err := d.stored(ctx)
	if err != nil {
		return err
	}
	due := board.Due(now, bound, events)
	if due.Nothing() {
		return nil // another leader did it; this node hears of it soon
	}
	var write []*draw.Notice
	var faults []error
	for _, e := range due.Void {
		write = append(write, draw.Without(e, "its entries had closed before a draw could be announced"))
	}
	for _, e := range due.Commit {
		n, err := d.commit(ctx, now, e)
		if err != nil {
			faults = append(faults, fmt.Errorf("draw of event %s: %w", e.ID, err))
			continue
		}
		write = append(write, n)
	}
	for _, n := range due.Publish {
		done, err := d.publish(ctx, now, n)
		if err != nil {
			faults = append(faults, fmt.Errorf("draw of event %s: %w", n.Event, err))
			continue
		}
		write = append(write, done)
	}
	if len(write)+len(due.Forget) > 0 {
		faults = append(faults, d.put(ctx, board, revision, now, write, due.Forget))
	}
	return errors.Join(faults...)
}

// stored returns the registry of the store. It is at least as new as this node's.
func (d *drawer) stored(ctx context.Context) (board *draw.Board, revision uint64, err error) {
	data, revision, err := d.docs.Get(ctx, node.DrawsDocument)
	if err != nil {
		return nil, 0, err
	}
	if data != nil {
		if board, err = draw.DecodeBoard(data); err != nil {
			return nil, 0, err
		}
	}
	if known := d.fleet.Board(); known != nil && (board == nil || board.Version < known.Version) {
		return nil, 0, errors.New("the store came back older: what it lost is given back first")
	}
	return board, revision, nil
}

// put writes a registry unless another writer was first. The audit entry is written before the announcement is public.
func (d *drawer) put(
	ctx context.Context, board *draw.Board, revision uint64, now fleettime.Time, write, forget []*draw.Notice,
) error {
	next, err := board.With(uint64(max(0, now)), now, write, forget)
	if err != nil {
		return err
	}
	data, err := draw.EncodeBoard(next)
	if err == nil && len(data) > d.docs.Limit() {
		err = fmt.Errorf("all draws together have %d bytes, and the store takes %d", len(data), d.docs.Limit())
	}
	if err != nil {
		return err
	}
	for _, n := range write {
		if err := d.note(ctx, now, n); err != nil {
			return err
		}
	}
	switch _, err := d.docs.Put(ctx, node.DrawsDocument, data, revision); {
	case errors.Is(err, wire.ErrChanged):
		return nil // the other writer's registry determines the next step
	case err != nil:
		return err
	}
	for _, n := range write {
		log := d.log.With(slog.String("room", n.Room), slog.String("event", n.Event), slog.Time("closes", n.Closes().Std()))
		switch {
		case n.Void != "":
			log.Error("an event begins without its draw, in the order in which people joined", slog.String("why", n.Void))
		case n.Drawn() != nil:
			log.Info("the record of a draw is public",
				slog.Uint64("entrants", n.Drawn().Entrants), slog.Bool("beacon", n.Drawn().Beacon != nil),
				slog.Duration("after_the_close", n.Published.Sub(n.Closes())))
		default:
			log.Info("a draw is announced", slog.String("commit", hex.EncodeToString(n.Commit[:])))
		}
	}
	return nil
}

// note adds an announcement to the audit stream, before it becomes public.
func (d *drawer) note(ctx context.Context, now fleettime.Time, n *draw.Notice) error {
	if d.journal == nil {
		return nil
	}
	data, err := draw.EncodeBoard(&draw.Board{Version: 1, Notices: []*draw.Notice{n}})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	id := hex.EncodeToString(sum[:8])
	if d.noted[id] {
		return nil // the registry was not written in that attempt
	}
	if err := d.journal.Add(ctx, audit.Entry{
		ID: id, At: now.Std(), By: audit.By{Name: "draw", From: d.name, Operation: "draw"},
		Target: "draw of event " + n.Event + " of room " + n.Room, After: data,
	}); err != nil {
		return err
	}
	if d.noted == nil || len(d.noted) > 1000 {
		d.noted = map[string]bool{}
	}
	d.noted[id] = true
	return nil
}

// secretKey returns the store key of a draw's secret.
func secretKey(n *draw.Notice) string {
	return fmt.Sprintf("draw.%s.%s.%d", n.Room, n.Event, int64(n.Start))
}

// secret returns the stored secret of a draw, nil for none, and its revision.
func (d *drawer) secret(ctx context.Context, key string) (*draw.Secret, uint64, error) {
	if d.secrets == nil {
		return nil, 0, errors.New("there is no store of secrets")
	}
	data, revision, err := d.secrets.Get(ctx, key)
	if err != nil || data == nil {
		return nil, revision, err
	}
	if len(data) != len(draw.Secret{}) {
		return nil, 0, fmt.Errorf("the secret has %d bytes", len(data))
	}
	s := draw.Secret(data)
	return &s, revision, nil
}

// commit makes the secret of a draw, unless there is one, and the announcement that commits to it. The secret is
// stored first.
func (d *drawer) commit(ctx context.Context, now fleettime.Time, e draw.Event) (*draw.Notice, error) {
	key := secretKey(&draw.Notice{Room: e.Room, Event: e.ID, Start: e.Start})
	s, revision, err := d.secret(ctx, key)
	if err != nil {
		return nil, err
	}
	if s == nil {
		s = &draw.Secret{}
		rand.Read(s[:]) // documented never to fail
		if _, err := d.secrets.Put(ctx, key, s[:], revision); err != nil {
			return nil, err // a secret made by another leader is found by the next attempt
		}
	}
	return draw.Announce(now, e, *s, d.beacon), nil
}

// publish makes the record of a draw.
func (d *drawer) publish(ctx context.Context, now fleettime.Time, n *draw.Notice) (*draw.Notice, error) {
	key := secretKey(n)
	s, _, err := d.secret(ctx, key)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return d.lost(key, now, n)
	}
	var b *draw.Beacon
	if n.Beacon != draw.BeaconNone {
		if b, err = d.fetch(ctx, n.Closes().Std()); err != nil {
			if b = nil; n.Beacon == draw.BeaconRequired || now < n.Closes().Add(draw.BeaconPatience) {
				return nil, fmt.Errorf("beacon: %w", err)
			}
			d.log.Warn("a draw continues without its beacon", slog.String("event", n.Event), slog.Any("error", err))
		}
	}
	return n.Publish(now, *s, b, d.waiting(n.Room))
}

// lost voids a draw if the store has lost its secret, since nobody can open the commit without it. It retries first,
// in case the answer came from a stale replica.
func (d *drawer) lost(key string, now fleettime.Time, n *draw.Notice) (*draw.Notice, error) {
	if d.missing == nil {
		d.missing = map[string]fleettime.Time{}
	}
	if d.missing[key] == 0 {
		d.missing[key] = now
	}
	if now.Sub(d.missing[key]) < secretLost {
		return nil, errors.New("the store has no secret of it")
	}
	delete(d.missing, key)
	out := *n
	out.Void = "the store lost its secret"
	return &out, nil
}

// lateDraws describes the events that are overdue because the record of their draw is missing.
func (s *Server) lateDraws() (out []string) {
	now, board := s.time(), s.fleet.Board()
	for _, e := range s.fleet.Set().Draws() {
		if n := board.Of(e); now >= e.Start && now < e.End && now < n.Opens() {
			out = append(out,
				fmt.Sprintf("event %s of room %s should have begun %s ago: the record of its draw has not been public for %s", e.ID,
					e.Room, now.Sub(e.Start).Round(time.Second), draw.Settle))
		}
	}
	return out
}

// drawer returns the drawer of this candidate's term.
func (s *Server) drawer() *drawer {
	return &drawer{
		docs: s.Docs, secrets: s.Own, journal: s.Audit, fleet: s.fleet, name: s.Config.Name, log: s.log,
		clock: s.clock, waiting: s.waiting, beacon: s.Config.DrawBeacon, fetch: drand.Mirrors(s.Config.DrawMirrors).Fetch,
	}
}
