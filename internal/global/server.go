// Package global is the shell of the coordinator: it stands for leadership,
// and while it leads it drives the allocator and publishes rooms and keys.
//
// While it leads, one goroutine owns the allocator: it takes reports from a
// bounded inbox and sends grants. Leading is being inside lead; leaving it
// undoes everything. Nothing of the ledger is stored: a new leader learns it
// from the data centres.
//
// Lock: Server.mu guards the allocator so that /status and metrics can look at
// it between two steps of that goroutine.
package global

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vestibule/internal/fleet"
	"vestibule/internal/node"
	"vestibule/internal/roomstore"
	"vestibule/internal/slots"
	"vestibule/internal/wire"
)

// Options are what a server is made of.
type Options struct {
	Config Config
	Params wire.Params
	Bus    wire.Bus
	Docs   Documents
	Lease  wire.Leadership
	Clock  *node.Clock // the one that Lease reads
	Reg    prometheus.Registerer
	Log    *slog.Logger
}

// Server is one candidate for global.
type Server struct {
	Options
	log     *slog.Logger
	fleet   *node.Fleet
	rooms   *roomstore.Store
	heard   atomic.Pointer[copies] // by the publisher, while it leads
	metrics *metrics
	changed chan struct{} // the room set has changed

	mu    sync.Mutex
	alloc *slots.Allocator // nil while not leading
	term  wire.Term
	skew  time.Duration // of fleet time from this machine's clock

	told []string // what was logged last of the data centres that are wrong

	awaited []string // data centres of which was logged that their books are waited for

	minTerm atomic.Uint64
}

// New returns a server; it leads once it Runs.
func New(o Options) (*Server, error) {
	s := &Server{Options: o, changed: make(chan struct{}, 1), log: o.Log.With(slog.String("global", o.Config.Name))}
	s.metrics = newMetrics(o.Reg, s)
	if o.Config.Rooms == "" {
		s.metrics.roomsValid.Set(1) // nothing is refused
	}
	s.rooms = roomstore.New(roomstore.Options{
		Docs: o.Docs, Copy: filepath.Join(o.Config.DataDir, roomstore.OwnedDocument+".json"), Log: s.log, Floor: s.newestRooms, Keep: node.WriteFile,
	})
	var err error
	s.fleet, err = node.NewFleet(o.Config.DataDir, watched{o.Docs, s.rooms}, s.log, o.Reg, func() {
		select {
		case s.changed <- struct{}{}:
		default:
		}
	})
	return s, err
}

// newestRooms returns the newest version of the rooms that a node is known to have.
func (s *Server) newestRooms() uint64 {
	v := s.fleet.Set().Version()
	if heard := s.heard.Load(); heard != nil {
		v = max(v, heard.roomsVersion())
	}
	return v
}

// Run stands for leadership, and leads, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	stop, err := s.fleet.Hand(s.Bus, wire.Root, node.KeysDocument, node.MembersDocument, node.RoomsDocument)
	if err != nil {
		return err
	}
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return node.IgnoreEnd(ctx, s.fleet.Run(ctx)) })
	g.Go(func() error { return node.IgnoreEnd(ctx, s.rooms.Run(ctx)) })
	g.Go(func() error {
		return node.IgnoreEnd(ctx, s.Lease.Run(ctx, s.minTerm.Load, func(ctx context.Context, l wire.Leading) {
			if err := s.lead(ctx, l); err != nil && ctx.Err() == nil {
				s.log.Warn("leading ended", slog.Any("error", err))
			}
		}))
	})
	return g.Wait()
}

// inboxSize bounds the reports waiting for the allocator. Beyond it they are
// dropped and counted: the next report says the same.
const inboxSize = 1024

// errClock says that the machine was asleep while leading.
var errClock = errors.New("the machine was asleep: its lease cannot be believed")

