package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/members"
	"vestibule/internal/global/roomstore"
)

// Announce adds an audit entry about anything but a room, before the change. So an entry may name a change that was
// not made, but no change lacks an entry. The returned function adds that the change failed.
func Announce(
	ctx context.Context, j *audit.Journal, now time.Time, target string, before, after any,
) (failed func(context.Context) error, err error) {
	e, err := audit.Of(now, roomstore.ByOf(ctx), target, before, after)
	if err == nil {
		err = j.Add(ctx, e)
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		undo := e
		undo.ID, undo.Failed = rand.Text()[:16], e.ID
		undo.Before, undo.After = nil, nil
		return j.Add(ctx, undo)
	}, nil
}

// maybe returns the error of a write: after any error but a refusal and [wire.ErrChanged] the store may have made the
// change.
func maybe(err error) error {
	_, refused := errors.AsType[*members.RefusedError](err)
	if err == nil || refused || errors.Is(err, wire.ErrChanged) {
		return err
	}
	return fmt.Errorf("%w: %w", roomstore.ErrUnknown, err)
}

// auditor adds the audit entries about changes of anything but rooms.
type auditor struct {
	journal *audit.Journal
	log     *slog.Logger
}

// audited makes a change after its audit entry. The error is [roomstore.ErrUnknown] if the change may have been made.
func (a auditor) audited(
	ctx context.Context, now time.Time, target string, before, after any, change func() error,
) error {
	failed, err := Announce(ctx, a.journal, now, target, before, after)
	if err != nil {
		return err
	}
	return undone(ctx, a.log, target, failed, maybe(change()))
}

// undone adds to the audit stream that an announced change was not made because of err, and returns err. A change that
// may have been made stays as announced. The entry is written even if the client has disconnected.
func undone(
	ctx context.Context, log *slog.Logger, target string, failed func(context.Context) error, err error,
) error {
	if err == nil || failed == nil || errors.Is(err, roomstore.ErrUnknown) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if e := failed(ctx); e != nil {
		log.Warn("control: the audit stream has a change that was not made", slog.String("target", target),
			slog.Any("error", e))
	}
	return err
}

func alone(data json.RawMessage) (*room.Settings, error) {
	if data == nil {
		return nil, nil
	}
	doc, err := room.DecodeDocument(data)
	if err == nil && len(doc.Rooms) != 1 {
		err = fmt.Errorf("%d rooms", len(doc.Rooms))
	}
	if err != nil {
		return nil, fmt.Errorf("audit: a room in an entry: %w", err)
	}
	s := doc.Rooms[0].WithDefaults()
	return &s, nil
}
