package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// Writer writes the history during one term. It is safe for concurrent use.
type Writer struct {
	history *History
	seconds chan batch // to be written

	mu       sync.Mutex
	recorder *history.Recorder
	begun    bool  // the recorder continues from its predecessor
	second   int64 // newest recorded second
}

// batch is a second to be written.
type batch struct {
	at    int64
	rooms []history.State
}

// Lead returns the writer of a new term. It records nothing before Begin.
func (h *History) Lead() *Writer {
	return &Writer{history: h, recorder: history.NewRecorder(nil), seconds: make(chan batch, 10)}
}

// Begin continues from the newest second of the log: totals must not begin at less. It returns an error if that is not
// known.
func (w *Writer) Begin(ctx context.Context, now time.Time) error {
	known, err := w.history.Catch(ctx, now)
	if !known {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recorder.Continue(w.history.states())
	w.begun = true
	return nil
}

// Observe takes the report of a data centre, of the term of its aggregator.
func (w *Writer) Observe(m *wire.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range m.Rooms {
		r := &m.Rooms[i]
		w.recorder.Observe(m.From, uint64(r.Room), history.Report{
			Term: m.Instance, Joined: r.Joined, Admitted: r.Admitted, Entered: r.Entered, Counts: r.Counts,
			Waiting: int64(max(0, r.Waiting.Total()) + 0.5),
		})
	}
	if m.Part+1 >= m.Parts {
		w.recorder.Heard(m.From)
	}
}

// Record records a second, unless it was recorded: the gauges of each room, nil for unknown. It returns false if it
// was.
func (w *Writer) Record(at int64, rooms []*room.Room, gauges func(*room.Room) *history.Gauges) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at <= w.second || !w.begun {
		return false
	}
	b := batch{at: at}
	for _, r := range rooms {
		g := gauges(r)
		if g == nil {
			continue
		}
		if s, ok := w.recorder.Record(at, uint64(r.ID), g); ok {
			b.rooms = append(b.rooms, s)
		}
	}
	w.second = at
	w.history.hear(at, b.rooms) // this process continues from it, also if it is not written
	if at%history.Beat == 0 {
		known := map[uint64]bool{}
		for _, r := range rooms {
			known[uint64(r.ID)] = true
		}
		w.recorder.Keep(func(id uint64) bool { return known[id] })
	}
	select {
	case w.seconds <- b:
	default: // the store is slow: the next second has these changes too
	}
	return true
}

// Run writes the records until ctx ends. rooms returns all rooms.
func (w *Writer) Run(ctx context.Context, rooms func() []room.ID) {
	written := make(chan int64, 1) // the newest written second
	var blocks sync.WaitGroup
	blocks.Go(func() { w.makeBlocks(ctx, written, rooms) })
	defer blocks.Wait()
	trouble := w.trouble("seconds")
	for {
		err := w.Begin(ctx, time.Now())
		if trouble(err); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-w.seconds:
			trouble(w.writeSecond(ctx, b))
			select {
			case <-written: // an older one
			default:
			}
			written <- b.at
		}
	}
}

// trouble returns a function that logs when errors begin and end.
func (w *Writer) trouble(what string) func(error) {
	failing, log := false, w.history.log.With(slog.String("what", what))
	return func(err error) {
		switch {
		case errors.Is(err, context.Canceled) || (err != nil) == failing:
			return
		case err != nil:
			log.Warn("history is not written; charts will have a gap unless the store is back soon", slog.Any("error", err))
		default:
			log.Info("history is written again")
		}
		failing = err != nil
	}
}

// slack is how many seconds after its end a block is made, for each level: the one below is complete by then.
const slack = 3

// makeBlocks makes the blocks of each level once they have ended.
func (w *Writer) makeBlocks(ctx context.Context, written <-chan int64, rooms func() []room.ID) {
	var made [len(levels)]int64
	trouble := w.trouble("blocks")
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-written:
			w.makeDue(ctx, at, &made, rooms, trouble)
		}
	}
}

// makeDue makes the blocks that have ended by a second, and calls did with the first error. made are the ends of the
// newest blocks.
func (w *Writer) makeDue(
	ctx context.Context, at int64, made *[len(levels)]int64, rooms func() []room.ID, did func(error),
) {
	for i, l := range levels {
		end := (at - slack*int64(i+1)) / l.block * l.block
		if end <= made[i] {
			continue
		}
		all, err := w.makeLevel(ctx, i, end, rooms())
		if err != nil || !all {
			did(err)
			return // the levels above are made from this one
		}
		made[i] = end
	}
	did(nil)
}

// patience is how long making blocks of a level may keep the levels below waiting.
const patience = kept * time.Second / 4

// makeLevel makes the blocks of a level that end at a second. It returns false if some are left for the next time.
func (w *Writer) makeLevel(ctx context.Context, i int, end int64, rooms []room.ID) (all bool, err error) {
	begun := time.Now()
	for _, id := range rooms {
		if i > 0 && time.Since(begun) > patience {
			return false, nil
		}
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := w.storeRoom(one, i, id, end)
		cancel()
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// storeRoom makes the blocks of a room up to end: the newest one and, after an outage, those before.
func (w *Writer) storeRoom(ctx context.Context, i int, id room.ID, end int64) error {
	l, h := levels[i], w.history
	from := end - kept
	points := h.recent(id, from, end)
	if i > 0 {
		newest, err := h.Newest(ctx, l.HistoryLevel, public(id))
		if err != nil {
			return err
		}
		if from = end - maxLate*l.block; newest != nil {
			old, err := history.DecodeBlock(newest)
			if err == nil {
				from = max(from, (old[len(old)-1].At+l.block-1)/l.block*l.block)
			} else { // those after it are made again
				h.log.Warn("the newest block of a room is not readable; it is made again", slog.String("room", public(id)),
					slog.Int64("step", l.step), slog.Any("error", err))
			}
		}
		if from >= end {
			return nil // another leader made it
		}
		points = nil
		err = h.blocks(ctx, levels[i-1], id, from, end, func(block []history.Point) { points = append(points, block...) })
		if err != nil {
			return err
		}
		points = history.Rollup(points, l.step)
	}
	for ; from < end; from += l.block {
		var block []history.Point
		for _, p := range points {
			if p.At > from && p.At <= from+l.block {
				block = append(block, p)
			}
		}
		if len(block) == 0 {
			continue
		}
		key := fmt.Sprintf("%s.%d.%d", public(id), i, from)
		if err := h.Write(ctx, l.HistoryLevel, public(id), key, history.EncodeBlock(block)); err != nil {
			return err
		}
	}
	return nil
}

// maxLate is how many blocks an outage may last and all are made afterwards.
const maxLate = 24

// maxMessage bounds a message of the log, in bytes.
const maxMessage = 200 << 10

// writeSecond writes the states of a second to the log, in as many parts as they need.
func (w *Writer) writeSecond(ctx context.Context, b batch) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	const perState = 1 << 10 // of one data centre
	part := 0
	for rest := b.rooms; len(rest) > 0; part++ {
		n, size := 0, 0
		for n < len(rest) && (n == 0 || size < maxMessage) {
			size += perState * max(1, len(rest[n].Centres))
			n++
		}
		data := history.EncodeSecond(b.at, rest[:n])
		if err := w.history.Write(ctx, wire.HistoryLog, fmt.Sprint(part), fmt.Sprintf("%d.%d", b.at, part),
			data); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}