// lead drives an allocator of its own for one term.
func (s *Server) lead(ctx context.Context, l wire.Leading) error {
	if l.Behind {
		s.metrics.regressions.Inc()
	}
	jumps := s.Clock.Jumps()
	fresh := s.Config.Bootstrap && !l.Before && s.fleet.Members() == nil
	if s.Config.Bootstrap && !fresh {
		s.log.Warn("bootstrap is not believed: somebody led before, or a list of data centres exists")
	}
	alloc := slots.NewAllocator(s.Clock.Now(), slots.AllocatorConfig{
		Term: l.Term, Centres: s.Config.DataCenters, Params: s.Params, Bootstrap: fresh,
	})
	if m := s.fleet.Members(); m != nil {
		alloc.SetMembers(s.Clock.Now(), m.Ledger())
	}
	alloc.SetLease(l.Until)
	alloc.SetRooms(s.Clock.Now(), node.LedgerRooms(s.fleet.Set()))
	s.mu.Lock()
	s.alloc, s.term = alloc, l.Term
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.alloc, s.term = nil, wire.Term{}
		s.mu.Unlock()
	}()

	inbox := make(chan *wire.Report, inboxSize)
	stop, err := s.Bus.Subscribe(wire.Reports(wire.Root), func(_ string, data []byte) {
		m, err := wire.DecodeReport(data)
		if err != nil {
			s.metrics.invalid.Inc()
			s.log.Warn("report refused", slog.Any("error", err))
			return
		}
		select {
		case inbox <- m:
		default:
			s.metrics.dropped.Inc()
		}
	})
	if err != nil {
		return err
	}
	defer stop()

	var background sync.WaitGroup
	defer background.Wait()
	scope, end := context.WithCancel(ctx)
	defer end()
	heard := &copies{log: s.log}
	deaf, err := s.Bus.Subscribe(wire.Copies, heard.take)
	if err != nil {
		return err
	}
	defer deaf()
	s.heard.Store(heard)
	defer s.heard.Store(nil)
	p := &publisher{docs: s.Docs, rooms: s.rooms, bus: s.Bus, copies: heard, fleet: s.fleet, file: s.Config.Rooms, fresh: fresh, census: s.census, founders: s.Config.DataCenters, rotate: s.Config.KeyRotation, log: s.log, metrics: s.metrics}
	background.Go(func() { p.run(scope, func() fleet.Time { return fleet.TimeOf(time.Now()) }) })

	timer := time.NewTimer(0)
	defer timer.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	s.setTime(alloc)
	for {
		select {
		case <-ctx.Done():
			return nil
		case until := <-l.Extends:
			alloc.SetLease(until)
		case m := <-inbox:
			s.mu.Lock()
			alloc.Observe(s.Clock.Now(), *m)
			s.mu.Unlock()
		case <-s.changed:
			s.mu.Lock()
			alloc.SetRooms(s.Clock.Now(), node.LedgerRooms(s.fleet.Set()))
			if m := s.fleet.Members(); m != nil {
				alloc.SetMembers(s.Clock.Now(), m.Ledger())
			}
			s.mu.Unlock()
		case <-second.C:
			s.setTime(alloc)
			s.tellMembers()
		case <-timer.C:
		}
		if s.Clock.Jumps() != jumps {
			return errClock
		}
		if by, fenced := alloc.Fenced(); fenced {
			s.minTerm.Store(max(by, s.minTerm.Load()))
			return wire.ErrFenced
		}
		timer.Reset(s.pump(alloc))
	}
}

// setTime offers this machine's clock as the source of fleet time.
func (s *Server) setTime(alloc *slots.Allocator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, wall := s.Clock.Read()
	s.skew = alloc.SetTime(now, fleet.TimeOf(wall))
}

// pump sends what is due and returns how long nothing will be.
func (s *Server) pump(alloc *slots.Allocator) time.Duration {
	s.mu.Lock()
	now := s.Clock.Now()
	var grants []wire.Grant
	if alloc.GrantsDue() <= now {
		grants = alloc.Grants(now)
	}
	due := alloc.GrantsDue()
	s.mu.Unlock()
	for i := range grants {
		data, err := wire.EncodeGrant(&grants[i])
		if err == nil {
			err = s.Bus.Publish(wire.GrantSubject(wire.Root, grants[i].To), data)
		}
		switch {
		case err == nil:
			s.metrics.sent.WithLabelValues("sent").Inc()
		case errors.Is(err, wire.ErrDown):
			s.metrics.sent.WithLabelValues("down").Inc()
		default:
			s.metrics.sent.WithLabelValues("failed").Inc()
			s.log.Warn("grant not sent", slog.Any("error", err))
		}
	}
	return max(time.Millisecond, due.Sub(now))
}

// Status is the state of a candidate for global, for /status.
type Status struct {
	Leading bool
	Term    wire.Term
	Time    fleet.Time
	Skew    time.Duration // of fleet time from this machine's clock
	Rooms   map[string]slots.RootLedger
}

// Status returns the state of the candidate.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Leading: s.alloc != nil, Term: s.term, Skew: s.skew, Rooms: map[string]slots.RootLedger{}}
	if s.alloc == nil {
		return st
	}
	st.Time = s.alloc.Time(s.Clock.Now())
	for _, r := range s.fleet.Set().Rooms() {
		st.Rooms[r.Name] = s.alloc.Ledger(r.ID)
	}
	return st
}

// census is what the publisher needs to know of the allocator.
type census struct {
	leads     bool
	members   uint64 // version of the list in use
	newest    uint64 // told by a data centre
	by        string
	unfounded bool
	drained   []string
	released  []string      // taken off by force, and nothing of them is out
	unproven  []slots.Proof // members whose site the list does not hold
	copies    []slots.Proof
	strangers []string
	centres   []slots.CentreTotals
	unknown   []slots.Unknown
}

