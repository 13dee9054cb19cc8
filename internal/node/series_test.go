package node

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/testkit"
)

func TestRoomsShareLabels(t *testing.T) {
	var s RoomSeries
	if got := s.Label("quiet", false); got != IdleRooms {
		t.Errorf("an idle room shows as %q", got)
	}
	for i := range MaxRoomSeries {
		if name := fmt.Sprint("r", i); s.Label(name, true) != name {
			t.Fatalf("room %s has no series of its own", name)
		}
	}
	if got := s.Label("late", true); got != OtherRooms {
		t.Errorf("one room too many shows as %q", got)
	}
	if s.Label("r7", false) != IdleRooms || s.Label("r7", true) != "r7" {
		t.Error("a room that was idle for a while lost its place")
	}
	doc := room.Document{}
	for _, name := range []string{"r1", "late"} {
		doc.Rooms = append(doc.Rooms, room.Settings{
			Name: name, Host: name + ".example", TotalActiveUsers: 1, NewUsersPerMinute: 1, Origin: "http://10.0.0.1",
		})
	}
	set := testkit.Must(room.NewSet(doc, 1))(t)
	s.Keep(set)
	if s.Label("late", true) != "late" || s.Label("r1", true) != "r1" {
		t.Error("rooms that went keep their places")
	}
}

func TestRoomsWithOneLabelAreAddedUp(t *testing.T) {
	d := prometheus.NewDesc("d", "", []string{"room"}, nil)
	by := prometheus.NewDesc("by", "", []string{"room", "dc"}, nil)
	least := prometheus.NewDesc("least", "", []string{"room"}, nil)
	out := make(chan prometheus.Metric, 100)
	m := NewRoomMetrics(out)
	for i, label := range []string{"a", IdleRooms, IdleRooms, OtherRooms} {
		v := float64(i + 1)
		m.Gauge(d, v, label)
		m.Counter(by, v, label, "dublin")
		m.Least(least, v, label)
		m.Own(d, 100, label)
	}
	m.Close()
	close(out)
	var got []string
	for s := range out {
		var w dto.Metric
		testkit.NoError(t, s.Write(&w))
		text := ""
		for _, l := range w.Label {
			text += l.GetValue() + " "
		}
		got = append(got, fmt.Sprint(text, w.GetGauge().GetValue(), w.GetCounter().GetValue()))
	}
	slices.Sort(got)
	want := []string{
		"(idle) 2 0", "(idle) 5 0", "(other) 4 0", "(other) 4 0", // d and least
		"a 1 0", "a 1 0", "a 100 0", "dublin (idle) 0 5", "dublin (other) 0 4", "dublin a 0 1",
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
