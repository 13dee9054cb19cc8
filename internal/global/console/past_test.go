package console_test

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/global/control"
)

// past is a history in which a sale began half an hour ago: visitors arrive in a rush, wait, and some give up.
type past struct {
	start   time.Time
	unknown atomic.Bool     // nothing was recorded yet
	kept    control.History // instead; nil for none
}

// points returns the points of a time.
func (p *past) points(from, to, step int64) (out []history.Point) {
	if p.unknown.Load() {
		return nil
	}
	for at := from / step * step; at <= to; at += step {
		out = append(out, p.point(at))
	}
	return out
}

// counted returns the index of a count among the values of a point.
func counted(i int) int { return history.NumFields - history.NumCounts + i }

func (p *past) point(at int64) history.Point {
	n := at - p.start.Unix() // seconds of the sale
	x := history.Point{At: at, Values: make([]int64, history.NumFields)}
	calm := float64(min(at, p.start.Unix()) % 100_000)
	arrived, admitted, gaveUp, waiting, inside := calm/3, calm/3, 0., 0., 180+40*math.Sin(calm/300)
	if n > 0 {
		s := float64(n)
		came := 9000*(1-math.Exp(-s/240)) + s*2.2
		in := s * 180 / 60
		gone := max(0, s-300) * 0.35
		arrived, admitted, gaveUp = arrived+came, admitted+in, gone
		waiting = max(0, came-in-gone)
		inside = min(2000, inside+in*0.9)
	}
	for field, value := range map[history.Field]float64{
		history.Waiting: waiting, history.Inside: inside, history.Limit: 2000, history.Rate: 180,
		history.Wait:   waiting / 180 * 60,
		history.Joined: arrived, history.Admitted: admitted, history.Entered: admitted, history.GaveUp: gaveUp,
		history.Ended: admitted * 0.4,
	} {
		x.Values[field] = int64(value)
	}
	x.Values[counted(history.Returning)] = int64(arrived / 9)
	x.Values[counted(history.OriginRequests)] = int64(admitted * 12)
	x.Values[counted(history.OriginErrors)] = int64(admitted / 40)
	if n > 0 {
		x.Values[counted(history.Waited+min(12, int(math.Log2(1+float64(n)/8))))] = int64(admitted)
	}
	x.Values[counted(history.LatencyBin(80*time.Millisecond))] = int64(admitted * 10)
	x.Values[counted(history.LatencyBin(300*time.Millisecond))] = int64(admitted * 2)
	for i := range 7 {
		x.Values[counted(history.Stayed+i)] = int64(admitted) * int64(8-i) / 8
	}
	for i, name := range []string{"dublin", "nairobi"} {
		part := []int64{6, 4}[i]
		x.Centres = append(x.Centres, history.Centre{Name: name, Values: []int64{
			int64(waiting) * part / 10, int64(inside) * part / 10, 1000, 20, int64(arrived) * part / 10,
			int64(admitted) * part / 10, int64(admitted) * part / 10,
		}})
	}
	return x
}

// Points implements [control.History].
func (p *past) Points(ctx context.Context, id room.ID, from, to, step int64, each func([]history.Point)) error {
	if p.kept != nil {
		return p.kept.Points(ctx, id, from, to, step, each)
	}
	each(p.points(from, to, step))
	return nil
}

// live returns the last minute of the history.
func (p *past) live(room.ID) (history.Minute, bool) {
	now := time.Now().Unix()
	return history.MinuteOf(p.points(now-70, now, 1), now)
}
