package global

import (
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/wire"
)

// A silent data centre of the list raises an alarm once. It raises none if its possible permits are awaited, which
// has an alarm of its own, or if its absence is expected.
func TestSilentDataCentresRaiseAnAlarm(t *testing.T) {
	c := census{
		leads: true,
		centres: []root.CentreTotals{
			{Name: "dublin", Heard: time.Second},
			{Name: "lima", Heard: 2 * time.Minute},
			{Name: "nairobi", Heard: 2 * time.Minute},
			{Name: "oslo", Heard: 2 * time.Minute, Standing: wire.Draining},
			{Name: "quito", Heard: 2 * time.Minute, Standing: wire.Unlisted},
		},
		unknown: []root.Unknown{{Name: "nairobi", Heard: 2 * time.Minute}},
	}
	var names []string
	for _, a := range c.alarms() {
		name, _, ok := strings.Cut(strings.TrimPrefix(a, "data centre "), " is listed and has not reported")
		if !ok {
			t.Errorf("alarm: %q", a)
		}
		names = append(names, name)
	}
	if want := []string{"lima", "oslo"}; !slices.Equal(names, want) {
		t.Errorf("alarms for %q, want %q", names, want)
	}
	if w := c.waits(); len(w) != 1 || !strings.Contains(w[0], "nairobi") {
		t.Errorf("waits: %q", w)
	}
}
