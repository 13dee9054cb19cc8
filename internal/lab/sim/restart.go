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
func (fl *fleet) keepTime() {
	if fl.cfg.Faults.Forgetful {
		return
	}
	for _, p := range fl.processes() {
		if p.down || p.asleep > fl.now {
			continue
		}
		if is := p.known(); is.OK() {
			p.memory.record = fleettime.Record{
				Boot: p.memory.boot, At: time.Duration(p.clock.read(fl.now)), Wall: fl.fleetTime().Add(p.offset), Time: is.Time,
				Bound: is.Bound, Guess: is.Guess,
			}
		}
	}
}

// remembers returns fleet time from the data folder of a starting process.
func (k *kernel) remembers(p *proc) fleettime.Known {
	known, err := p.memory.record.Read(p.memory.boot, time.Duration(p.clock.read(k.now)), k.fleetTime().Add(p.offset))
	if err != nil {
		return fleettime.Known{}
	}
	return known
}

// newMachine starts a process on the machine of an earlier one, if there is one, else on a rebooted machine: its
// monotonic clock starts anew.
func (k *kernel) newMachine(p *proc, earlier **proc) {
	k.boots++
	p.clock, p.memory.boot = k.clock(), fmt.Sprint("boot", k.boots)
	if old := *earlier; old != nil {
		p.clock, p.memory, p.offset, *earlier = old.clock, old.memory, old.offset, nil
	}
}

// restartAll ends every process of the fleet, by shutdown or crash, and restarts them on their machines, some of them
// rebooted.
func (fl *fleet) restartAll(f *fault) {
	clean, reboots := f.x < 0.5, 0.0
	if f.y < 0.4 {
		reboots = f.y * 2.5
	}
	fl.tracef("#%d every process ends (as it is told to: %v) and starts again after %v; %.0f %% of the machines are started anew", f.number, clean, f.last, reboots*100)
	fl.restartFleet(clean, f.last, reboots)
}

// restartFleet implements restartAll: the processes start after d, and the given fraction of the machines is rebooted.
func (fl *fleet) restartFleet(clean bool, d time.Duration, reboots float64) {
	calm, ended := fl.calm, time.Duration(0)
	later := func(end func()) { // as goodbyes are on their way
		if !clean {
			end()
			return
		}
		ended += 300 * time.Millisecond
		fl.in(ended, func() {
			if fl.calm == calm {
				end()
			}
		})
	}
	back := func() time.Duration { return d + time.Second + time.Duration(fl.chaos.Int64N(int64(2*time.Second))) }
	anew := func(p *proc) {
		if fl.chaos.Float64() < reboots {
			fl.newMachine(p, new(*proc))
		}
	}
	for _, n := range fl.edges.all {
		if n.lost || n.down {
			continue
		}
		if clean && n.asleep <= fl.now {
			fl.edges.leave(n)
		} else {
			n.down = true
			fl.edges.hangUp(n)
		}
		anew(&n.proc)
		fl.in(back(), func() { fl.edges.revive(n) })
	}
	for _, r := range fl.centres.all {
		if n := r.newest(); !n.gone && !n.doomed && !r.lost {
			n.doomed = true
			later(func() {
				n.gone = true
				r.again = &proc{clock: n.clock, memory: n.memory}
				anew(r.again)
			})
			fl.succeed(back()+ended, r.name+"'s aggregator", fl.centres.next(r))
		}
	}
	if g := fl.globals.newest(); !g.gone && !g.doomed {
		g.doomed = true
		fl.globals.pending++
		later(func() {
			g.gone = true
			fl.globals.again = &proc{clock: g.clock, memory: g.memory, offset: g.offset}
			anew(fl.globals.again)
		})
		fl.succeed(back()+ended, "the coordinator", fl.globals.next)
	}
}
