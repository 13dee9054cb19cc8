package console

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/push"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/control/api"
)

// fleetView is the content of the page of the fleet.
type fleetView struct {
	Leader     string // "" for none
	Values     values
	Alarms     []alarm
	Candidates []nodeView
	Centres    []centreView
	Notifiers  []nodeView
}

// alarm is an alarm of a candidate, with advice.
type alarm struct {
	Of, Text string
	Steps    []step
}

// nodeView is a process: its name, its state, and facts that the stream updates.
type nodeView struct {
	Name  string
	Key   string // prefix of the fields
	State state
	Facts []fact
}

// fact is a labelled value, the field Key.Label of the stream.
type fact struct{ Label, Field, Value string }

// centreView is a data centre with its edges.
type centreView struct {
	nodeView
	Edges []nodeView
	Good  int // edges that are alive
	More  int // edges that are not shown
}

func readFleet(call caller) (*api.Fleet, error) {
	var f api.Fleet
	return &f, call(http.MethodGet, "/vestibule/fleet", nil, &f)
}

// node makes the view of a process from pairs of a label and a value.
func (v *fleetView) node(key, name string, st state, pairs ...string) nodeView {
	n := nodeView{Name: name, Key: key, State: st}
	v.Values[key+".state"], v.Values[key+".state.key"] = st.Word, st.Key
	for i := 0; i+1 < len(pairs); i += 2 {
		field := key + "." + strconv.Itoa(i)
		n.Facts = append(n.Facts, fact{pairs[i], field, pairs[i+1]})
		v.Values[field] = pairs[i+1]
	}
	return n
}

func viewFleet(now time.Time, f *api.Fleet) *fleetView {
	v := &fleetView{Leader: f.Leader, Values: values{"at": now.UTC().Format("15:04:05 UTC")}}
	shape := fnv.New64a() // of what the stream does not send
	write := func(text string) { _, _ = shape.Write([]byte(text + "\x00")) }
	for i := range f.Candidates {
		v.Candidates = append(v.Candidates, v.candidate(now, &f.Candidates[i]))
		write(f.Candidates[i].Name)
		for _, text := range f.Candidates[i].Alarms {
			v.Alarms = append(v.Alarms, alarm{f.Candidates[i].Name, text, adviceOn(text)})
			write(text)
		}
	}
	for i := range f.DataCenters {
		d := &f.DataCenters[i]
		v.Centres = append(v.Centres, v.centre(now, d))
		write(d.Name)
		for _, e := range d.Edges {
			write(e.Name)
		}
	}
	for i := range f.Notifiers {
		v.Notifiers = append(v.Notifiers, v.notifier(now, &f.Notifiers[i]))
		write(f.Notifiers[i].Name)
	}
	v.Values["page"] = strconv.FormatUint(shape.Sum64(), 36)
	return v
}

func (v *fleetView) candidate(now time.Time, c *api.Candidate) nodeView {
	st := state{Key: "off", Word: "Standby"}
	switch {
	case now.Sub(c.AsOf) > processSilent:
		st = state{Key: "trouble", Word: "Silent"}
	case c.Leading:
		st = state{Key: "open", Word: "Leading"}
	}
	lease := "accepted by the store"
	if c.LeaseTroubleSeconds > 0 {
		st.Key = "trouble"
		lease = "refused by the store for " + seconds(c.LeaseTroubleSeconds)
	}
	facts := []string{"Lease", lease, "Build", cmp.Or(c.Build, "unknown"), "Certificates", ends(now, c.CertificateEnd)}
	if c.Leading {
		facts = append(facts, "Term", c.Term, "Clock differs by", fmt.Sprintf("%.3f s", c.ClockSkewSeconds))
	}
	facts = append(facts, "Rooms version", strconv.FormatInt(c.RoomsVersion, 10))
	return v.node("g."+c.Name, c.Name, st, facts...)
}

