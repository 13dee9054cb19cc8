package ticket

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestBestTicketDoesNotDependOnTheOrderSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gen := rapid.Custom(genTicket)
		a, b, c := gen.Draw(t, "a"), gen.Draw(t, "b"), gen.Draw(t, "c")
		// Small ranges, to get equal fields and expired sessions.
		for _, tk := range []*Ticket{&a, &b, &c} {
			tk.Joined %= 4
			tk.Placed %= 4
			tk.Seen %= 3
			if tk.Until != 0 {
				tk.Until = uint32(day.Second()) - 2 + tk.Until%4
			}
		}
		if Better(&a, &a, day) {
			t.Fatal("a ticket is better than itself")
		}
		if Better(&a, &b, day) && Better(&b, &a, day) {
			t.Fatal("each of two tickets is better than the other")
		}
		if Better(&a, &b, day) && Better(&b, &c, day) && !Better(&a, &c, day) {
			t.Fatal("better is not transitive")
		}
		if a.Valid(day) && !b.Valid(day) && !Better(&a, &b, day) {
			t.Fatal("a valid session loses")
		}
	})
	late, early := Ticket{ID: 1, Joined: day}, Ticket{ID: 2, Joined: day + 1, Placed: day - 1}
	if !Better(&early, &late, day) {
		t.Error("the better place loses to the earlier join time")
	}
	if none := (Ticket{}); !Better(&Ticket{ID: 1}, &none, day) {
		t.Error("no ticket is as good as a ticket")
	}
}

func TestCookiePairs(t *testing.T) {
	for _, tc := range []struct {
		header string
		want   []string
	}{
		{"", nil},
		{"v=1", []string{"v", "1"}},
		{"a=0;v=2;  v=3", []string{"a", "0", "v", "2", "v", "3"}},
		{`v="quoted"; w="; x=""`, []string{"v", "quoted", "w", `"`, "x", ""}},
		{"v =2; V=3; v;; =4", []string{"v ", "2", "V", "3", "", "4"}},
		{"v=; v=a=b\t", []string{"v", "", "v", "a=b"}},
	} {
		var got []string
		for k, v := range Pairs(tc.header) {
			got = append(got, k, v)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("Pairs(%q) = %q, want %q", tc.header, got, tc.want)
		}
	}
}

func FuzzPairs(f *testing.F) {
	f.Add("a=1; v=2; b=\"3\";;=;c")
	f.Fuzz(func(t *testing.T, header string) {
		rest := header
		for k, v := range Pairs(header) {
			for _, part := range []string{k, "=", v} {
				_, after, ok := strings.Cut(rest, part)
				if !ok {
					t.Fatalf("%q=%q is not in the rest of the header %q", k, v, rest)
				}
				rest = after
			}
		}
	})
}
