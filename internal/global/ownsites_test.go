package global

import (
	"strings"
	"testing"

	"vestibule/internal/core/room"
	"vestibule/internal/global/roomstore"
)

// Sites in use that are listeners of the fleet are an alarm, whichever came first.
func TestSitesInUseThatAreListenersAreAnAlarm(t *testing.T) {
	state := &roomstore.State{
		Rooms: []*roomstore.Room{
			{Settings: room.Settings{Name: "a", Origin: "http://10.0.0.7:8080"}},
			{Settings: room.Settings{Name: "b", Origin: "http://10.0.0.8"}},
		},
		Hosts: []*roomstore.Host{{Host: room.Host{Name: "c.example", Origin: "http://localhost:9100"}}},
	}
	for listens, want := range map[string]string{
		"10.0.0.7:8081":                "",
		"10.0.0.7:8080":                "the site http://10.0.0.7:8080 is a listener of the fleet (10.0.0.7:8080), its visitors get no answer: give its rooms and hosts the address of their site",
		"10.0.0.7:8080 127.0.0.1:9100": "the site http://10.0.0.7:8080 is a listener of the fleet (10.0.0.7:8080), its visitors get no answer: give its rooms and hosts the address of their site; 2 sites are",
	} {
		got := ""
		if text := ownAlarm(t.Context(), state, strings.Fields(listens)); text != nil {
			got = *text
		}
		if got != want {
			t.Errorf("%s: %q", listens, got)
		}
	}
	if ownAlarm(t.Context(), nil, []string{"10.0.0.7:8080"}) != nil {
		t.Error("an alarm without rooms")
	}
}
