package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/lab/testkit"
)

// TestFleetTimeIsKeptOverAStart: a process stores fleet time as it ends, and the next one in its folder knows it
// with its uncertainty. A file that is damaged, or of another boot, is ignored, with a reason in the log.
func TestFleetTimeIsKeptOverAStart(t *testing.T) {
	if bootID() == "" {
		t.Skip("nothing here tells one start of the machine from another")
	}
	dir, quiet := t.TempDir(), slog.New(slog.DiscardHandler)
	const fleetAhead = 90 * time.Second // fleet time is no machine's clock
	clock := NewClock()
	truth := func() fleettime.Time { return fleettime.TimeOf(time.Now().Add(fleetAhead)) }
	ended, end := context.WithCancel(t.Context())
	end()
	NewTimekeeper(dir, clock, quiet).Run(ended, func(fleettime.Mono) fleettime.Known {
		return fleettime.Known{Time: truth(), Bound: 20 * time.Millisecond, Guess: true}
	})

	clock = NewClock()
	next := NewTimekeeper(dir, clock, quiet)
	k := next.Known(clock.Now())
	if off := truth().Sub(k.Time).Abs(); !k.OK() || off > k.Bound || k.Bound > time.Second || !k.Guess {
		t.Errorf("known: %+v, off by %v", k, off)
	}
	// An unknown time does not replace the stored one.
	next.Run(ended, func(fleettime.Mono) fleettime.Known { return fleettime.Known{} })
	if k := NewTimekeeper(dir, clock, quiet).Known(clock.Now()); !k.OK() {
		t.Errorf("forgotten: %+v", k)
	}

	file := filepath.Join(dir, timeFile)
	data := testkit.Must(os.ReadFile(file))(t)
	for name, text := range map[string]string{
		"damaged":       string(data[:len(data)/2]),
		"another start": strings.Replace(string(data), bootID(), "another", 1),
	} {
		testkit.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		var log testkit.Log
		k := NewTimekeeper(dir, clock, slog.New(slog.NewTextHandler(&log, nil))).Known(clock.Now())
		if k.OK() || !strings.Contains(log.String(), "no usable fleet time in data_dir") {
			t.Errorf("%s: %+v, and the log says %q", name, k, &log)
		}
	}
}
