package draw

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/lab/testkit"
)

const (
	roomID  = "699d98642c564d2e855e9661899b7252"
	eventID = "25756b2dfe6e378a06b033b670413757"
)

// start is the start of the event in these tests; now is just before or after it.
var start = fleettime.TimeOf(closes.Add(Lead))

func launch() Event { return Event{Room: roomID, ID: eventID, Start: start, End: start.Add(time.Hour)} }

// announced returns a board with the event's commit, and its secret.
func announced(t *testing.T) (*Board, Secret) {
	t.Helper()
	s := Secret{1, 2, 3}
	b := testkit.Must((*Board)(nil).With(7, start.Add(-time.Hour),
		[]*Notice{Announce(start.Add(-time.Hour), launch(), s, BeaconNone)}, nil))(t)
	return b, s
}

// published returns a board with the event's record, published at a time.
func published(t *testing.T, at fleettime.Time) *Board {
	t.Helper()
	b, s := announced(t)
	n := testkit.Must(b.Notices[0].Publish(at, s, nil, 12))(t)
	b = testkit.Must(b.With(1, at, []*Notice{n}, nil))(t)
	return b
}

// The leader's work follows from the board and its clock.
func TestWhatIsDue(t *testing.T) {
	none := (*Board)(nil)
	said, _ := announced(t)
	shown := published(t, start.Add(-Lead+time.Second))
	void := &Board{Version: 1, Notices: []*Notice{Without(launch(), "late")}}
	for _, c := range []struct {
		name   string
		board  *Board
		now    time.Duration // from the start
		bound  time.Duration
		events []Event
		want   string
	}{
		{"nothing is on the calendar", none, 0, 0, nil, ""},
		{"a new event", none, -time.Hour, time.Millisecond, []Event{launch()}, "commit"},
		{"just before the close", none, -Lead - 10*time.Millisecond, 5 * time.Millisecond, []Event{launch()}, "commit"},
		{"perhaps after the close", none, -Lead - 10*time.Millisecond, 10 * time.Millisecond, []Event{launch()}, "void"},
		{"too late", none, time.Minute, time.Millisecond, []Event{launch()}, "void"},
		{"long over", none, 2 * time.Hour, time.Millisecond, []Event{launch()}, ""},
		{"nobody knows the time", none, time.Minute, fleettime.Rough + 1, []Event{launch()}, ""},
		{"announced", said, -time.Hour, 0, []Event{launch()}, ""},
		{
			"perhaps before the close", said, -Lead + fleettime.Guard + 9*time.Millisecond, 10 * time.Millisecond,
			[]Event{launch()},
			"",
		},
		{
			"after the close", said, -Lead + fleettime.Guard + 10*time.Millisecond, 10 * time.Millisecond,
			[]Event{launch()},
			"publish",
		},
		{"no leader till now", said, 10 * time.Minute, 0, []Event{launch()}, "publish"},
		{"the event went", said, -time.Hour, 0, nil, "forget"},
		{
			"the event was moved", said, -2 * time.Hour, 0,
			[]Event{{roomID, eventID, start.Add(-time.Minute), start.Add(time.Hour)}},
			"commit forget",
		},
		{"published", shown, 0, 0, []Event{launch()}, ""},
		{"published, and the event went", shown, 0, 0, nil, ""},
		{"published, and long over", shown, time.Hour + keptFor, 0, nil, "forget"},
		{"void", void, -Lead + time.Minute, 0, []Event{launch()}, ""},
		{"void, and the event went", void, time.Minute, 0, nil, "forget"},
	} {
		d := c.board.Due(start.Add(c.now), c.bound, c.events)
		var got []string
		for _, x := range []struct {
			n    int
			what string
		}{{len(d.Commit), "commit"}, {len(d.Void), "void"}, {len(d.Publish), "publish"}, {len(d.Forget), "forget"}} {
			if x.n > 0 {
				got = append(got, x.what)
			}
		}
		if got := strings.Join(got, " "); got != c.want || d.Nothing() != (c.want == "") {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Nobody enters before the record has been public for the settling time, however late it is.
func TestWhenADrawOpens(t *testing.T) {
	said, _ := announced(t)
	e := launch()
	for _, c := range []struct {
		name  string
		board *Board
		want  fleettime.Time
	}{
		{"nothing is published", nil, Never},
		{"announced", said, Never},
		{"published in time", published(t, start.Add(-Lead+time.Second)), start.Add(-time.Second)},
		{"published late", published(t, start.Add(time.Minute)), start.Add(time.Minute + Settle)},
		{"no draw", &Board{Version: 1, Notices: []*Notice{Without(e, "late")}}, 0},
	} {
		if got := c.board.Of(e).Opens(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	e.Start++
	if published(t, start).Of(e).Opens() != Never {
		t.Error("an event that was moved opens by the draw of before")
	}
}

// Another secret than the committed one makes no record.
func TestTheRecordIsOfTheCommit(t *testing.T) {
	b, s := announced(t)
	s[5]++
	if n, err := b.Notices[0].Publish(start, s, nil, 0); err == nil {
		t.Errorf("another secret: %+v", n)
	}
}

// A board is decoded as encoded, and invalid ones are rejected.
func TestBoardsAreRead(t *testing.T) {
	b := published(t, start.Add(-Lead+time.Second))
	data := testkit.Must(EncodeBoard(b))(t)
	again := testkit.Must(DecodeBoard(data))(t)
	n := again.Drawn(roomID)
	if n == nil || n.Drawn().Entrants != 12 || again.Latest(roomID, eventID) != n || again.Drawn("x") != nil ||
		again.Version != b.Version {
		t.Errorf("%s was read as %+v", data, again)
	}
	at := fleettime.TimeOf(closes.Add(-time.Hour))
	if n.Drawn().Draw().Place(5, at, 0) != b.Notices[0].Drawn().Draw().Place(5, at, 0) {
		t.Error("places are others once the record is read")
	}
	for what, bad := range map[string]string{
		"nothing":             "",
		"no version":          `{"version":0,"notices":[]}`,
		"an unknown field":    strings.Replace(string(data), `"start"`, `"colour":1,"start"`, 1),
		"no notice":           `{"version":1,"notices":[null]}`,
		"an unknown beacon":   strings.Replace(string(data), `"beacon":"none"`, `"beacon":"dice"`, 1),
		"a secret of another": strings.Replace(string(data), `"secret":"01`, `"secret":"02`, 1),
		"a record of another": strings.Replace(string(data), fmt.Sprintf(`"start":%d`, start),
			fmt.Sprintf(`"start":%d`, start-1), 1),
		"published before": strings.Replace(string(data), fmt.Sprintf(`"published":%d`, start.Add(-Lead+time.Second)),
			`"published":1`, 1),
		"void, and with a record": strings.Replace(string(data), `"beacon":"none"`, `"beacon":"none","void":"late"`, 1),
	} {
		if bad == string(data) {
			t.Fatalf("%s: nothing was changed", what)
		}
		if _, err := DecodeBoard([]byte(bad)); err == nil {
			t.Errorf("%s is taken: %s", what, bad)
		}
	}
}

// A board is bounded: the oldest records of past events are dropped, a future draw never is.
func TestABoardIsBounded(t *testing.T) {
	now := start.Add(-time.Hour)
	var all []*Notice
	for i := range maxNotices {
		e := launch()
		e.ID = fmt.Sprintf("%032x", i)
		e.Start = e.Start.Add(time.Duration(i) * time.Hour)
		e.End = e.Start.Add(time.Minute)
		all = append(all, Announce(now, e, Secret{}, BeaconNone))
	}
	b := testkit.Must((*Board)(nil).With(1, now, all, nil))(t)
	one := []*Notice{Announce(now, launch(), Secret{}, BeaconNone)}
	if _, err := b.With(2, now, one, nil); !errors.Is(err, ErrFull) {
		t.Errorf("one too many: %v", err)
	}
	next, err := b.With(2, start.Add(90*time.Minute), one, nil)
	if err != nil || len(next.Notices) != maxNotices || slices.Contains(next.Notices, all[0]) ||
		!slices.Contains(next.Notices, all[1]) {
		t.Errorf("with one that is over: %v", err)
	}
	if data, err := EncodeBoard(b); err != nil || len(data) > 400_000 {
		t.Errorf("a full board has %d bytes: %v", len(data), err)
	}
}
