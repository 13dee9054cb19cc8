package sim

import (
	"fmt"
	"time"

	"vestibule/internal/core/wire"
)

// Config is one experiment.
type Config struct {
	Seed    uint64
	Centres int           // data centres
	Listed  int           // data centres that found the fleet; 0 for all
	Edges   int           // edges per data centre
	Length  time.Duration // of the run
	Params  wire.Params

	Total     int           // T
	Rate      int           // R
	Session   time.Duration // session_duration
	Probation time.Duration `without:"probation"` // of the first stamp; 0 for none
	Cap       bool          // partition_policy cap
	Random    bool          // queueing_method random, unless an operator overrides it
	WebPush   bool          // web_push

	Demand  Demand
	People  People
	Network Network
	Faults  Faults

	// Strict checks the ledgers after every event, not every second.
	Strict bool

	below int // the oracle reports a fault this far below T: for the test of shrinking

	// GoneAbove is region.Config.GoneAbove.
	GoneAbove int

	// Calm is when all reversible faults end. No fault happens afterwards, and the fleet has to recover (see recovery).
	// 0 for never.
	Calm time.Duration
}

// Defaults returns an experiment that saturates a room of 2,000 in three data centres.
func Defaults() Config {
	return Config{
		Seed: 1, Centres: 3, Edges: 4, Length: 30 * time.Minute, Params: wire.DefaultParams(),
		Total: 2000, Rate: 1200, Session: 5 * time.Minute,
		Demand:  Demand{PerMinute: 2000},
		People:  DefaultPeople(),
		Network: Network{LAN: 500 * time.Microsecond, WAN: 40 * time.Millisecond},
	}
}

// Validate returns all errors of the experiment.
func (c *Config) Validate() []error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Centres >= 1 && c.Centres <= 100, "data-centers: must be 1 to 100, got %d", c.Centres)
	check(c.Edges >= 1 && c.Edges <= 500, "edges: must be 1 to 500, got %d", c.Edges)
	check(c.Length > 0 && c.Length <= 48*time.Hour, "minutes: must be above 0 and at most 2880, got %v",
		c.Length.Minutes())
	check(c.Total >= 1 && c.Total <= 10_000_000, "total-active-users: must be 1 to 10000000, got %d", c.Total)
	check(c.Rate >= 1 && c.Rate <= 10_000_000, "new-users-per-minute: must be 1 to 10000000, got %d", c.Rate)
	check(c.Session >= 5*time.Second && c.Session <= time.Hour, "session-duration: must be 5s to 1h, got %v", c.Session)
	check(c.People.Pages >= 1, "pages: must be at least 1, got %v", c.People.Pages)
	check(c.People.Think > 0, "think: must be above 0, got %v", c.People.Think)
	check(c.People.Patience >= 0, "patience: must not be negative, got %v", c.People.Patience)
	check(c.Network.LAN >= 0 && c.Network.LAN <= 10*time.Second, "lan: must be 0 to 10s, got %v", c.Network.LAN)
	check(c.Network.WAN >= 0 && c.Network.WAN <= 10*time.Second, "wan: must be 0 to 10s, got %v", c.Network.WAN)
	check(c.Network.Loss >= 0 && c.Network.Loss <= 1, "loss: must be 0 to 1, got %v", c.Network.Loss)
	return errs
}
