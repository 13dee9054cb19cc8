package page_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/visitor"
	"vestibule/internal/page"
)

// vector is a message of an event stream and the resulting state for a join time. The tests of preview check the
// page's script with it.
type vector struct {
	Message json.RawMessage `json:"message"`
	Joined  int64           `json:"joined"`
	Ahead   float64         `json:"ahead"`
	Total   float64         `json:"total"`
	Wait    float64         `json:"wait"` // seconds, -1 for unknown
	Next    bool            `json:"next"`
}

func (x *vector) work(t *testing.T) {
	t.Helper()
	b := testkit.Must(visitor.ReadBroadcast(x.Message))(t)
	v, joined := b.View, fleettime.Time(x.Joined)
	x.Ahead, x.Total = v.Place(joined, true), v.Waiting()
	wait, ok := v.Wait(x.Ahead)
	if x.Wait = wait.Seconds(); !ok {
		x.Wait = -1
	}
	x.Next = v.Next(joined, x.Ahead)
}

// drawVector draws a realistic message, and a place in its queue.
func drawVector(t *testing.T, rng *rand.Rand) vector {
	const start = fleettime.Time(1_790_000_000_000)
	v := &wire.View{
		At: start + 600_000, Cutoff: start + fleettime.Time(rng.IntN(600_000)),
		Free: int64(rng.IntN(40) - 30), Theta: rng.Float64() / 300,
	}
	v.Park = v.Cutoff + fleettime.Time(rng.IntN(60_000))
	if rng.IntN(8) == 0 {
		v.Cutoff, v.Park = estimate.Open, estimate.Open
	}
	for range rng.IntN(5) {
		v.Paces = append(v.Paces, estimate.Pace{
			For: time.Duration(rng.IntN(90_000)) * time.Millisecond,
			Mu:  math.Floor(100*rng.ExpFloat64()) / 10,
		})
	}
	var h estimate.Histogram
	for at := start + fleettime.Time(rng.IntN(600_000)); at < v.At; at += fleettime.Time(1000 * (1 + rng.IntN(20))) {
		h = append(h, estimate.Slice{Start: at, Width: 1000, N: float64(rng.IntN(60)) / 10})
	}
	joined := v.At - fleettime.Time(rng.ExpFloat64()*200_000) + 2000
	if rng.IntN(3) == 0 { // around the next places
		joined = v.At - fleettime.Time(rng.IntN(4000))
		v.Cutoff, v.Park = joined+fleettime.Time(rng.IntN(3000)-1000), v.At
		v.Free = int64(h.Before(joined)) - int64(rng.IntN(3))
		v.Paces = []estimate.Pace{{Mu: math.Floor(30*rng.Float64()) / 10}}
	}
	v.Line = estimate.NewDigest(h)
	if rng.IntN(2) == 0 {
		v.Joining = float64(rng.IntN(200)) / 10
	}
	b := strings.TrimSpace(string(page.AppendBroadcast(nil, &page.Broadcast{Now: v.At, View: v})))
	return vector{Message: json.RawMessage(strings.TrimPrefix(b, "data: ")), Joined: int64(joined)}
}

// TestPlaces checks the arithmetic of places with the same file as the page's script.
func TestPlaces(t *testing.T) {
	const file = "testdata/places.json"
	if *rewrite {
		rng := rand.New(rand.NewPCG(1, 2))
		var all []string
		for range 240 {
			x := drawVector(t, rng)
			x.work(t)
			text := testkit.Must(json.Marshal(&x))(t)
			all = append(all, string(text))
		}
		testkit.NoError(t, os.WriteFile(file, []byte("[\n"+strings.Join(all, ",\n")+"\n]\n"), 0o600))
	}
	data := testkit.Must(os.ReadFile(file))(t)
	var all []vector
	testkit.NoError(t, json.Unmarshal(data, &all))
	next, known := 0, 0
	for _, want := range all {
		got := want
		got.work(t)
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*(1+math.Abs(b)) }
		if !near(got.Ahead, want.Ahead) || !near(got.Total, want.Total) || !near(got.Wait, want.Wait) ||
			got.Next != want.Next {
			t.Errorf("message %s: %v ahead of %v, wait %v, next %v; want %v of %v, %v, %v",
				want.Message, got.Ahead, got.Total, got.Wait, got.Next, want.Ahead, want.Total, want.Wait, want.Next)
		}
		if want.Next {
			next++
		}
		if want.Wait > 0 {
			known++
		}
	}
	if len(all) < 100 || next < 5 || known < 30 {
		t.Errorf("%d places, of which %d are next and %d wait for a known time: too few", len(all), next, known)
	}
}
