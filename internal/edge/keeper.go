package edge

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/edge/gate"
	"vestibule/internal/node"
)

// keeper writes snapshots of the engine to the data folder, off the path of requests. If the process is killed, its
// successor settles it by the newest one: see settling.
type keeper struct {
	gate    *gate.Gate
	folder  *node.Folder
	before  *settling
	metrics *metrics
	log     *slog.Logger
	kick    chan struct{}
	after   func(time.Duration) <-chan time.Time

	encoder snapshotEncoder
	writing <-chan error // result of an unfinished write, whose data must not change; nil for none

	trouble atomic.Pointer[string] // alarm; nil for none
}

const (
	// folderLag is how long a write may take before the folder counts as void.
	folderLag = 300 * time.Millisecond

	// snapshotChunk is how many rooms are taken under one lock.
	snapshotChunk = 32
)

// run writes a snapshot whenever one is due, until ctx ends.
func (k *keeper) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-k.kick:
		}
		wait := k.wait()
		if wait <= 0 {
			k.snapshot(ctx)
			wait = k.wait()
		}
		timer.Reset(min(max(wait, time.Millisecond), time.Minute))
	}
}

// wait returns the time until the next snapshot.
func (k *keeper) wait() (d time.Duration) {
	k.gate.Engine.With(func(now fleettime.Mono, eng *admission.Engine) { d = eng.Snapshots.Due().Sub(now) })
	return d
}

// snapshot takes and writes one snapshot.
func (k *keeper) snapshot(ctx context.Context) {
	start := time.Now()
	err := k.finish(ctx)
	var data []byte
	if err == nil {
		data = k.encoder.take(k.gate.Engine.With)
		err = k.write(ctx, data)
	}
	k.metrics.snapshotTime.Observe(time.Since(start).Seconds())
	k.metrics.snapshotBytes.Set(float64(len(data)))
	if err == nil {
		k.metrics.snapshots.WithLabelValues("written").Inc()
		k.gate.Engine.Snapshotted()
		k.report(nil)
		return
	}
	k.metrics.snapshots.WithLabelValues(node.Failed).Inc()
	emptied := k.folder.DropPast()
	k.gate.Engine.With(func(now fleettime.Mono, eng *admission.Engine) { eng.Snapshots.Failed(now, emptied == nil) })
	k.report(errors.Join(err, emptied))
}

// snapshotEncoder encodes the rooms that changed since the snapshot before, into memory that it uses again.
type snapshotEncoder struct {
	chunk [snapshotChunk]wire.RoomPast
	order []room.ID
	rooms [][]byte // encoded, as of the newest snapshot
	data  []byte   // the newest snapshot
}

// take returns a snapshot of the engine that with gives access to. It is valid until the next call.
func (s *snapshotEncoder) take(with func(func(fleettime.Mono, *admission.Engine))) []byte {
	var number uint64
	var head wire.Report
	var dropped []room.ID
	with(func(now fleettime.Mono, eng *admission.Engine) { number, head, dropped = eng.Snapshots.Begin(now) })
	s.drop(dropped)
	var after room.ID
	for first, more := true, true; more; first = false {
		var changed []wire.RoomPast
		with(func(now fleettime.Mono, eng *admission.Engine) {
			changed, after, more = eng.Snapshots.Take(now, after, first, s.chunk[:])
		})
		for i := range changed {
			s.put(&changed[i])
		}
	}
	s.data = wire.AppendPast(s.data[:0], number, &head, s.rooms)
	return s.data
}

// put encodes a room for this snapshot and the next ones.
func (s *snapshotEncoder) put(p *wire.RoomPast) {
	i, ok := slices.BinarySearch(s.order, p.Report.Room)
	if !ok {
		s.order, s.rooms = slices.Insert(s.order, i, p.Report.Room), slices.Insert(s.rooms, i, nil)
	}
	s.rooms[i] = wire.AppendRoomPast(s.rooms[i][:0], p)
}

