package console

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

// roomsPerPage is the number of rooms on a page of the list.
const roomsPerPage = 50

// listReading is the state of all rooms at one moment.
type listReading struct {
	at    time.Time
	rooms []roomReading // by name
	fleet api.Fleet
}

// roomReading is a room in the list.
type roomReading struct {
	id, name, where string
	facts           facts
	rate            int // limit of admissions per minute
}

// readList reads all rooms: their state by one request, or without a leading global their settings alone.
func readList(call caller) (*listReading, error) {
	l := &listReading{at: time.Now()}
	var all []api.Status
	err := call(http.MethodGet, "/vestibule/status", nil, &all)
	switch {
	case err == nil:
		for i := range all {
			s := &all[i].Vestibule
			l.rooms = append(l.rooms, roomReading{s.RoomId, s.Room, s.Host + s.Path, factsOf(&all[i]), s.NewUsersPerMinute})
		}
	case control.Status(err) == http.StatusServiceUnavailable:
		if l.rooms, err = readSettings(call); err != nil {
			return nil, err
		}
	default:
		return nil, err
	}
	return l, call(http.MethodGet, "/vestibule/fleet", nil, &l.fleet)
}

// readSettings reads all rooms without their numbers.
func readSettings(call caller) (out []roomReading, err error) {
	for page := 1; ; page++ {
		var rooms []api.Room
		if err := call(http.MethodGet, fmt.Sprintf("%s?page=%d&per_page=%d", roomsPath(), page, readPerPage), nil,
			&rooms); err != nil {
			return nil, err
		}
		for i := range rooms {
			r := &rooms[i]
			out = append(out, roomReading{r.Id, r.Name, r.Host + r.Path, facts{
				suspended: r.Suspended, method: r.QueueingMethod, queueAll: r.QueueAll, limit: r.TotalActiveUsers,
			}, r.NewUsersPerMinute})
		}
		if len(rooms) < readPerPage {
			return out, nil
		}
	}
}

// readPerPage is the number of rooms that are read at once.
const readPerPage = 1000

// row is a room in the list. Its values are the fields of the stream.
type row struct {
	ID, Name, Where string
	Values          values
}

// values are rendered values by the names of their fields.
type values map[string]string

// numbersOf renders the numbers of a room under limits in force, nil for unknown ones.
func numbersOf(now time.Time, st state, s *api.Status, limit, rate int) values {
	v := values{
		"state": st.Word, "state.key": st.Key, "waiting": unknown, "inside": unknown, "inside.bar": "0",
		"limit": count(limit), "rate": count(rate), "wait": unknown, "wait.unit": "", "next": "",
	}
	if s != nil {
		v["waiting"], v["inside"] = count(s.EstimatedQueuedUsers), count(s.EstimatedTotalActiveUsers)
		v["inside.bar"] = share(s.EstimatedTotalActiveUsers, limit)
		v["wait"], v["wait.unit"] = waitOf(s)
		v["next"] = nextOf(now, s.Vestibule.Next)
	}
	return v
}

// rowOf renders a room of the list.
func rowOf(now time.Time, r *roomReading) row {
	v := numbersOf(now, stateOf(r.facts), r.facts.status, r.facts.limit, r.rate)
	v["why"], v["admitted"] = "", unknown
	if stops := r.facts.stops(); len(stops) > 0 && stops[0].Reason != "full" { // the numbers show a full room
		v["why"] = stopWords(now, &stops[0])
	}
	if s := r.facts.status; s != nil {
		v["admitted"] = count(int(math.Round(s.Vestibule.AdmittedPerMinute)))
	}
	return row{r.id, r.name, r.where, v}
}

// share returns n of limit in percent, at most 100.
func share(n, limit int) string {
	if limit <= 0 {
		return "0"
	}
	return strconv.Itoa(min(100, 100*n/limit))
}

// waitOf returns the wait of a visitor that joins now, and its unit.
func waitOf(s *api.Status) (n, unit string) {
	switch m := s.MaxEstimatedTimeMinutes; {
	case s.Status == api.Suspended, s.Status == api.NotQueueing && s.EstimatedQueuedUsers == 0 && control.TellsWait(s):
		return "none", ""
	case m == 0:
		return unknown, ""
	default:
		return waitWords(m)
	}
}

