package admission

import (
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// waitBook counts visitors by their place, in cells of an eighth of a second, without a record per visitor. Each is
// counted in the window of its last poll. A poll moves the ticket from its last window (named in the ticket) to the
// current one, and an old window is dropped whole, with all visitors that did not come back.
//
// A visitor that polls at one edge and then at another leaves +1 here and -1 there: a single edge may hold negative
// counts, but their sum is right. The counts are advisory and may be off by the visitors of a lost edge.
type waitBook struct {
	windows [windowsKept]waitWindow // ring by window number
	short   bool                    // windows of recentLen, not windowLen
	newest  int64                   // number of the newest window
	base    int64                   // number of the cell total[0]; see cellOf
	total   []int32                 // sum of all live windows
	sum     int64
}

type waitWindow struct {
	base   int64
	counts []int32
}

const (
	windowLen   = 10 // seconds of polls per window, for waiting visitors
	windowsKept = 6  // 2.5 refresh intervals of 20 s, and the current window

	// cellWidth is how many milliseconds of places are one cell. Thousands may join in the first second of a sale: inside
	// a cell their order is unknown, and they are taken to be spread evenly over it.
	cellWidth = 125
	perSecond = 1000 / cellWidth     // in cells
	maxLine   = 6 * 3600 * perSecond // cells around now with separate counts

	// recentLen is the same for visitors that asked lately: within the last ten to twelve seconds.
	recentLen = 2
)

// cellOf returns the number of the cell of a place.
func cellOf(place fleettime.Time) int64 { return int64(place) / cellWidth }

// slice returns a cell as a slice of a line.
func slice(cell int64, n float64) estimate.Slice {
	return estimate.Slice{Start: fleettime.Time(cell * cellWidth), Width: cellWidth, N: n}
}

// window returns the number of the window of a poll at second.
func (w *waitBook) window(second int64) int64 { return second / w.length() }

// length returns the seconds of polls per window.
func (w *waitBook) length() int64 {
	if w.short {
		return recentLen
	}
	return windowLen
}

// advance opens the current window and drops old ones. It reports whether visitors were dropped.
func (w *waitBook) advance(now fleettime.Time) (dropped bool) {
	cur := w.window(now.Second())
	if cur <= w.newest {
		return false
	}
	if cur-w.newest > windowsKept {
		w.newest = cur - windowsKept
	}
	emptied := false
	for w.newest < cur {
		w.newest++
		old := &w.windows[w.newest%windowsKept]
		for i, n := range old.counts {
			if n != 0 {
				w.total[old.base+int64(i)-w.base] -= n
				w.sum -= int64(n)
				dropped = true
			}
		}
		emptied = emptied || len(old.counts) > 0
		old.counts = old.counts[:0]
	}
	if emptied { // even if all had moved on: it must not grow with its age
		w.trim()
	}
	return dropped
}

// trim drops empty cells at the front, and rebases an empty book.
func (w *waitBook) trim() {
	used := false
	for i := range w.windows {
		used = used || len(w.windows[i].counts) > 0
	}
	if !used {
		w.total = w.total[:0]
		return
	}
	lo := int64(-1)
	for i := range w.windows {
		if b := w.windows[i]; len(b.counts) > 0 && (lo < 0 || b.base < lo) {
			lo = b.base
		}
	}
	if cut := lo - w.base; cut > 0 && cut > int64(len(w.total))/4 {
		w.total = w.total[:copy(w.total, w.total[cut:])]
		w.base = lo
	}
}

// live reports whether a poll at second seen still counts.
func (w *waitBook) live(seen uint32) bool {
	n := w.window(int64(seen))
	return n <= w.newest && n > w.newest-windowsKept
}

// over reports whether the window of a poll at second seen was dropped.
func (w *waitBook) over(seen uint32) bool { return w.window(int64(seen)) <= w.newest-windowsKept }

// add changes the count of a ticket's place by n (1 or -1) in the window of second seen, if that window is live.
func (w *waitBook) add(place fleettime.Time, seen uint32, n int32) {
	if !w.live(seen) {
		return
	}
	// A place out of range is counted at the end of the range.
	now := w.newest * w.length() * perSecond
	at := min(max(cellOf(place), now-maxLine), now+maxLine)
	win := &w.windows[w.window(int64(seen))%windowsKept]
	if len(w.total) == 0 {
		w.base = at
	}
	w.total, w.base = cell(w.total, w.base, at)
	if len(win.counts) == 0 {
		win.base = at
	}
	win.counts, win.base = cell(win.counts, win.base, at)
	w.total[at-w.base] += n
	win.counts[at-win.base] += n
	w.sum += int64(n)
}

// move moves the count of a visitor from a place and the second of its last poll to others.
func (w *waitBook) move(was fleettime.Time, seen uint32, place fleettime.Time, again uint32) (moved bool) {
	if was == place && w.window(int64(seen)) >= w.window(int64(again)) {
		return false
	}
	w.add(was, seen, -1)
	w.add(place, again, 1)
	return true
}

// before returns the number of visitors with a place in an earlier cell than t.
func (w *waitBook) before(t fleettime.Time) (n int64) {
	for _, c := range w.total[:min(int64(len(w.total)), max(0, cellOf(t)-w.base))] {
		n += int64(c)
	}
	return n
}

// cell extends counts, which begins at base, to hold a cell.
func cell(counts []int32, base, at int64) ([]int32, int64) {
	if at < base {
		shift := base - at
		grown := make([]int32, shift+int64(len(counts)), (shift+int64(len(counts)))*5/4+16)
		copy(grown[shift:], counts)
		return grown, at
	}
	for need := at - base + 1 - int64(len(counts)); need > 0; need-- {
		counts = append(counts, 0)
	}
	return counts, base
}

// histogram returns this edge's histogram of the queue.
func (w *waitBook) histogram() estimate.Histogram {
	n := 0
	for _, c := range w.total {
		if c != 0 {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	h := make(estimate.Histogram, 0, n)
	for i, c := range w.total {
		if c != 0 {
			h = append(h, slice(w.base+int64(i), float64(c)))
		}
	}
	if len(h) > wire.MaxSlices {
		h = h.Compact(wire.MaxSlices)
	}
	return h
}
