package history

import (
	"cmp"
	"slices"
)

// Report is the report of a data centre about a room: counts since the term of its aggregator began.
type Report struct {
	Term                      uint64
	Joined, Admitted, Entered uint64
	Counts                    Counts
	Waiting                   int64
}

// Gauges are the coordinator's numbers of a room at one moment. Those that follow from others are left out.
type Gauges struct {
	Values  [numGauges]int64
	Centres []CentreGauges // by name
}

// CentreGauges are those of a room in one data centre.
type CentreGauges struct {
	Name               string
	Inside, Held, Idle int64
}

// Recorder sums the counts of data centres and makes points. A successor continues from the newest states. It is not
// safe for concurrent use.
type Recorder struct {
	rooms map[uint64]*recorded
	heard map[string]bool // data centres with known counts
}

// State is all that a recorder knows of a room.
type State struct {
	Room    uint64
	Point   Point
	Centres []CentreState // by name
}

// CentreState is the newest report of a data centre.
type CentreState struct {
	Name string
	Report
}

type recorded struct {
	State           // as last recorded, with the reports since
	totals  []int64 // with the reports since
	written Point   // newest point to store
}

// NewRecorder returns a recorder that continues from the states of its predecessor; of a room the newest counts.
func NewRecorder(before []State) *Recorder {
	r := &Recorder{rooms: map[uint64]*recorded{}, heard: map[string]bool{}}
	for _, s := range before {
		if old := r.rooms[s.Room]; old == nil || old.Point.At < s.Point.At {
			s.Centres = slices.Clone(s.Centres)
			r.rooms[s.Room] = &recorded{State: s, totals: slices.Clone(s.Point.Values), written: s.Point}
		}
		for _, c := range s.Centres {
			r.heard[c.Name] = true
		}
	}
	return r
}

// Continue continues from the states of a predecessor with the reports observed so far.
func (r *Recorder) Continue(before []State) {
	next := NewRecorder(before)
	for id, b := range r.rooms {
		for _, c := range b.Centres {
			next.Observe(c.Name, id, c.Report)
		}
	}
	for name := range r.heard {
		next.Heard(name)
	}
	*r = *next
}

// Keep forgets the rooms that do not exist any more.
func (r *Recorder) Keep(exists func(room uint64) bool) {
	for id := range r.rooms {
		if !exists(id) {
			delete(r.rooms, id)
		}
	}
}

func (r *Recorder) room(id uint64) *recorded {
	b := r.rooms[id]
	if b == nil {
		b = &recorded{State: State{Room: id}, totals: make([]int64, NumFields)}
		r.rooms[id] = b
	}
	return b
}

// Observe takes the report of a data centre about a room.
func (r *Recorder) Observe(centre string, room uint64, m Report) {
	b := r.room(room)
	i, found := slices.BinarySearchFunc(b.Centres, centre,
		func(c CentreState, name string) int { return cmp.Compare(c.Name, name) })
	if !found {
		b.Centres = slices.Insert(b.Centres, i, CentreState{Name: centre, Report: Report{Term: m.Term}})
		if !r.heard[centre] { // its counts may be of any age
			b.Centres[i].Report = m
			return
		}
	}
	have := &b.Centres[i].Report
	if have.Term != m.Term {
		*have = Report{Term: m.Term} // a new aggregator counts from 0
	}
	add := func(f Field, was, now uint64) uint64 {
		if now <= was {
			return was // an older report
		}
		b.totals[f] += int64(now - was)
		return now
	}
	have.Joined = add(Joined, have.Joined, m.Joined)
	have.Admitted = add(Admitted, have.Admitted, m.Admitted)
	have.Entered = add(Entered, have.Entered, m.Entered)
	if have.Waiting = m.Waiting; len(m.Counts) == 0 {
		return
	}
	all := make(Counts, NumCounts)
	copy(all, have.Counts)
	for i, n := range m.Counts[:min(len(m.Counts), NumCounts)] {
		all[i] = add(counts+Field(i), all[i], n)
	}
	have.Counts = all.Trim()
}

// Heard ends the first report of a data centre: rooms that it reports from now on have counted from 0.
func (r *Recorder) Heard(centre string) { r.heard[centre] = true }

// Beat is the interval in seconds at which a room without a change has a point.
const Beat = 3600

// Record makes the point of a room at a second. ok is false if it need not be stored, because nothing has changed
// since the newest stored point, and it is no [Beat].
func (r *Recorder) Record(at int64, room uint64, g *Gauges) (s State, ok bool) {
	b := r.room(room)
	p := Point{At: at, Values: slices.Clone(b.totals)}
	copy(p.Values, g.Values[:])
	p.Values[Waiting] = 0
	for _, c := range b.Centres {
		v := make([]int64, NumCentreFields)
		if i, found := slices.BinarySearchFunc(g.Centres, c.Name,
			func(g CentreGauges, name string) int { return cmp.Compare(g.Name, name) }); found {
			v[CentreInside], v[CentreHeld], v[CentreIdle] = g.Centres[i].Inside, g.Centres[i].Held, g.Centres[i].Idle
			v[CentreWaiting] = c.Waiting
			p.Values[Waiting] += c.Waiting
		}
		v[CentreJoined], v[CentreAdmitted], v[CentreEntered] = int64(c.Joined), int64(c.Admitted), int64(c.Entered)
		p.Centres = append(p.Centres, Centre{c.Name, v})
	}
	if old := b.Point.Values; old != nil {
		since := func(f Field) int64 { return p.Values[f] - old[f] }
		p.Values[GaveUp] = old[GaveUp] + since(Joined) - since(Entered) - since(Waiting)
		p.Values[Ended] = old[Ended] + since(Admitted) - since(Inside)
	}
	b.Point, b.totals = p, slices.Clone(p.Values)
	if ok = at%Beat == 0 || !b.written.same(&p); ok {
		b.written = p
	}
	return State{b.Room, p, slices.Clone(b.Centres)}, ok
}
