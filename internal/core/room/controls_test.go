package room

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vestibule/internal/lab/testkit"
)

func mark(since, until int64) Mark {
	return Mark{Since: since, Until: until, By: "ops", Reason: "a rush"}
}

// said is a control that says everything, each part until another moment.
func said() *Control {
	limits := &Limits{Mark: mark(1, 40), TotalActiveUsers: 7}
	all := mark(1, 20)
	return &Control{
		Pause: &Pause{Mark: mark(1, 10), Message: "Ten minutes."}, QueueAll: &all,
		Message: &Message{mark(1, 30), "Sold out soon."}, Limits: limits,
	}
}

// TestControlsEnd: what operators say goes before what the room says, part by part, until its end and no longer.
func TestControlsEnd(t *testing.T) {
	s := Settings{Name: "a", TotalActiveUsers: 100, NewUsersPerMinute: 50, QueueMessage: "Hello."}
	for _, c := range []struct {
		now     int64
		all     bool
		message string
		total   int
	}{
		{5, true, "Ten minutes.", 7},
		{10, true, "Sold out soon.", 7},
		{19, true, "Sold out soon.", 7},
		{20, false, "Sold out soon.", 7},
		{30, false, "Hello.", 7},
		{39, false, "Hello.", 7},
		{40, false, "Hello.", 100},
	} {
		got := s.Under(said(), c.now)
		want := s
		want.QueueAll, want.QueueMessage, want.TotalActiveUsers = c.all, c.message, c.total
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("at %d: %s", c.now, diff)
		}
	}
	if diff := cmp.Diff(s, s.Under(nil, 5)); diff != "" {
		t.Errorf("without controls: %s", diff)
	}
	c := &Controls{Version: 1, Rooms: map[string]*Control{PublicID("a"): said()}}
	ends := []int64{}
	for now := int64(0); ; {
		if now = c.Next(now); now == 0 {
			break
		}
		ends = append(ends, now)
	}
	if diff := cmp.Diff([]int64{10, 20, 30, 40}, ends); diff != "" {
		t.Error(diff)
	}
}

// TestLimitsBindWhileItIsUncertain: where a clock cannot tell whether something has ended, the smaller limits bind, and
// those of a room that passes everybody through bind until its pause has surely ended.
func TestLimitsBindWhileItIsUncertain(t *testing.T) {
	s := Settings{Name: "a", TotalActiveUsers: 100, NewUsersPerMinute: 50}
	passing := s
	passing.QueueingMethod = MethodPassthrough
	c := &Control{Pause: &Pause{Mark: mark(1, 1000)}, Limits: &Limits{Mark: mark(1, 2000), TotalActiveUsers: 7}}
	for _, tt := range []struct {
		now   int64
		total int
		all   bool // queue_all
		bound bool // queue_all, of the room that passes everybody through
	}{
		{900, 7, true, true},
		{999, 7, true, true},
		{1000, 7, false, true},
		{1099, 7, false, true},
		{1100, 7, false, false},
		{2099, 7, false, false},
		{2100, 100, false, false},
	} {
		const off = 100 * time.Millisecond
		if got := s.Surely(c, tt.now, off); got.TotalActiveUsers != tt.total || got.QueueAll != tt.all {
			t.Errorf("at %d: T is %d, queue_all %v", tt.now, got.TotalActiveUsers, got.QueueAll)
		}
		if got := passing.Surely(c, tt.now, off); got.TotalActiveUsers != tt.total || got.QueueAll != tt.bound {
			t.Errorf("passthrough at %d: T is %d, queue_all %v", tt.now, got.TotalActiveUsers, got.QueueAll)
		}
	}
}

func roomsAt(s *Set, host, path string) []*Room {
	m := s.Match(host, path)
	return m.Rooms()
}

// TestASetUnderControls: one room is another one, in every way to find it; all others are those of before.
func TestASetUnderControls(t *testing.T) {
	doc := Document{Rooms: []Settings{
		{
			Name: "a", Host: "a.example", TotalActiveUsers: 9, NewUsersPerMinute: 9, Origin: "http://o",
			AdditionalRoutes: []Route{{Host: "b.example", Path: "/a"}, {Host: "a.example", Path: "/z"}},
		},
		{Name: "b", Host: "b.example", TotalActiveUsers: 9, NewUsersPerMinute: 9, Origin: "http://o", Identity: "old"},
	}}
	set := testkit.Must(NewSet(doc, 3))(t)
	c := &Controls{Version: 1, Rooms: map[string]*Control{PublicID("a"): said(), PublicID("gone"): said()}}
	got := set.Under(c, 5, 0)
	a := got.ByName("a")
	if a.TotalActiveUsers != 7 || !a.QueueAll || a.Control.Pause == nil || got.Version() != 3 || got.ByID(a.ID) != a ||
		got.Rooms()[a.Index] != a {
		t.Fatalf("%+v", a)
	}
	for _, at := range [][2]string{{"a.example", "/x"}, {"a.example", "/z/1"}, {"b.example", "/a"}} {
		if in := roomsAt(got, at[0], at[1]); len(in) != 1 || in[0] != a {
			t.Errorf("%v: %v", at, in)
		}
		if in := roomsAt(set, at[0], at[1]); len(in) != 1 || in[0].Control != nil || in[0].TotalActiveUsers != 9 {
			t.Errorf("%v of the set of before: %v", at, in)
		}
	}
	if in := roomsAt(got, "b.example", "/b"); len(in) != 1 || in[0] != set.ByName("b") {
		t.Errorf("the other room: %v", in)
	}
	if got := set.Under(c, 40, 0); got != set {
		t.Error("everything has ended, and the set is another one")
	}
	c.Rooms = map[string]*Control{PublicID("old"): said()}
	if got := set.Under(c, 5, 0); got.ByName("b").TotalActiveUsers != 7 || got.ByName("a") != set.ByName("a") {
		t.Error("a room that was renamed is not found by the id that it has")
	}
	if got := set.Under(nil, 5, 0); got != set || (*Set)(nil).Under(c, 5, 0) != nil {
		t.Error("nothing is made of nothing")
	}
}

func TestControlsAreReadStrictly(t *testing.T) {
	data := testkit.Must(EncodeControls(&Controls{Version: 4, Rooms: map[string]*Control{PublicID("a"): said()}}))(t)
	again := testkit.Must(DecodeControls(data))(t)
	if diff := cmp.Diff(said(), again.Rooms[PublicID("a")]); diff != "" {
		t.Error(diff)
	}
	for old, bad := range map[string]string{
		`"version":4`: `"version":0`, PublicID("a"): "a", `"total_active_users":7`: `"total_active_users":-1`,
		"Ten minutes.": `\u0007`,
		`"since":1`:    `"since":0`, `"a rush"`: `"` + strings.Repeat("x", MaxReason+1) + `"`, `"pause"`: `"paused"`,
		`"until":40`: `"until":0`, `,"total_active_users":7`: ``, "Sold out soon.": strings.Repeat("x", MaxMessage+1),
	} {
		text := strings.Replace(string(data), old, bad, 1)
		if text == string(data) {
			t.Fatalf("no %s in %s", old, data)
		}
		if _, err := DecodeControls([]byte(text)); err == nil {
			t.Errorf("taken: %s", text)
		}
	}
}
