package sim

import (
	"fmt"
	"time"

	"vestibule/internal/core/fleettime"
)

// memory is the fleet time in a process's data folder, and the boot of its machine.
type memory struct {
	record fleettime.Record
	boot   string
}

// keepTime makes every process store fleet time in its data folder, once a second as in production.
func (w *World) keepTime() {
	if w.cfg.Faults.Forgetful {
		return
	}
	for _, n := range w.edges.all {
		if !n.down && n.asleep <= w.now {
			w.keep(&n.proc, 0, n.core.Known(n.clock.read(w.now)))
		}
	}
	for _, n := range w.centres.aggs {
		if !n.gone && n.asleep <= w.now {
			w.keep(&n.proc, 0, n.core.Known(n.clock.read(w.now)))
		}
	}
	for _, n := range w.globals.all {
		if !n.gone && n.asleep <= w.now {
			w.keep(&n.proc, n.offset, n.core.Known(n.clock.read(w.now)))
		}
	}
}

// keep stores a process's fleet time; offset is that of its machine's wall clock.
func (k *kernel) keep(p *proc, offset time.Duration, is fleettime.Known) {
	if is.OK() {
		p.memory.record = fleettime.Record{
			Boot: p.memory.boot, At: time.Duration(p.clock.read(k.now)), Wall: k.fleetTime().Add(offset), Time: is.Time, Bound: is.Bound, Guess: is.Guess,
		}
	}
}

// remembers returns fleet time from the data folder of a starting process.
func (k *kernel) remembers(p *proc, offset time.Duration) fleettime.Known {
	known, err := p.memory.record.Read(p.memory.boot, time.Duration(p.clock.read(k.now)), k.fleetTime().Add(offset))
	if err != nil {
		return fleettime.Known{}
	}
	return known
}

// newMachine starts a process on a rebooted machine: its monotonic clock starts anew.
func (k *kernel) newMachine(p *proc, clock nodeClock) {
	k.boots++
	p.clock, p.memory.boot = clock, fmt.Sprint("boot", k.boots)
}

// next returns a function that starts an aggregator in a data centre as soon as its store is readable.
func (cs *centres) next(i int32) (next func() bool) {
	r := cs.all[i]
	return func() bool {
		if r.failing > cs.now { // it cannot open the promises
			cs.succeed(time.Duration(r.failing-cs.now)+time.Second, r.name+"'s aggregator", cs.next(i))
			return false
		}
		if r.lost {
			return false
		}
		cs.start(i, false)
		return true
	}
}

// restartAll ends every process of the fleet, by shutdown or crash, and restarts them on their machines, some of them
// rebooted.
func (w *World) restartAll(f *fault) {
	clean, reboots := f.x < 0.5, 0.0
	if f.y < 0.4 {
		reboots = f.y * 2.5
	}
	w.tracef("#%d every process ends (as it is told to: %v) and starts again after %v; %.0f %% of the machines are started anew", f.number, clean, f.last, reboots*100)
	w.restartFleet(clean, f.last, reboots)
}

// restartFleet implements restartAll: the processes start after d, and the given fraction of the machines is rebooted.
func (w *World) restartFleet(clean bool, d time.Duration, reboots float64) {
	calm, ended := w.calm, time.Duration(0)
	later := func(end func()) { // as goodbyes are on their way
		if !clean {
			end()
			return
		}
		ended += 300 * time.Millisecond
		w.in(ended, func() {
			if w.calm == calm {
				end()
			}
		})
	}
	back := func() time.Duration { return d + time.Second + time.Duration(w.chaos.Int64N(int64(2*time.Second))) }
	anew := func(p *proc) {
		if w.chaos.Float64() < reboots {
			w.newMachine(p, w.clock())
		}
	}
	for i, n := range w.edges.all {
		if n.lost || n.down {
			continue
		}
		if clean && n.asleep <= w.now {
			w.edges.leave(int32(i))
		} else {
			n.down = true
			w.edges.hangUp(int32(i))
		}
		anew(&n.proc)
		w.in(back(), func() { w.edges.revive(int32(i)) })
	}
	for i, r := range w.centres.all {
		if n := r.newest(); !n.gone && !n.doomed && !r.lost {
			n.doomed = true
			later(func() {
				n.gone = true
				r.again = &proc{clock: n.clock, memory: n.memory}
				anew(r.again)
			})
			w.succeed(back()+ended, r.name+"'s aggregator", w.centres.next(int32(i)))
		}
	}
	if g := w.globals.newest(); !g.gone && !g.doomed {
		g.doomed = true
		w.globals.pending++
		later(func() {
			g.gone = true
			w.globals.again = &globalProc{proc: proc{clock: g.clock, memory: g.memory}, offset: g.offset}
			anew(&w.globals.again.proc)
		})
		w.succeed(back()+ended, "the coordinator", w.globals.next)
	}
}