func (v *fleetView) centre(now time.Time, d *api.DataCenter) centreView {
	st := state{Key: "open", Word: "Reporting"}
	switch {
	case d.State != wire.Listed.String():
		st = state{Key: "paused", Word: title(d.State)}
	case !d.Told && d.HeardSeconds > root.SilentAfter.Seconds():
		st = state{Key: "trouble", Word: "Silent"}
	case !d.Told: // it waits itself, or is not initialized
		st = state{Key: "paused", Word: "Permits unknown"}
	}
	clock := "unknown"
	if b := d.ClockBoundSeconds; b != nil {
		clock = fmt.Sprintf("±%.0f ms", *b*1000)
	}
	key := "d." + d.Name
	c := centreView{nodeView: v.node(key, d.Name, st,
		"Sessions", count(int(d.Sessions)),
		"Session permits", fmt.Sprintf("%s, %s idle", count(int(d.Permits)), count(int(d.PermitsIdle))),
		"Admission permits", fmt.Sprintf("%s, %s idle", count(int(d.RatePermits)), count(int(d.RatePermitsIdle))),
		"Overcommit", count(int(d.Overcommit)),
		"Heard", seconds(d.HeardSeconds)+" ago",
		"Lease", seconds(d.LeaseSeconds)+" left",
		"Clock", clock,
		"Build", cmp.Or(d.Build, "unknown"),
		"Certificates", ends(now, d.CertificateEnd),
	), More: d.EdgesCount - len(d.Edges)}
	for i := range d.Edges {
		e := &d.Edges[i]
		c.Edges = append(c.Edges, v.node(key+"."+e.Name, e.Name, edgeState(e.State),
			"Heard", seconds(e.HeardSeconds)+" ago", "Lease", seconds(e.LeaseSeconds)+" left",
			"Build", cmp.Or(e.Build, "unknown"), "Certificates", ends(now, e.CertificateEnd)))
		if e.State == "alive" {
			c.Good++
		}
	}
	return c
}

// processSilent is when a global or a notifier is shown as silent.
const processSilent = 5 * time.Second

func (v *fleetView) notifier(now time.Time, n *api.Notifier) nodeView {
	st := state{Key: "open", Word: "Working"}
	switch {
	case now.Sub(n.AsOf) > processSilent:
		st = state{Key: "trouble", Word: "Silent"}
	case n.LateSeconds >= push.LateAfter.Seconds():
		st = state{Key: "trouble", Word: "Late"}
	}
	return v.node("n."+n.Name, n.Name, st,
		"Visitors to notify", count(n.Subscribed), "Due", count(n.Due), "Sent", count(n.Sent), "Failed attempts",
		count(n.Failed), "Given up", count(n.GivenUp), "Longest delay", seconds(n.LateSeconds), "Heard",
		seconds(now.Sub(n.AsOf).Seconds())+" ago")
}

func edgeState(word string) state {
	keys := map[string]string{"alive": "open", "joining": "busy", "awaiting": "paused", "lost": "trouble"}
	if key, ok := keys[word]; ok {
		return state{Key: key, Word: title(word)}
	}
	return state{Key: "off", Word: title(word)}
}

func seconds(s float64) string {
	if s >= 120 {
		return plural(int(s/60), "minute", "minutes")
	}
	return fmt.Sprintf("%.1f s", s)
}

// ends tells how long the certificates of a process last; end is that of the first, nil for none.
func ends(now time.Time, end *time.Time) string {
	switch {
	case end == nil:
		return "none"
	case end.Before(now):
		return "ended"
	default:
		return plural(int(end.Sub(now)/(24*time.Hour)), "day", "days") + " left"
	}
}

// serveFleet shows the globals, data centres and edges.
func serveFleet(q *request) error {
	f, err := readFleet(q.call)
	if err != nil {
		return err
	}
	return q.show(http.StatusOK, "fleet", &frame{
		Title: "Fleet", Current: "fleet", Stream: "/console/fleet/stream",
		Main: viewFleet(q.now, f),
	})
}

// title returns a word or a sentence with a capital letter. The name of a setting stays as it is.
func title(word string) string {
	if word == "" {
		return unknown
	}
	if first, _, _ := strings.Cut(word, " "); strings.Contains(first, "_") {
		return word
	}
	return strings.ToUpper(word[:1]) + word[1:]
}
