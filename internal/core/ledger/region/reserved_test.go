package region

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// holdRate gives the edge of acc held permits of R, with idle of them reported idle.
func holdRate(acc *account, held, idle int64) {
	acc.permits.Rate.Granted = uint64(held)
	acc.rateIdle = ledger.Idle{N: uint64(idle), Granted: uint64(held)}
}

// TestRule3PermitsOfRAreReckonedWithForAsLongAsTheyMayCount has an edge use permits of R at random, receive sessions
// that need none, report late or not at all or to an aggregator that begins meanwhile, and fall silent or say
// goodbye. The reserved amount must cover the uses in every window of a minute until the edge's lease ended, and in a
// quiet world exceed them only slightly.
func TestRule3PermitsOfRAreReckonedWithForAsLongAsTheyMayCount(t *testing.T) {
	const ms = fleettime.Mono(time.Millisecond)
	rapid.Check(t, func(t *rapid.T) {
		held := rapid.Int64Range(1, 40).Draw(t, "held")
		now := fleettime.Mono(rapid.Int64Range(-100e9, 1e12).Draw(t, "start"))
		var uses []fleettime.Mono
		busy := func(at fleettime.Mono) (n int64) {
			for _, u := range uses {
				if at.Sub(u) < wire.RateWindow {
					n++
				}
			}
			return n
		}
		b := &roomLedger{}
		acc := &account{edge: &edge{}, ledger: b}
		spent, reported := int64(0), int64(0)
		begun := false // a report was taken
		recv := now
		steps, ages := rapid.IntRange(1, 60).Draw(t, "steps"), rapid.Bool().Draw(t, "tells ages")
		takeover := rapid.IntRange(0, steps-1).Draw(t, "takeover")
		for k := range steps {
			step := rapid.IntRange(0, 4000).Draw(t, "ms")
			if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
				step *= 20
			}
			now += fleettime.Mono(step) * ms
			for range rapid.IntRange(0, 6).Draw(t, "uses") {
				if spent++; rapid.IntRange(0, 4).Draw(t, "moves") > 0 && busy(now) < held {
					uses = append(uses, now)
				}
			}
			if k < takeover || (k > takeover && rapid.IntRange(0, 2).Draw(t, "silent") == 0) {
				continue
			}
			// The report comes late; the state at its writing may be much older.
			wrote := now
			idle := held - busy(now)
			late := fleettime.Mono(rapid.IntRange(0, 800).Draw(t, "late")) * ms
			known := wrote - fleettime.Mono(rapid.IntRange(0, 500).Draw(t, "unsure"))*ms
			recv = now + late
			holdRate(acc, held, idle)
			if !begun {
				begun = true
				var used []uint32
				for _, u := range uses {
					if age := now.Sub(u); ages && age < wire.RateWindow {
						used = append(used, make([]uint32, max(0, int(age/time.Second)+1-len(used)))...)
						used[age/time.Second]++
					}
				}
				acc.rateUses.init(recv, known, recv, used, held-idle)
			} else {
				acc.rateUses.record(recv, known, spent-reported)
			}
			reported = spent
			if late > 0 && rapid.Bool().Draw(t, "meanwhile") {
				now = recv
			}
		}
		end := max(recv, now)
		goodbye := rapid.Bool().Draw(t, "goodbye")
		if goodbye {
			holdRate(acc, held, held-busy(now))
			acc.rateUses.record(end, now, spent-reported)
			acc.reserveRateUses(end, true)
		} else {
			// It goes on until its lease has ended, and uses permits that come free.
			end += fleettime.Mono(rapid.IntRange(0, 20000).Draw(t, "lease")) * ms
			for now < end {
				if now += 500 * ms; now < end && busy(now) < held && rapid.Bool().Draw(t, "one more") {
					uses = append(uses, now)
				}
			}
			acc.lapse(end)
		}
		reserved := int64(0)
		for _, p := range b.rates {
			reserved += p.n
		}
		if reserved > held || (reserved < held && !goodbye) {
			t.Fatalf("%d of %d permits are reserved", reserved, held)
		}
		for at := end; at < end+62000*ms; at += 250 * ms {
			b.rates.expire(at, 0, true)
			if n := busy(at); n > b.rates.sum() {
				t.Fatalf("%v after the lease %d uses count, %d permits are reserved", at.Sub(end), n, b.rates.sum())
			}
		}
		if n := b.rates.sum(); n != 0 {
			t.Fatalf("%d permits are reserved for ever", n)
		}
	})
}

