package page

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// heard is a message as a page parses it.
type heard struct {
	At      int64     `json:"at"`
	Paused  string    `json:"pausedBy"`
	Cutoff  int64     `json:"cutoff"`
	Park    int64     `json:"park"`
	Slots   int64     `json:"slots"`
	Paces   []float64 `json:"paces"`
	Joining float64   `json:"joining"`
	Theta   float64   `json:"theta"`
	Line    []float64 `json:"line"`
}

func hear(t *testing.T, b *Broadcast) (h heard, size int) {
	t.Helper()
	text := string(AppendBroadcast(nil, b))
	data, ok := strings.CutPrefix(strings.TrimSuffix(text, "\n\n"), "data: ")
	if !ok || strings.Contains(data, "\n") {
		t.Fatalf("no event of one line: %q", text)
	}
	if err := json.Unmarshal([]byte(data), &h); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return h, len(text)
}

// before is the number of visitors before a join time, as computed by the page.
func (h heard) before(at fleettime.Time) float64 {
	n, end := 0.0, 0.0
	for i := 0; i < len(h.Line); i += 3 {
		start, width := end+h.Line[i], h.Line[i+1]
		n += h.Line[i+2] * min(1, max(0, (float64(at)-start)/width))
		end = start + width
	}
	return n
}

// Two hours of a queue fit into a message of 1 KB, with every position to within a sixteenth.
func TestEverybodyFindsThePlaceInABroadcast(t *testing.T) {
	const start = fleettime.Time(1_790_000_000_000)
	var h estimate.Histogram
	for i := range 720 {
		h = append(h, estimate.Slice{Start: start + fleettime.Time(i*10_000), Width: 10_000, N: float64(300 + i*37%200)})
	}
	b := Broadcast{Now: start + 7_200_000, View: &wire.View{
		Cutoff: start + 1, Park: start + 2, Free: -3, Paces: []estimate.Pace{{For: 90 * time.Second, Mu: 12.3456}, {Mu: 3}},
		Joining: 17, Theta: 0.00012, Line: estimate.NewDigest(h),
	}}
	got, size := hear(t, &b)
	if got.At != int64(b.Now) || got.Cutoff != int64(start)+1 || got.Park != int64(start)+2 || got.Slots != -3 ||
		!slices.Equal(got.Paces, []float64{90, 12.35, 0, 3}) || got.Joining != 17 || got.Theta != 0.00012 ||
		got.Paused != "" {
		t.Errorf("reported %+v", got)
	}
	if size > 1024 {
		t.Errorf("the message has %d bytes", size)
	}
	for at := start; at < start+7_200_000; at += 33_333 {
		if want := h.Before(at); math.Abs(got.before(at)-want) > want/16+1 {
			t.Errorf("who joined after %v has %.0f in front, the message says %.0f", at.Sub(start), want, got.before(at))
		}
	}
}

// Numbers that scripts do not support are not sent.
func TestABroadcastIsReadByScripts(t *testing.T) {
	got, _ := hear(t, &Broadcast{Now: 5, PausedBy: PausedBySystem, View: &wire.View{
		Cutoff: estimate.Open,
		Park:   estimate.Open, Paces: []estimate.Pace{{Mu: math.Inf(1)}}, Theta: math.NaN(),
	}})
	if got.Cutoff != MaxDate || got.Park != MaxDate || !slices.Equal(got.Paces, []float64{0, 0}) || got.Theta != 0 ||
		got.Paused != "system" || len(got.Line) > 0 {
		t.Errorf("reported %+v", got)
	}
	if got, _ := hear(t, &Broadcast{Now: 5}); got.At != 5 || got.Line != nil {
		t.Errorf("without a view: %+v", got)
	}
}