// waitWords returns a wait and its unit.
func waitWords(minutes int) (n, unit string) {
	if minutes < 120 {
		return count(minutes), "min"
	}
	return count(int(math.Round(float64(minutes) / 60))), "h"
}

// phases are the changes by an event, in words.
var phases = map[api.NextPhasePhase]string{
	api.Prequeue: "pre-queue of %s opens", api.Start: "%s starts",
	api.End: "%s ends",
}

// nextOf returns the next change by an event, "" for none.
func nextOf(now time.Time, next *api.NextPhase) string {
	if next == nil {
		return ""
	}
	return fmt.Sprintf(phases[next.Phase], next.Event) + " at " + until(now, next.At)
}

// listView is the content of the list of rooms.
type listView struct {
	Rows           []row
	Values         values // of the page
	Search         string
	Rooms          int    // of the fleet
	Earlier, Later string // addresses of the neighbouring pages, "" for none
	Alarms         int
}

// readListQuery says which rooms a page shows.
type listQuery struct {
	page   int
	search string // part of the name or the host
}

func readListQuery(q *request) listQuery {
	return listQuery{q.pageOf(), strings.ToLower(strings.TrimSpace(q.FormValue("q")))}
}

// address returns the address of a page of the list.
func (x listQuery) address(path string, page int) string {
	return path + "?" + url.Values{"page": {strconv.Itoa(page)}, "q": {x.search}}.Encode()
}

func viewList(l *listReading, x listQuery) *listView {
	v := &listView{Rooms: len(l.rooms), Search: x.search, Alarms: alarmsOf(&l.fleet)}
	inside, waiting := 0, 0
	var found []*roomReading
	for i := range l.rooms {
		r := &l.rooms[i]
		if s := r.facts.status; s != nil {
			inside, waiting = inside+s.EstimatedTotalActiveUsers, waiting+s.EstimatedQueuedUsers
		}
		if x.search == "" || strings.Contains(strings.ToLower(r.name+" "+r.where), x.search) {
			found = append(found, r)
		}
	}
	slices.SortStableFunc(found, func(a, b *roomReading) int { return cmp.Compare(a.facts.rank(), b.facts.rank()) })
	from := min(len(found), (x.page-1)*roomsPerPage)
	to := min(len(found), from+roomsPerPage)
	names := fnv.New64a()
	for _, r := range found[from:to] {
		v.Rows = append(v.Rows, rowOf(l.at, r))
		_, _ = names.Write([]byte(r.id)) // documented never to fail
	}
	v.Values = values{
		"at": l.at.UTC().Format("15:04:05 UTC"), "all.inside": count(inside), "all.waiting": count(waiting),
		"alarms": plural(v.Alarms, "alarm", "alarms"), "page": strconv.FormatUint(names.Sum64(),
			36) + strconv.Itoa(min(v.Alarms, 1)),
	}
	if x.page > 1 {
		v.Earlier = x.address("/console/", x.page-1)
	}
	if to < len(found) {
		v.Later = x.address("/console/", x.page+1)
	}
	return v
}

// rank orders the list: the rooms that nobody enters first, then those whose newcomers wait for minutes. A room changes
// its rank rarely: the page is loaded again for it.
func (f *facts) rank() int {
	switch key := stateOf(*f).Key; {
	case key == "trouble" || key == "paused" || key == "before":
		return 0
	case key == "busy" && f.status.MaxEstimatedTimeMinutes > 1:
		return 1
	case key == "off":
		return 3
	}
	return 2
}

// fields returns all values of the page, for the stream.
func (v *listView) fields() values {
	out := maps.Clone(v.Values)
	for _, r := range v.Rows {
		for name, value := range r.Values {
			out[r.ID+"."+name] = value
		}
	}
	return out
}

func alarmsOf(f *api.Fleet) (n int) {
	for _, c := range f.Candidates {
		n += len(c.Alarms)
	}
	return n
}

// pageOf returns the page that the query names.
func (q *request) pageOf() int {
	n, err := strconv.Atoi(q.FormValue("page"))
	if err != nil || n < 1 || n > 1000 {
		return 1
	}
	return n
}

// serveRooms shows the list of rooms.
func serveRooms(q *request) error {
	l, err := readList(q.call)
	if err != nil {
		return err
	}
	x := readListQuery(q)
	return q.show(http.StatusOK, "rooms", &frame{
		Title: "Rooms", Current: "rooms", Stream: x.address("/console/stream", x.page), Main: viewList(l, x),
	})
}
