package page

import (
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
)

// Sample is an example visitor.
type Sample struct {
	Name string
	Visitor
}

// Samples are visitors in all states that change the page, for checks and previews.
var Samples = makeSamples()

func makeSamples() []Sample {
	const now = fleettime.Time(1622133200_000) // 27 May 2021, 16:33:20 UTC
	line := func(change func(v *Visitor)) Visitor {
		v := Visitor{Now: now, Grace: 5 * time.Minute, Room: "sale", Decision: admission.Decision{
			Low: 8 * time.Minute, High: 11 * time.Minute,
			Reason: admission.Behind, Ahead: 1234, Waiting: 20_000, Wait: 10 * time.Minute, Known: true, Retry: 20 * time.Second,
			Ticket: ticket.Ticket{ID: 482177301, Joined: now.Add(-395 * time.Second), Answer: 7},
		}}
		change(&v)
		return v
	}
	drawn := func(change func(v *Visitor)) Visitor {
		return line(func(v *Visitor) {
			v.Event = Event{
				Start: now.Add(4*time.Minute + 31*time.Second), End: now.Add(3 * time.Hour), Prequeue: true,
				Shuffle: true, Draw: Draw{
					Commit: "7f83b1657ff1fc53b92dc18148a1d65dfc2d4b1fa3d677284addd200126d9069",
					Closes: now.Add(4*time.Minute + time.Second),
				},
			}
			v.Decision.Wait, v.Decision.Known = 0, false
			change(v)
		})
	}
	return []Sample{
		{"queued", line(func(*Visitor) {})},
		{"queued-message", line(func(v *Visitor) {
			v.Message = "Standing tickets are sold out. Seats from 40 to 90 are still here."
			v.Decision.Low, v.Decision.High = 0, 0
		})},
		{"queued-unknown", line(func(v *Visitor) { v.Decision.Known, v.Decision.Wait = false, 0 })},
		{"queued-counting", line(func(v *Visitor) {
			v.Decision.Counting, v.Decision.Known, v.Decision.Ahead, v.Decision.Waiting, v.Decision.Retry = true, false, 12, 40,
				2*time.Second
			v.Decision.Wait, v.Decision.Low, v.Decision.High, v.Decision.Ticket.Joined = 0, 0, 0, now
			v.Decision.Ticket.Answer = 0
		})},
		{"queued-million", line(func(v *Visitor) {
			v.Decision.Ahead, v.Decision.Waiting, v.Decision.Wait = 1_234_567, 2_000_000, 30*time.Hour
			v.Decision.Low, v.Decision.High = 26*time.Hour, 33*time.Hour
		})},
		{"queued-random", line(func(v *Visitor) {
			v.Method, v.Decision.Ahead, v.Decision.Low, v.Decision.High = "random", 0, 2*time.Minute, 33*time.Minute
			v.Decision.Quartiles = [3]time.Duration{4*time.Minute + 10*time.Second, 10 * time.Minute, 20 * time.Minute}
		})},
		{"queued-longer", line(func(v *Visitor) { v.Decision.Longer = true })},
		{"lost-away", line(func(v *Visitor) { v.Decision.Fresh, v.Decision.Ticket.Joined = admission.Lost, now })},
		{"lost-expired", line(func(v *Visitor) { v.Decision.Fresh, v.Decision.Ticket.Joined = admission.Expired, now })},
		{"lost-void", line(func(v *Visitor) { v.Decision.Fresh, v.Decision.Ticket.Joined = admission.Void, now })},
		{"next", line(func(v *Visitor) {
			v.Decision.Ahead, v.Decision.Next, v.Decision.Wait, v.Decision.Retry = 0, true, 0, 2*time.Second
		})},
		{"entering", line(func(v *Visitor) { v.Decision.Verdict, v.Decision.Ahead = admission.Admit, 0 })},
		{"paused-system", line(func(v *Visitor) { v.Decision.Reason = admission.Isolated })},
		{"paused-operator", line(func(v *Visitor) { v.QueueAll, v.Message = true, "We let the next people in at 17:00." })},
		{"paused-site", line(func(v *Visitor) { v.Decision.Reason = admission.OriginDown })},
		{"closed", line(func(v *Visitor) { v.Decision.Reason = admission.Closed })},
		{"rejected", line(func(v *Visitor) { v.Method = "reject" })},
		{"before", line(func(v *Visitor) {
			v.Event = Event{Start: now.Add(4*time.Minute + 31*time.Second), End: now.Add(3 * time.Hour), Prequeue: true}
			v.Decision.Ahead, v.Decision.Wait, v.Decision.Known = 0, 0, false
		})},
		{"before-draw", drawn(func(*Visitor) {})},
		{"draw-making", drawn(func(v *Visitor) { v.Event.Draw.Closes = now.Add(-time.Second) })},
		{"draw-late", drawn(func(v *Visitor) {
			v.Event.Draw.Closes, v.Decision.Ticket.Joined = now.Add(-10*time.Second), now.Add(-5*time.Second)
		})},
		{"draw-placed", drawn(func(v *Visitor) {
			v.Event.Draw.Closes = now.Add(-18 * time.Second)
			v.Event.Draw.Drawn, v.Event.Draw.Counted, v.Event.Draw.Entrants = true, now.Add(-time.Second), 290
			v.Decision.Ahead, v.Decision.Waiting = 56, 301
			v.Decision.Ticket.SetPlace(now.Add(-31 * time.Minute))
			v.Decision.Ticket.PutRank(57)
		})},
		{"left", line(func(v *Visitor) { v.Left = true })},
		{
			"blocked",
			line(func(v *Visitor) { v.Blocked, v.Decision.Fresh, v.Decision.Ticket.Answer = true, admission.Newcomer, 0 }),
		},
		{"moment", Visitor{Now: now, Room: "sale", Moment: true, Decision: admission.Decision{Retry: 3 * time.Second}}},
	}
}
