package room_test

import (
	"strings"
	"testing"

	"vestibule/internal/core/room"
)

func TestSuggest(t *testing.T) {
	known := []string{"path", "host", "total_active_users", "queueing_status_code", "A-B-C-1"}
	for key, want := range map[string]string{
		"paht": "path", "PATH": "path", "pat": "path", "pathh": "path", "hosts": "host",
		"total-active-users": "total_active_users",
		"totalActiveUsers":   "total_active_users", "queuing_status_code": "queueing_status_code",
		"a-b-c-2": "A-B-C-1",
		"":        "", "x": "", "pots": "", "status": "", "queue": "", strings.Repeat("path", 20): "",
	} {
		if got := room.Suggest(key, known); got != want {
			t.Errorf("Suggest(%q) = %q, want %q", key, got, want)
		}
	}
}
