package fleettime

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// node is a clock on a machine with a fast or slow oscillator.
type node struct {
	Clock
	rate  float64 // readings per nanosecond of real time
	start Mono    // reading at the start of the world
	last  Time
}

func (n *node) read(real time.Duration) Mono { return n.start + Mono(float64(real)*n.rate) }

// TestTheErrorBoundHolds passes time down a chain of three nodes over asymmetric links, with dwells in between, and
// compares the clock readings with the true time. Fleet time is the root's clock, unrounded.
func TestTheErrorBoundHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const epoch = int64(1622133200_000) * 1e6
		oscillator := rapid.Float64Range(-Drift/2, Drift/2)
		reading := rapid.Int64Range(0, int64(1000*time.Hour))
		real := time.Duration(0)
		nodes := make([]node, 3)
		for i := range nodes {
			nodes[i].start = Mono(reading.Draw(t, "reading"))
			nodes[i].rate = 1
			if i > 0 {
				nodes[i].rate += oscillator.Draw(t, "oscillator")
			}
		}
		nodes[0].Set(nodes[0].read(0), Time(epoch/1e6), 0)

		check := func() {
			for i := range nodes {
				n := &nodes[i]
				m := n.read(real)
				bound := n.Bound(m)
				got := n.Now(m)
				if got < n.last {
					t.Fatalf("node %d: fleet time went back from %v to %v", i, n.last, got)
				}
				n.last = got
				if bound == Unsynced || i == 0 {
					continue
				}
				if at := Certain(got, bound); int64(at)*1e6 > epoch+int64(real)+int64(MaxError)+2e6 || at > got {
					t.Fatalf("node %d: it is certainly %v, and %v at most", i, at, got)
				}
				// One millionth and a microsecond for this test's floats.
				off := time.Duration(int64(got)*1e6 - epoch - int64(real))
				if off.Abs() > bound+bound/1e6+time.Microsecond {
					t.Fatalf("node %d is off by %v and believes %v", i, off, bound)
				}
			}
		}
		delay := rapid.Custom(func(t *rapid.T) time.Duration {
			longest := rapid.SampledFrom([]time.Duration{0, 2 * time.Millisecond, 50 * time.Millisecond, time.Second}).Draw(t,
				"longest")
			return time.Duration(rapid.Int64Range(0, int64(longest)).Draw(t, "delay"))
		})
		for range rapid.IntRange(1, 12).Draw(t, "exchanges") {
			child := rapid.IntRange(1, 2).Draw(t, "child")
			c, p := &nodes[child], &nodes[child-1]
			sent := c.read(real)
			real += delay.Draw(t, "up")
			got := p.read(real)
			real += delay.Draw(t, "dwell")
			answered := p.read(real)
			at, bound := p.Now(answered), p.Bound(answered)
			real += delay.Draw(t, "down")
			believed := c.known(c.read(real))
			slack := min(c.read(real).Sub(c.base)/100, max(Guard/2, believed/4))
			known := c.synced
			taken := c.Sync(c.read(real), sent, answered.Sub(got), at, bound)
			if after := c.known(c.read(real)); known && after > believed+slack {
				t.Fatalf("a sample made the bound worse: %v after %v", after, believed)
			}
			if bound == Unsynced && taken {
				t.Fatal("learned from a parent that does not know the time")
			}
			check()
			real += time.Duration(rapid.Int64Range(0, int64(10*time.Minute)).Draw(t, "pause"))
			check()
		}
	})
}

func TestAClockThatWasNeverSetKnowsNothingButItsFloor(t *testing.T) {
	var c Clock
	if c.Now(5) != 0 || c.Bound(5) != Unsynced {
		t.Errorf("reads %v, error %v", c.Now(5), c.Bound(5))
	}
	if c.Slew(5, 1000, 1) != 0 || c.Bound(5) != Unsynced {
		t.Error("a clock that was never set cannot be slewed")
	}
	c.Floor(700)
	c.Floor(600)
	if c.Now(5) != 700 {
		t.Errorf("reads %v, want the newest floor", c.Now(5))
	}
}

func TestFleetTimeStandsStillUntilItHasCaughtUp(t *testing.T) {
	var c Clock
	second := Mono(time.Second)
	c.Set(0, 10_000, 0)
	for _, step := range []struct {
		do   func()
		now  Mono
		want Time
		why  string
	}{
		{func() {}, second, 11_000, "it runs"},
		{func() { c.Set(second, 5_000, 0) }, second, 11_000, "set back"},
		{func() {}, 6 * second, 11_000, "still behind: 10.0"},
		{func() {}, 8 * second, 12_000, "caught up"},
		{func() { c.Floor(20_000) }, 8 * second, 20_000, "a watermark ahead of it"},
		{func() {}, 15 * second, 20_000, "still behind the watermark: 19.0"},
		{func() {}, 17 * second, 21_000, "past the watermark"},
		{func() {}, 3 * second, 21_000, "an older reading"},
	} {
		step.do()
		if got := c.Now(step.now); got != step.want {
			t.Errorf("%s: %v, want %v", step.why, got, step.want)
		}
	}
}

