package judge

import (
	"slices"
	"testing"
	"time"
)

func spans(seconds ...time.Duration) (out []Span) {
	for i := 0; i < len(seconds); i += 2 {
		out = append(out, Span{seconds[i] * time.Second, seconds[i+1] * time.Second})
	}
	return out
}

func TestSessions(t *testing.T) {
	var visits []Visit
	for _, v := range []struct {
		sent, at time.Duration
		visitor  string
	}{
		{0, 0, "a"},
		{1, 1, "b"},
		{4, 4, "a"},
		{6, 6, "b"}, // its session ends as it returns
		{7, 9, "c"},
		{8, 9, "c"},   // on their way for long
		{13, 15, "c"}, // perhaps in the session of before
		{21, 30, "c"}, // longer than a session lasts
	} {
		visits = append(visits, Visit{v.sent * time.Second, v.at * time.Second, v.visitor})
	}
	lasted, entered := Sessions(visits, 5*time.Second, 5*time.Second)
	if want := spans(0, 9, 1, 6, 6, 11, 9, 13, 15, 18, 30, 30); !slices.Equal(lasted, want) {
		t.Errorf("lasted %v, want %v", lasted, want)
	}
	if want := spans(0, 0, 1, 1, 6, 6, 7, 9, 21, 30); !slices.Equal(entered, want) {
		t.Errorf("entered %v, want %v", entered, want)
	}
	if _, entered := Sessions(visits, 5*time.Second, 7*time.Second); !slices.Equal(entered, spans(0, 0, 1, 1, 7, 9)) {
		t.Errorf("with tickets of 7 s: entered %v", entered)
	}
}

func TestCounts(t *testing.T) {
	for _, c := range []struct {
		name   string
		spans  []Span
		most   int           // at an instant
		mostAt time.Duration // seconds
		within int           // 60 s
		use    float64       // from 0 to 100 s
	}{
		{"none", nil, 0, 0, 0, 0},
		{"one ends as the next begins", spans(0, 10, 10, 20), 1, 0, 2, .2},
		{"two at a time", spans(0, 10, 9, 20), 2, 9, 2, .21},
		{"exactly a minute between", spans(0, 0, 60, 60), 0, 0, 1, 0},
		{"less than a minute between", spans(1, 1, 60, 60), 0, 0, 2, 0},
		{"one that reaches out of the window", spans(0, 0, 1, 61, 2, 3), 2, 2, 2, .61},
		{"one that reaches out of the interval", spans(90, 120), 1, 90, 1, .1},
	} {
		t.Run(c.name, func(t *testing.T) {
			most, at := Most(c.spans)
			within, _ := MostWithin(c.spans, time.Minute)
			if most != c.most || at != c.mostAt*time.Second || within != c.within {
				t.Errorf("%d at %v, %d within a minute; want %d at %d s, %d", most, at, within, c.most, c.mostAt, c.within)
			}
			if use := Use(c.spans, 0, 100*time.Second); use != c.use {
				t.Errorf("use %v, want %v", use, c.use)
			}
		})
	}
}

func TestUnion(t *testing.T) {
	if got, want := Union(spans(5, 6, 0, 2, 1, 3, 3, 4)), spans(0, 4, 5, 6); !slices.Equal(got, want) {
		t.Errorf("union %v, want %v", got, want)
	}
}

func TestTouches(t *testing.T) {
	all := []Span{{2, 3}, {7, 0}} // the second one lasts
	for _, c := range []struct {
		from, to time.Duration
		want     bool
	}{{0, 1, false}, {0, 2, true}, {3, 4, true}, {4, 6, false}, {6, 7, true}, {100, 101, true}} {
		if got := TouchesAny(all, c.from, c.to); got != c.want {
			t.Errorf("%d to %d: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}
