package visitor

import (
	"encoding/json"
	"fmt"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
	"vestibule/internal/page"
)

// ReadBroadcast parses a message of an event stream without the prefix "data: ". It returns the input of
// [page.AppendBroadcast] but for rounding.
func ReadBroadcast(data []byte) (*page.Broadcast, error) {
	var m struct {
		At, Drawn, Starts fleettime.Time
		Entrants          uint64
		Closed            bool
		PausedBy          string
		Counting          bool
		Cutoff            fleettime.Time `json:"cutoff"`
		Park              fleettime.Time
		Slots             int64
		Paces, Line       []float64
		Joining, Theta    float64
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	b := &page.Broadcast{
		Now: m.At, PausedBy: m.PausedBy, Counting: m.Counting, Closed: m.Closed, Starts: m.Starts, Drawn: m.Drawn,
		Entrants: m.Entrants,
	}
	if m.Line == nil {
		return b, nil
	}
	if len(m.Paces)%2 != 0 || len(m.Line)%3 != 0 {
		return nil, fmt.Errorf("paces must be pairs and line threes, got %d and %d numbers", len(m.Paces), len(m.Line))
	}
	v := &wire.View{At: m.At, Cutoff: m.Cutoff, Park: m.Park, Free: m.Slots, Joining: m.Joining, Theta: m.Theta}
	if v.Cutoff == page.MaxDate {
		v.Cutoff = estimate.Open
	}
	if v.Park == page.MaxDate {
		v.Park = estimate.Open
	}
	for i := 0; i < len(m.Paces); i += 2 {
		v.Paces = append(v.Paces, estimate.Pace{For: time.Duration(m.Paces[i] * float64(time.Second)), Mu: m.Paces[i+1]})
	}
	var h estimate.Histogram
	end := fleettime.Time(0)
	for i := 0; i < len(m.Line); i += 3 {
		h = append(h, estimate.Slice{
			Start: end + fleettime.Time(m.Line[i]), Width: max(1, int64(m.Line[i+1])), N: m.Line[i+2],
		})
		end = h[len(h)-1].End()
	}
	v.Line = estimate.NewDigest(h)
	b.View = v
	return b, nil
}
