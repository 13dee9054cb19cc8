package global

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"vestibule/internal/core/ticket"
	"vestibule/internal/global/audit"
	"vestibule/internal/node"
)

const (
	lossAfter = time.Hour      // the audit log of a new fleet begins within that time of its keys
	lossFor   = 24 * time.Hour // how long a loss is an alarm
)

// watchLoss looks for a lost store, until ctx ends. The nodes return keys, rooms, controls and the list of data centres
// to a new store, and nothing else.
func (s *Server) watchLoss(ctx context.Context) {
	if s.Audit == nil {
		return
	}
	logged, silent := "", false
	node.Every(ctx, time.Minute, func() {
		first, err := firstEntry(ctx, s.Audit)
		if err != nil {
			if !silent && ctx.Err() == nil {
				s.log.Debug("the begin of the audit log cannot be read", slog.Any("error", err))
			}
			silent = true
			return
		}
		silent = false
		text := lossAlarm(time.Now(), s.fleet.Ring(), first)
		if s.loss.Store(&text); text != "" && text != logged {
			s.log.Error("the store was lost", slog.String("alarm", text))
		}
		logged = text
	})
}

// firstEntry returns the first entry of the audit log, nil for none.
func firstEntry(ctx context.Context, j *audit.Journal) (*audit.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	first, last, err := j.Bounds(ctx)
	if err != nil || last < first {
		return nil, err
	}
	stored, err := j.Read(ctx, first, 1, "")
	if err != nil || len(stored) == 0 {
		return nil, err
	}
	var e audit.Entry
	if err := json.Unmarshal(stored[0].Data, &e); err != nil {
		return nil, fmt.Errorf("audit: entry %d: %w", stored[0].Sequence, err)
	}
	return &e, nil
}

// lossAlarm returns the alarm about a lost store: its audit log begins with number 1 long after the keys of the fleet;
// "" for none. The number of the first key of a ring is the second in which the ring was made.
func lossAlarm(now time.Time, ring ticket.Keyring, first *audit.Entry) string {
	if len(ring.Keys) == 0 || first == nil || first.Number != 1 {
		return ""
	}
	made := time.Unix(int64(ring.Keys[0].ID), 0)
	if first.At.Sub(made) < lossAfter || now.Sub(first.At) >= lossFor {
		return ""
	}
	form := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
	return fmt.Sprintf("a lost store: the audit log begins on %s, the fleet on %s: the API tokens, webhooks, sessions of the console, "+
		"history and audit log of before are gone for good: run vestibule admin recover beside a global, then create tokens "+
		"and webhooks anew; this alarm ends on %s", form(first.At), form(made), form(first.At.Add(lossFor)))
}
