package notify

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"vestibule/internal/core/push"
	"vestibule/internal/core/wire"
	"vestibule/internal/node/natsbus"
)

const (
	backupAfter = 5 * time.Second  // a shard of a notifier that is gone is looked after by all
	lostAfter   = 45 * time.Second // a job that nobody has delivered is stored again: longer than a process holds one
)

// call is a message of the leading global.
type call struct {
	push.Calls
	mine bool // this notifier's shards are done
}

// hearCalls takes a message of the leading global.
func (w *Worker) hearCalls(_ string, data []byte) {
	var c push.Calls
	if err := json.Unmarshal(data, &c); err != nil {
		w.Log.Warn("calls refused", slog.Any("error", err))
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	const most = 64
	if c.At = w.now(); len(w.calls) == most {
		w.calls = w.calls[1:]
	}
	w.calls = append(w.calls, call{Calls: c})
}

// notifiers returns the names of the notifiers that work, of which own is one, in order: they share the shards.
func notifiers(own string, alive map[string]time.Time, now time.Time) []string {
	names := []string{own}
	for name, at := range alive {
		if name != own && now.Sub(at) <= helloGood {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// target stores due jobs in the outbox.
func (w *Worker) target(ctx context.Context, find func(*Worker) []push.Job) error {
	w.mu.Lock()
	jobs := find(w)
	w.mu.Unlock()
	if len(jobs) == 0 {
		return nil
	}
	w.Count.due.Add(float64(len(jobs)))
	due := make([]natsbus.Due, len(jobs))
	for i := range jobs {
		data, err := json.Marshal(&jobs[i])
		if err != nil {
			return err
		}
		due[i] = natsbus.Due{Shard: push.Shard(jobs[i].Visitor), ID: jobs[i].ID, Data: data}
	}
	within, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	if err := w.Store.Enqueue(within, due); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.book.Again(jobs) // one that was stored all the same is stored once
		return err
	}
	return nil
}

// dueJobs returns the jobs that are due in this notifier's shards, and those of the other shards that have been due for
// a while. The caller holds the lock.
func (w *Worker) dueJobs() (jobs []push.Job) {
	if !w.current {
		return nil
	}
	now := w.now()
	due := func(shard int, c *call) {
		for _, room := range c.Rooms {
			jobs = append(jobs, w.book.Due(now, shard, room)...)
		}
	}
	names := notifiers(w.Config.Name, w.alive, w.Now())
	for shard := range wire.OutboxShards {
		mine := names[shard%len(names)] == w.Config.Name
		if mine {
			jobs = append(jobs, w.book.Confirm(now, shard)...)
		}
		for i := range w.calls {
			if c := &w.calls[i]; mine && !c.mine || !mine && now.Sub(c.At) >= backupAfter {
				due(shard, c)
			}
		}
	}
	for i := range w.calls {
		w.calls[i].mine = true
	}
	w.calls = slices.DeleteFunc(w.calls, func(c call) bool { return now.Sub(c.At) >= backupAfter })
	return jobs
}