// reserve is the number of permits of R that may be reserved some time after an end.
type reserve struct {
	after       time.Duration
	least, most int64
}

// reserves checks how the reserved permits of R come back.
func reserves(t *testing.T, b *roomLedger, end fleettime.Mono, all []reserve) {
	t.Helper()
	for _, x := range all {
		b.rates.expire(end.Add(x.after), 0, true)
		if n := b.rates.sum(); n < x.least || n > x.most {
			t.Errorf("%v after the end %d permits are reserved, want %d to %d", x.after, n, x.least, x.most)
		}
	}
}

// oneASecond is the use of a permit of R in each second of a minute.
func oneASecond() []uint32 { return slices.Repeat([]uint32{1}, 60) }

// TestRule3WhatCameFreeUnderTheLeaseMayBeUsedAgain: permits of R that came free before the lease of a silent edge
// ended may have been used again until then, and count for a minute from there.
func TestRule3WhatCameFreeUnderTheLeaseMayBeUsedAgain(t *testing.T) {
	b := &roomLedger{}
	start := fleettime.Mono(time.Hour)
	acc := &account{edge: &edge{}, ledger: b}
	holdRate(acc, 10, 0)
	acc.rateUses.init(start, start, start, []uint32{10}, 10)
	acc.rateUses.record(start.Add(50*time.Second), start.Add(50*time.Second), 0)
	end := start.Add(65 * time.Second)
	acc.lapse(end)
	reserves(t, b, end, []reserve{{0, 10, 10}, {59 * time.Second, 10, 10}, {62 * time.Second, 0, 0}})
}

// TestRule3PermitsOfRComeBackWhenTheyAreFreeAtTheEdge: an edge reports to a new aggregator that it used five permits
// of R 20 s ago, and says goodbye. They count until a minute after the use.
func TestRule3PermitsOfRComeBackWhenTheyAreFreeAtTheEdge(t *testing.T) {
	b := &roomLedger{}
	acc := &account{edge: &edge{}, ledger: b}
	holdRate(acc, 5, 0)
	now := fleettime.Mono(time.Hour)
	used := make([]uint32, 21)
	used[20] = 5
	acc.rateUses.init(now, now, now, used, 5)
	acc.settle(now)
	reserves(t, b, now, []reserve{{0, 5, 5}, {30 * time.Second, 5, 5}, {39 * time.Second, 5, 5}, {43 * time.Second, 0, 0}})
}

// TestPermitsOfRComeBackGradually: after the loss of an edge that admitted one visitor a second for long, its permits
// of R come back gradually within a minute.
func TestPermitsOfRComeBackGradually(t *testing.T) {
	b := &roomLedger{}
	acc := &account{edge: &edge{}, ledger: b}
	now := fleettime.Mono(0)
	for s := range 300 {
		now = fleettime.Mono(s) * fleettime.Mono(time.Second)
		holdRate(acc, 60, 0)
		if wrote := now - fleettime.Mono(600*time.Millisecond); s == 0 {
			acc.rateUses.init(now, wrote, now, nil, 0)
		} else {
			acc.rateUses.record(now, wrote, 1)
		}
	}
	end := now.Add(5 * time.Second)
	acc.lapse(end)
	reserves(t, b, end, []reserve{
		{0, 0, 60}, {10 * time.Second, 0, 57}, {30 * time.Second, 0, 37}, {54 * time.Second, 0, 13}, {61 * time.Second, 0, 0},
	})
}

