package reuse

import (
	"slices"
	"testing"
)

// TestReplacedVersions: A version is replaced once another one was presented after it must have arrived.
func TestReplacedVersions(t *testing.T) {
	type shown struct{ at, stamp, seen uint32 }
	// Clients A and B renew copies of version 1 every 20 s, in turns.
	copies := []shown{{1000, 1, 990}, {1010, 1, 990}}
	for i := range uint32(8) {
		copies = append(copies, shown{1020 + 20*i, 2 + 2*i, 1000 + 20*i}, shown{1030 + 20*i, 3 + 2*i, 1010 + 20*i})
	}
	for _, tc := range []struct {
		name    string
		shown   []shown
		strikes uint32
		found   bool
	}{
		{"each version replaces the one before", []shown{{1000, 1, 990}, {1020, 2, 1000}, {1040, 3, 1020}}, 0, false},
		{"the response is lost", []shown{{1000, 1, 990}, {1020, 1, 990}, {1040, 1, 990}}, 0, false},
		{"the response arrived after a newer one", []shown{{1000, 2, 990}, {1030, 1, 998}}, 0, false},
		{"the request was in flight", []shown{{1000, 2, 999}, {1001, 1, 960}}, 0, false},
		{"both had arrived", []shown{{1000, 2, 990}, {1000, 1, 990}}, 1, false},
		{"replaced", []shown{{1000, 2, 990}, {1003, 1, 997}}, 1, false},
		{"in parallel requests", []shown{{1000, 2, 990}, {1010, 1, 960}, {1011, 1, 960}, {1012, 3, 960}}, 1, false},
		{"forgiven", []shown{{1000, 2, 990}, {1010, 1, 960}, {1030, 4, 1020}, {1050, 5, 1040}, {1070, 3, 960}}, 1, false},
		{"not forgiven without renewals", []shown{{1000, 2, 990}, {1010, 1, 960}, {1070, 3, 960}}, 2, false},
		{"the place again", []shown{{1000, 1, 990}, {1020, 0, 0}}, 1, false},
		{"copies", copies, maxStrikes, true},
	} {
		b := NewBook(9, InFlight)
		found := slices.ContainsFunc(tc.shown, func(v shown) bool {
			return b.Shown(v.at, 7, &Version{Stamp: v.stamp, Seen: v.seen}, 300) == Found
		})
		if got := b.sessions.Get(7).strikes; got != tc.strikes || found != tc.found {
			t.Errorf("%s: %d strikes, found %v; want %d, %v", tc.name, got, found, tc.strikes, tc.found)
		}
	}
}

// TestDecide: only the line of the chosen version continues, until no edge accepts the others.
func TestDecide(t *testing.T) {
	b := NewBook(9, 0)
	b.Shown(1000, 7, &Version{Stamp: 1, Seen: 990}, 300)
	b.Shown(1001, 7, &Version{Stamp: 2, Parent: 1, Seen: 1000}, 300) // it advanced here meanwhile
	b.Decide(1002, 7, 1, 300)
	root := b.decided[7].root
	for _, tc := range []struct {
		at   uint32
		v    Version
		want Finding
	}{
		{1010, Version{Stamp: 1, Seen: 990}, Fine},
		{1010, Version{Stamp: 2, Parent: 1, Seen: 1000}, Fine},
		{1010, Version{Stamp: 3, Parent: 2, Seen: 1001}, Fine},
		{1010, Version{Stamp: 9, Parent: 8, Root: root, Seen: 1005}, Fine},
		{1010, Version{Stamp: 4, Parent: 3, Seen: 1005}, Copy},
		{1010, Version{}, Copy},
		{1611, Version{Stamp: 4, Parent: 3, Seen: 1005}, Copy},
		{1612, Version{Stamp: 4, Parent: 3, Seen: 1005}, Fine},
	} {
		v := tc.v
		if got := b.Shown(tc.at, 7, &v, 300); got != tc.want || (got == Fine && tc.at < 1612) != (v.Root == root) {
			t.Errorf("%+v at %d: %v with root %d, want %v", tc.v, tc.at, got, v.Root, tc.want)
		}
	}
}
