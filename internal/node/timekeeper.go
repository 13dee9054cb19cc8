package node

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"vestibule/internal/core/fleettime"
)

// Timekeeper stores fleet time in the data_dir of a process for the next process on a machine without a reboot: a
// fleet continues with its time after a restart of all processes. It is safe for concurrent use.
type Timekeeper struct {
	file  string
	boot  string // boot ID of the machine's kernel; "" if unknown: then nothing is stored
	clock *Clock
	log   *slog.Logger

	mu     sync.Mutex
	belief fleettime.Clock
	guess  bool
	unkept bool // the last write failed
}

const (
	timeFile = "time.json"

	// keepEvery is how often fleet time is stored.
	keepEvery = time.Second
)

// NewTimekeeper loads the fleet time stored by the previous process.
func NewTimekeeper(dir string, clock *Clock, log *slog.Logger) *Timekeeper {
	k := &Timekeeper{file: filepath.Join(dir, timeFile), boot: bootID(), clock: clock, log: log}
	data, err := os.ReadFile(k.file)
	if errors.Is(err, os.ErrNotExist) {
		return k
	}
	var r fleettime.Record
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	var known fleettime.Known
	m, errMoment := k.moment()
	if err = errors.Join(err, errMoment); err == nil {
		if known, err = r.Read(k.boot, m.boot, m.wall); err == nil {
			known.Bound += m.apart
			k.belief.Restore(m.now, known)
			k.guess = known.Guess
		}
	}
	if err != nil {
		log.Info("no usable fleet time in data_dir: learning it from the fleet",
			slog.String("file", k.file), slog.Any("reason", err))
		return k
	}
	log.Info("fleet time restored from data_dir",
		slog.Time("time", known.Time.Std()), slog.Duration("uncertainty", known.Bound))
	return k
}

// clockReading is one reading of all clocks of the machine.
type clockReading struct {
	now   fleettime.Mono
	wall  fleettime.Time
	boot  time.Duration // since boot
	apart time.Duration // maximum time between the readings
}

func (k *Timekeeper) moment() (clockReading, error) {
	before := k.clock.Now()
	boot, err := sinceBoot()
	now, wall := k.clock.Read()
	return clockReading{now, fleettime.TimeOf(wall), boot, now.Sub(before)}, err
}

// Known returns fleet time at reading now, or the zero value if it is unknown.
func (k *Timekeeper) Known(now fleettime.Mono) fleettime.Known {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.belief.Known(now)
	known.Guess = k.guess
	return known
}

// Run stores the fleet time of look, once a second and at the end, until ctx ends.
func (k *Timekeeper) Run(ctx context.Context, look func(now fleettime.Mono) fleettime.Known) {
	if k.boot == "" {
		return
	}
	Every(ctx, keepEvery, func() { k.keep(look) })
	k.keep(look)
}

// keep stores the current fleet time. If it is unknown the file stays as it is.
func (k *Timekeeper) keep(look func(now fleettime.Mono) fleettime.Known) {
	m, err := k.moment()
	known := look(m.now)
	if !known.OK() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.belief.Set(m.now, known.Time, known.Bound)
	k.guess = known.Guess
	if err == nil {
		r := fleettime.Record{
			Boot: k.boot, At: m.boot, Wall: m.wall, Time: known.Time, Bound: known.Bound + m.apart, Guess: known.Guess,
		}
		var data []byte
		if data, err = json.Marshal(r); err == nil {
			err = replaceFile(k.file, false, data) // after a crash of the machine it is useless
		}
	}
	if err != nil && !k.unkept {
		k.log.Warn("fleet time is not stored: after a restart of all processes no visitor is admitted until all earlier tickets have expired",
			slog.String("file", k.file), slog.Any("error", err))
	}
	k.unkept = err != nil
}