// TestPermitsOfRComeBackGraduallyAfterATakeover: an edge that admitted one visitor a second for long reports the times
// to a new aggregator, and says goodbye soon after, as in a rolling update.
func TestPermitsOfRComeBackGraduallyAfterATakeover(t *testing.T) {
	b := &roomLedger{}
	acc := &account{edge: &edge{}, ledger: b}
	holdRate(acc, 60, 0)
	now := fleettime.Mono(time.Hour)
	acc.rateUses.init(now, now-fleettime.Mono(600*time.Millisecond), now, oneASecond(), 60)
	now = now.Add(2 * time.Second)
	acc.settle(now)
	reserves(t, b, now, []reserve{
		{0, 0, 60}, {10 * time.Second, 0, 53}, {30 * time.Second, 0, 33}, {50 * time.Second, 0, 13}, {61 * time.Second, 0, 0},
	})
}

// TestPermitsOfRComeBackGraduallyUnderASuccessor: the stored entry of an edge that left holds the seconds of its
// permits, however old it is.
func TestPermitsOfRComeBackGraduallyUnderASuccessor(t *testing.T) {
	const start = fleettime.Time(1622133200_000)
	b := &roomLedger{}
	acc := &account{edge: &edge{}, ledger: b}
	holdRate(acc, 60, 0)
	now := fleettime.Mono(time.Hour)
	acc.rateUses.init(now, now, now, oneASecond(), 60)
	acc.settle(now)
	var r wire.RosterRoom
	r.ReservedRate = b.rates.of(acc.edge.num)
	r.Rates, r.RateUntil = b.rates.stored(acc.edge.num, now, start)
	if len(r.Rates) > 15 {
		t.Errorf("%d ends are stored of a minute", len(r.Rates))
	}
	for hop := range 2 { // a successor, and its own
		next := &roomLedger{}
		now, e := fleettime.Mono(0), &edge{}
		next.restore(now, e, &r, 0)
		if n := next.rates.sum(); n != 60 {
			t.Fatalf("a successor reckons with %d permits, want 60", n)
		}
		r.Rates, r.RateUntil = next.rates.stored(e.num, now, start)
		for _, tc := range []reserve{{10 * time.Second, 50, 57}, {30 * time.Second, 30, 37}, {50 * time.Second, 10, 17}, {66 * time.Second, 0, 0}} {
			next.rates.expire(now, start.Add(tc.after), false)
			if n := next.rates.sum(); n < tc.least || n > tc.most {
				t.Errorf("takeover %d, %v after the goodbye: %d permits are reserved, want %d to %d", hop+1, tc.after, n, tc.least,
					tc.most)
			}
		}
	}
}

// TestRule3PermitsOfRCountFromTheSnapshot: the last report of a killed edge arrives 10 s after the snapshot that it was
// made from. Permits of R that were used before count for a minute from their use, not from its arrival.
func TestRule3PermitsOfRCountFromTheSnapshot(t *testing.T) {
	for _, tc := range []struct {
		after time.Duration // after the arrival
		want  int64         // that may count: one permit was used a second
	}{{0, 50}, {20 * time.Second, 30}, {45 * time.Second, 5}, {55 * time.Second, 0}} {
		c := &comers{t: t, now: fleettime.Mono(time.Hour), room: room.IDOf("sale")}
		c.lead(wire.Durable{
			Version: 7, Life: 62, MovedIn: 1,
			Roster: []wire.RosterEntry{{Edge: "killed", Instance: 1, LeaseEpoch: 1, Stored: 5}},
		})
		c.agg.clock.Set(c.now, c.time(), 10*time.Millisecond)
		m := wire.Report{
			From: "killed", Instance: 1, LeaseEpoch: 1, Seq: 1, Parts: 1, Seen: wire.Term{N: c.term, Nonce: c.term}, Join: true,
			Final: true, Bye: true, Settles: true, Stored: 5, AsOf: c.time().Add(-10 * time.Second),
			AsOfBound: wire.SnapshotLife,
			Rooms: []wire.RoomReport{{
				Room: c.room, Permits: wire.Permits{Rate: wire.Allocation{Granted: 60}}, Spent: 60, RateUsed: oneASecond(),
			}},
		}
		c.agg.Observe(c.now, m)
		c.step(0)
		c.step(tc.after)
		if n := c.agg.rooms.open(c.room).rates.sum(); n < tc.want || n > tc.want+3 {
			t.Errorf("%v after the report %d permits of R count, want %d and at most 3 more", tc.after, n, tc.want)
		}
	}
}