// drop removes rooms from the next snapshots. A room that was added again is put again.
func (s *snapshotEncoder) drop(rooms []room.ID) {
	for _, id := range rooms {
		if i, ok := slices.BinarySearch(s.order, id); ok {
			s.order, s.rooms = slices.Delete(s.order, i, i+1), slices.Delete(s.rooms, i, i+1)
		}
	}
}

// write writes a snapshot, with those of processes before this one that the regional has not settled yet. A write that
// takes long makes the folder void meanwhile.
func (k *keeper) write(ctx context.Context, data []byte) error {
	done := make(chan error, 1)
	k.writing = done
	go func() { done <- k.folder.KeepPast(append(k.before.unsettled(), data)) }()
	select {
	case err := <-done:
		k.writing = nil
		return err
	case <-k.after(folderLag):
	}
	k.gate.Engine.With(func(now fleettime.Mono, eng *admission.Engine) { eng.Snapshots.Lag(now) })
	k.report(errLags)
	return k.finish(ctx)
}

// finish waits for an unfinished write, and returns its error; nil for none.
func (k *keeper) finish(ctx context.Context) error {
	if k.writing == nil {
		return nil
	}
	select {
	case err := <-k.writing:
		k.writing = nil
		return err
	case <-ctx.Done(): // the process ends, whatever the disk does
		return errLags
	}
}

var errLags = errors.New("a write takes longer than 300 ms")

// report raises or ends the alarm about the data folder.
func (k *keeper) report(err error) {
	had := k.trouble.Load() != nil
	switch {
	case err != nil:
		text := "data_dir cannot be written in time (" + err.Error() + "): if this process is killed, its permits stay reserved until its tickets expire; free space or replace the disk"
		if k.trouble.Store(&text); !had {
			k.log.Error("data_dir cannot be written in time: if this process is killed, its permits stay reserved until its tickets expire",
				slog.Any("error", err))
		}
	case had:
		k.trouble.Store(nil)
		k.log.Info("data_dir is written in time again")
	}
}

// settling sends the last reports of earlier processes in the data folder. It is safe for concurrent use.
type settling struct {
	log *slog.Logger

	mu   sync.Mutex
	left []predecessor // not settled yet
}

type predecessor struct {
	*admission.Predecessor
	data []byte // its snapshot
}

// newSettling returns the earlier processes in a folder that were killed, or said goodbye to nobody.
func newSettling(folder *node.Folder, params wire.Params, log *slog.Logger) *settling {
	s := &settling{log: log}
	snapshots := folder.Pasts(log)
	for _, data := range snapshots[max(0, len(snapshots)-fleettime.MaxLives):] {
		p, err := wire.DecodePast(data)
		if err != nil {
			log.Warn("a snapshot in data_dir cannot be read: the permits of an earlier process count until its tickets expire",
				slog.Any("error", err))
			continue
		}
		s.left = append(s.left, predecessor{admission.NewPredecessor(p, params), data})
	}
	return s
}

// reports returns the reports that are due, and when the next ones are.
func (s *settling) reports(now fleettime.Mono) (out []wire.Report, due fleettime.Mono) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due = fleettime.Never
	for _, p := range s.left {
		if p.Due() <= now {
			out = append(out, p.Report(now)...)
		}
		due = min(due, p.Due())
	}
	return out, due
}

// apply applies a grant to the earlier processes.
func (s *settling) apply(now fleettime.Mono, g *wire.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = slices.DeleteFunc(s.left, func(p predecessor) bool {
		if p.Apply(now, *g); p.Settled() {
			s.log.Info("the regional has settled an earlier process in data_dir, or refuses to",
				slog.Uint64("instance", p.Instance()))
		}
		return p.Settled()
	})
}

// unsettled returns the snapshots of the processes that are not settled yet.
func (s *settling) unsettled() (out [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.left {
		out = append(out, p.data)
	}
	return out
}