func (s *Server) census() census {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alloc == nil {
		return census{}
	}
	now := s.Clock.Now()
	c := census{
		leads: true, members: s.alloc.Members(), unfounded: s.alloc.Unfounded(),
		drained: s.alloc.Drained(now), released: s.alloc.Released(now), unproven: s.alloc.Unproven(), copies: s.alloc.Copies(), strangers: s.alloc.Strangers(), centres: s.alloc.Centres(now),
		unknown: s.alloc.Unknown(now),
	}
	c.newest, c.by = s.alloc.Newest()
	return c
}

// changes reports whether the leader has something to change in the list.
func (c *census) changes() bool {
	return len(c.drained)+len(c.released) > 0 || (c.members > 0 && len(c.unproven) > 0)
}

func (c *census) outdated() bool { return c.newest > c.members }

// alarms returns what is wrong with the list of data centres, for people.
func (c *census) alarms() []string {
	var out []string
	if c.outdated() {
		out = append(out, fmt.Sprintf("%s knows version %d of the list of data centres, this global version %d: nothing is lent until it is known here", c.by, c.newest, c.members))
	}
	for _, d := range c.copies {
		out = append(out, fmt.Sprintf("another data centre bears the name %s (site %016x), nobody is let in there: give it another name; if it is the one of the list and its store was lost: vestibule fleet rejoin %s at its NATS", d.Name, d.Site, d.Name))
	}
	for _, name := range c.strangers {
		out = append(out, fmt.Sprintf("data centre %s is heard and in no list, nobody is let in there: vestibule fleet add %s", name, name))
	}
	for _, d := range c.centres {
		waited := slices.ContainsFunc(c.unknown, func(u slots.Unknown) bool { return u.Name == d.Name }) // told by waits
		if d.Heard > silentFor && d.Standing != wire.Unlisted && !waited {
			out = append(out, fmt.Sprintf("data centre %s is in the list and has not been heard for over a minute: see whether its regional runs, has this name and reaches NATS; if it will not come: vestibule fleet remove %s", d.Name, d.Name))
		}
	}
	return out
}

// silentFor is how long a data centre of the list may be silent before that is an alarm.
const silentFor = time.Minute

// waits returns whose books are waited for, for people.
func (c *census) waits() []string {
	var out []string
	for _, u := range c.unknown {
		why := "is heard, and waits for something itself: see the alarms of its regional's /readyz"
		if !u.Alive {
			until := ""
			if u.Until != 0 {
				until = ", at most until " + time.UnixMilli(int64(u.Until)).UTC().Format("15:04:05") + " UTC while others are"
			}
			why = fmt.Sprintf("is not heard%s; if it will not come back: vestibule fleet remove %s --force", until, u.Name)
		}
		out = append(out, fmt.Sprintf("only what comes back is lent, because nobody knows what data centre %s holds: it %s", u.Name, why))
	}
	return out
}

// tellWaits logs whose books are waited for when that changes.
func (s *Server) tellWaits(c *census) {
	var names []string
	for i, u := range c.unknown {
		if names = append(names, u.Name); !slices.Contains(s.awaited, u.Name) {
			s.log.Warn("waiting", slog.String("alarm", c.waits()[i]))
		}
	}
	if len(names) == 0 && len(s.awaited) > 0 && c.leads {
		s.log.Info("what every data centre holds is known")
	}
	s.awaited = names
}

// tellMembers logs what is wrong with the list of data centres, once.
func (s *Server) tellMembers() {
	c := s.census()
	s.tellWaits(&c)
	alarms := c.alarms()
	for _, a := range alarms {
		if !slices.Contains(s.told, a) {
			s.log.Error("the list of data centres", slog.String("alarm", a))
		}
	}
	if len(alarms) == 0 && len(s.told) > 0 {
		s.log.Info("the list of data centres is as it should be again")
	}
	s.told = alarms
}

// Ready tells whether this candidate leads, or stands by to lead.
func (s *Server) Ready() node.Readiness {
	c := s.census()
	r := node.Readiness{Ready: true, Alarms: slices.Concat(node.LeaseAlarms(s.Lease), s.fleet.Alarms(), s.metrics.trouble.alarms(), c.alarms(), c.waits())}
	if why := s.rooms.Alarm(); why != "" {
		r.Alarms = append(r.Alarms, "the store's rooms with their owners are not used: "+why)
	}
	if s.fleet.Set() == nil {
		r.Ready, r.Reasons = false, append(r.Reasons, "no room set published yet")
	}
	return r
}