func TestWithoutNewSamplesTheErrorGrowsUntilTheClockIsUnsure(t *testing.T) {
	var c Clock
	c.Sync(Mono(40*time.Millisecond), 0, 0, 1000, 0)
	start := Mono(40 * time.Millisecond)
	first := c.Bound(start)
	if first < 20*time.Millisecond || first > 23*time.Millisecond {
		t.Errorf("a round trip of 40 ms leaves %v", first)
	}
	hour := start.Add(time.Hour)
	if grown := c.Bound(hour) - first; grown != 720*time.Millisecond {
		t.Errorf("the bound grew by %v in an hour, want 200 ppm", grown)
	}
	end := start.Add(time.Duration(float64(Rough-first) / Drift))
	if c.Bound(end.Add(-time.Second)) >= Rough || c.Bound(end.Add(time.Second)) <= Rough {
		t.Errorf("sure until %v, want %v", c.Bound(end), Rough)
	}
	// Now even a poor sample is better than the aged good one.
	if !c.Sync(hour, hour.Add(-400*time.Millisecond), 0, 3_601_000, 0) || c.Bound(hour) > MaxError {
		t.Error("a sample of 400 ms was not taken after an hour")
	}
}

func TestASampleIsDropped(t *testing.T) {
	ms := func(n int64) Mono { return Mono(n * 1e6) }
	for why, sync := range map[string]func(c *Clock) bool{
		"less certain than what is known": func(c *Clock) bool { return c.Sync(ms(1100), ms(1000), 0, 77, 0) },
		"answered before it was sent":     func(c *Clock) bool { return c.Sync(ms(1000), ms(1001), 0, 77, 0) },
		"held for less than no time":      func(c *Clock) bool { return c.Sync(ms(1001), ms(1000), -1, 77, 0) },
		"of a parent that was never set":  func(c *Clock) bool { return c.Sync(ms(1001), ms(1000), 0, 77, Unsynced) },
		"of a parent that is nonsense":    func(c *Clock) bool { return c.Sync(ms(1001), ms(1000), 0, 77, -1) },
	} {
		var c Clock
		c.Sync(ms(1000), ms(990), 0, 5000, 0)
		if sync(&c) {
			t.Errorf("a sample was taken that is %s", why)
		}
		if got := c.Now(ms(1200)); got != 5205 {
			t.Errorf("%s: the clock reads %v afterwards", why, int64(got))
		}
	}
}

func TestADwellLongerThanTheRoundTripCountsAsNone(t *testing.T) {
	var c Clock
	// The parent's clock runs fast: it claims a longer dwell than we waited.
	if !c.Sync(Mono(10*time.Second), 0, 10*time.Second+time.Millisecond, 5000, 0) {
		t.Fatal("not taken")
	}
	if got := c.Now(Mono(10 * time.Second)); got != 5000 {
		t.Errorf("reads %d, want what the parent said", int64(got))
	}
	if got := c.Bound(Mono(10 * time.Second)); got < 2*time.Millisecond {
		t.Errorf("the bound %v leaves no room for drift over the dwell", got)
	}
}

// TestASlewedClockNeverJumps pulls a clock back and forth and checks the rate.
func TestASlewedClockNeverJumps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const rate = 100e-6
		var c Clock
		now := Mono(0)
		c.Set(now, 1_000_000, 0)
		total := time.Duration(0) // maximum total correction
		for range rapid.IntRange(1, 30).Draw(t, "calls") {
			dt := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "pause"))
			now = now.Add(dt)
			total += time.Duration(float64(dt) * rate)
			unpulled := 1_000_000 + Time(int64(now)/1e6)
			goal := unpulled + Time(rapid.Int64Range(-100_000, 100_000).Draw(t, "off"))
			before := goal.Sub(c.estimate(now))
			off := c.Slew(now, goal, rate)
			if d := off - before; d.Abs() > time.Millisecond {
				t.Fatalf("said to be off by %v, is by %v", off, before)
			}
			if pulled := c.estimate(now).Sub(unpulled); pulled.Abs() > total+time.Millisecond {
				t.Fatalf("pulled by %v in %v", pulled, now)
			}
		}
	})
}

func TestASlewedClockArrives(t *testing.T) {
	var c Clock
	c.Set(0, 0, 0)
	for i := range 2000 {
		now := Mono(time.Duration(i) * time.Second)
		c.Slew(now, Time(int64(now)/1e6+100), 100e-6)
	}
	now := Mono(2000 * time.Second)
	if got := c.Now(now); got != 2_000_100 {
		t.Errorf("after 2000 s of 100 ppm a clock that was 100 ms behind reads %d", int64(got))
	}
}

// TestAWayThatIsAlwaysLong: if every round trip takes more than a second, time is learned all the same, with that
// uncertainty. A single late response is ignored.
func TestAWayThatIsAlwaysLong(t *testing.T) {
	const trip = 3 * time.Second
	at := func(now Mono) Time { return 5_000_000 + Time(now/1e6) } // true fleet time
	var c Clock
	now := Mono(time.Hour)
	for i := range 2 * SlowTrips {
		now = now.Add(time.Second)
		back := 100 * time.Millisecond // the way there is longer than the way back
		taken := c.Sync(now, now.Add(-trip), 0, at(now.Add(-back)), 0)
		if taken != (i >= SlowTrips-1) {
			t.Fatalf("answer %d of those that took %v: taken %v", i+1, trip, taken)
		}
		if !taken {
			continue
		}
		off := time.Duration(c.estimate(now)-at(now)) * time.Millisecond
		if err := c.Bound(now); err < off.Abs() || err < trip/2 || err > trip {
			t.Errorf("the clock is off by %v and sure to %v", off, err)
		}
	}
	var short Clock
	for i := range 4 * SlowTrips {
		now = now.Add(time.Second)
		rtt := trip
		if i%(SlowTrips-1) == 0 {
			rtt = MaxTrip
		}
		if short.Sync(now, now.Add(-rtt), 0, at(now), 0); short.Bound(now) > MaxTrip {
			t.Fatalf("a late answer among shorter ones was taken: sure to %v", short.Bound(now))
		}
	}
}
