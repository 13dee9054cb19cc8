package region

import (
	"testing"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// TestASessionIsNeverCancelledAway renews copies of one ticket at several edges, in parallel and in sequence, while
// reports arrive in any order and lists of ids get lost: while some edge may accept some copy, the head-count is at
// least one.
func TestASessionIsNeverCancelledAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type edge struct {
			skew  int64 // milliseconds
			asOf  fleettime.Time
			moves []wire.Move // not reported yet
		}
		life := rapid.Uint32Range(3, 40).Draw(t, "life")
		after := wire.RenewAfter(life)
		now := int64(day)
		edges := make([]edge, rapid.IntRange(2, 4).Draw(t, "edges"))
		for i := range edges {
			edges[i].skew = rapid.Int64Range(-40, 40).Draw(t, "skew")
			edges[i].asOf = fleettime.Time(now + edges[i].skew)
		}
		var c counts
		var ids sessionIDs
		c.start(fleettime.Time(now))
		cookies := []uint32{uint32(now/1000) + 1 + life}
		c.add(int64(cookies[0]), 1)
		if rapid.Bool().Draw(t, "admission reported") {
			ids.record(&c, wire.Move{ID: 7, Until: cookies[0]}, 1, 100)
		}
		report := func(i int, lost bool) {
			e := &edges[i]
			for _, m := range e.moves {
				c.add(int64(m.From), -1)
				c.add(int64(m.Until), 1)
			}
			for _, m := range e.moves {
				if !lost {
					ids.record(&c, m, edgeNum(i+1), 100)
				}
			}
			e.moves = e.moves[:0]
			e.asOf = fleettime.Time(now + e.skew)
			wm := edges[0].asOf
			for _, o := range edges {
				wm = min(wm, o.asOf)
			}
			c.free(wm)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, 1500).Draw(t, "pause")
			i := rapid.IntRange(0, len(edges)-1).Draw(t, "edge")
			e := &edges[i]
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				report(i, rapid.IntRange(0, 4).Draw(t, "lost") == 0)
			} else {
				// Most often the newest cookie: an ordinary visitor.
				k := len(cookies) - 1 - rapid.IntRange(0, min(3, len(cookies)-1)).Draw(t, "copy")
				from, clock := cookies[k], now+e.skew
				if until := uint32(clock/1000) + 1 + life; int64(from)*1000 > clock && until >= from+after {
					e.moves = append(e.moves, wire.Move{ID: 7, From: from, Until: until})
					cookies = append(cookies, until)
				}
			}
			slowest := now
			for _, o := range edges {
				slowest = min(slowest, now+o.skew)
			}
			for _, u := range cookies {
				if int64(u)*1000 > slowest && c.sum < 1 {
					t.Fatalf("at %d a copy is valid until %d, and %d are counted (cookies %v, freed %d)", now, u, c.sum, cookies,
						c.freed)
				}
			}
		}
		// In every case it is forgotten in the end.
		now += int64(life+3) * 1000
		for i := range edges {
			report(i, false)
		}
		if c.sum != 0 {
			t.Fatalf("%d sessions are left over", c.sum)
		}
	})
}

// Stamps before the first known one are never cancelled as a double (decision 1): in a late report they would cancel
// the session itself.
func TestRule4WhatLedUpToTheFirstStampingKnownIsNotCancelled(t *testing.T) {
	s := uint32(day.Second())
	var c counts
	var ids sessionIDs
	c.start(day)
	c.add(int64(s+62), 1) // the admission, which is never reported
	for i, m := range []wire.Move{{ID: 7, From: s + 66, Until: s + 70}, {ID: 7, From: s + 62, Until: s + 66}} {
		c.add(int64(m.From), -1)
		c.add(int64(m.Until), 1)
		ids.record(&c, m, edgeNum(i), 100)
	}
	for at := range uint32(70) {
		c.free(fleettime.Time(int64(s+at) * 1000))
		if c.sum < 1 {
			t.Fatalf("%d s in, the session is valid for %d s more, and %d are counted", at, 70-at, c.sum)
		}
	}
}

// TestDoublesAreCountedOnce plays everyday behaviour of visitors, and checks the number of sessions in the
// head-count.
func TestDoublesAreCountedOnce(t *testing.T) {
	s := uint32(day.Second())
	for _, tt := range []struct {
		name   string
		moves  []wire.Move
		want   int64
		copied int
	}{
		{"one admission", []wire.Move{{ID: 7, Until: s + 60}}, 1, 0},
		{"admitted at two edges at once", []wire.Move{{ID: 7, Until: s + 60}, {ID: 7, Until: s + 61}}, 1, 0},
		{"renewed", []wire.Move{{ID: 7, Until: s + 60}, {ID: 7, From: s + 60, Until: s + 70}}, 1, 0},
		{"renewed by four requests of one page", []wire.Move{
			{ID: 7, Until: s + 60},
			{ID: 7, From: s + 60, Until: s + 70},
			{ID: 7, From: s + 60, Until: s + 70},
			{ID: 7, From: s + 60, Until: s + 71},
			{ID: 7, From: s + 60, Until: s + 70},
		}, 1, 0},
		{"and then by the one whose cookie came last", []wire.Move{
			{ID: 7, Until: s + 60},
			{ID: 7, From: s + 60, Until: s + 70},
			{ID: 7, From: s + 60, Until: s + 71},
			{ID: 7, From: s + 70, Until: s + 80},
		}, 1, 0},
		{"reported in the wrong order", []wire.Move{
			{ID: 7, From: s + 60, Until: s + 70}, {ID: 7, Until: s + 60},
		}, 1, 0},
		{"a copy that lives on its own", []wire.Move{
			{ID: 7, Until: s + 60},
			{ID: 7, From: s + 60, Until: s + 70},
			{ID: 7, From: s + 70, Until: s + 90},
			{ID: 7, From: s + 70, Until: s + 120},
		}, 1, 1},
		{"two visitors", []wire.Move{{ID: 7, Until: s + 60}, {ID: 8, Until: s + 60}}, 2, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c counts
			var ids sessionIDs
			c.start(day)
			copied := 0
			for i, m := range tt.moves {
				c.add(int64(m.From), -1)
				c.add(int64(m.Until), 1)
				if twice, _ := ids.record(&c, m, edgeNum(i), 100); twice {
					copied++
				}
			}
			if c.sum != tt.want || copied != tt.copied {
				t.Errorf("%d counted and %d copied, want %d and %d", c.sum, copied, tt.want, tt.copied)
			}
			if tt.copied > 0 {
				c.free(fleettime.Time(int64(s+80) * 1000))
				if c.sum != 2 {
					t.Errorf("%d counted once the source is gone, want both", c.sum)
				}
			}
		})
	}
}

// day is the time of the worked example: 27 May 2021, 16:33:20 UTC.
const day = fleettime.Time(1622133200_000)
