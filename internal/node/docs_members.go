package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"vestibule/internal/core/ledger"
	"vestibule/internal/core/room"
	"vestibule/internal/core/strictjson"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// MembersDocument is the list of the fleet's data centres. Globals and regionals follow it; edges learn it from
// their regional.
const MembersDocument = "members"

// MembersStatusDocument is the leading global's report about them for operators, and for the next leader: see
// [MembersStatus].
const MembersStatusDocument = "members.status"

// InitDocument is the last request of an operator to initialize the fleet: see package members. No node follows it.
const InitDocument = "init"

// Members is the list of the fleet's data centres: one document, with a version that increases with every change.
// It is changed by compare-and-set, by `vestibule fleet` and by the leading global when a data centre has drained.
type Members struct {
	Version uint64   `json:"version"` // at least 1, and at least its creation time in milliseconds
	List    []Member `json:"data_centers"`
}

// Member is one data centre.
type Member struct {
	Name      string      `json:"name"`
	State     MemberState `json:"state"`
	ClusterID uint64      `json:"cluster_id,omitempty"` // cluster ID, distinguishes copied data centres; 0 for unknown
	Since     uint64      `json:"since,omitempty"`      // version that added it, or its cluster ID; 0 for the first list
}

// MemberState is the target state of a data centre. The set is closed.
type MemberState string

// States of a member.
const (
	Active   MemberState = "active"
	Draining MemberState = "draining" // no admissions; removed from the list once all its permits are returned

	// Removed by force: no member, but it may hold permits. A new coordinator waits for its report. The leading
	// global deletes the entry once no permits of it can be out.
	Removed MemberState = "removed"
)

// maxMembers bounds the list.
const maxMembers = 1000

// Errors of changes to the list.
var (
	ErrNoMember = errors.New("no such data centre in the list")
	ErrMember   = errors.New("it is in the list already")
)

// EncodeMembers encodes the document.
func EncodeMembers(m *Members) ([]byte, error) { return json.Marshal(m) }

// DecodeMembers decodes the document. The error names the field and the rule.
func DecodeMembers(data []byte) (*Members, error) {
	m := &Members{}
	if err := strictjson.Decode(data, m); err != nil {
		return nil, fmt.Errorf("members document: %w", err)
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("members document: %w", err)
	}
	return m, nil
}

func (m *Members) validate() error {
	if m.Version == 0 {
		return errors.New("version: must be at least 1")
	}
	if n := len(m.List); m.count() == 0 || n > maxMembers {
		return fmt.Errorf("data_centers: must be 1 to %d, got %d", maxMembers, n)
	}
	var names []string
	for i, d := range m.List {
		if err := CheckMember(d.Name, names); err != nil {
			return fmt.Errorf("data_centers[%d]: %w", i, err)
		}
		if d.State != Active && d.State != Draining && d.State != Removed {
			return fmt.Errorf("data_centers[%d]: state: must be active, draining or removed, got %q", i, d.State)
		}
		if d.Since > m.Version {
			return fmt.Errorf("data_centers[%d]: since: must be at most version %d, got %d", i, m.Version, d.Since)
		}
		names = append(names, d.Name)
	}
	return nil
}

// CheckMember validates the name of a data centre next to others.
func CheckMember(name string, others []string) error {
	if err := wire.CheckName(name); err != nil {
		return err
	}
	if ticket.DCOf(name) == ticket.Nobody {
		return fmt.Errorf("%q has the ID that tickets reserve for no data centre: choose another name", name)
	}
	for _, other := range others {
		if ticket.DCOf(name) == ticket.DCOf(other) {
			return fmt.Errorf("%q must differ from %q, also in the ID that tickets keep of the name", name, other)
		}
	}
	return nil
}

// NewMembers returns the first list of a fleet.
func NewMembers(now time.Time, names []string) *Members {
	m := &Members{Version: versionAfter(0, now)}
	for _, name := range names {
		m.List = append(m.List, Member{Name: name, State: Active})
	}
	return m
}

func versionAfter(have uint64, now time.Time) uint64 {
	return max(have+1, uint64(max(0, now.UnixMilli())))
}

// next returns a copy with a new version, for a change.
func (m *Members) next(now time.Time) *Members {
	return &Members{Version: versionAfter(m.Version, now), List: slices.Clone(m.List)}
}

// Find returns the index of a member in the list, or -1.
func (m *Members) Find(name string) int {
	return slices.IndexFunc(m.List, func(d Member) bool { return d.Name == name && d.State != Removed })
}

// count returns the number of members.
func (m *Members) count() (n int) {
	for _, d := range m.List {
		if d.State != Removed {
			n++
		}
	}
	return n
}

// Add returns the list with another data centre. A draining or removed one becomes active again.
func (m *Members) Add(now time.Time, name string) (*Members, error) {
	next := m.next(now)
	if i := slices.IndexFunc(m.List, func(d Member) bool { return d.Name == name }); i >= 0 {
		d := &next.List[i]
		switch d.State {
		case Active:
			return nil, fmt.Errorf("data centre %q: %w", name, ErrMember)
		case Removed:
			d.Since = next.Version
		case Draining:
		}
		d.State = Active
		return next, nil
	}
	var names []string
	for _, d := range m.List {
		names = append(names, d.Name)
	}
	if err := CheckMember(name, names); err != nil {
		return nil, fmt.Errorf("data centre: %w", err)
	}
	if len(m.List) >= maxMembers {
		return nil, fmt.Errorf("data_centers: must be at most %d", maxMembers)
	}
	next.List = append(next.List, Member{Name: name, State: Active, Since: next.Version})
	return next, nil
}

// Unknown returns the error for a name that is not in the list.
func (m *Members) Unknown(name string) error {
	names := make([]string, len(m.List))
	for i := range m.List {
		names[i] = m.List[i].Name
	}
	return fmt.Errorf("data centre %q: %w%s", name, ErrNoMember, room.Meant(name, names))
}

// Drain returns the list with a data centre draining.
func (m *Members) Drain(now time.Time, name string) (*Members, error) {
	i := m.Find(name)
	if i < 0 {
		return nil, m.Unknown(name)
	}
	if m.List[i].State == Draining {
		return nil, fmt.Errorf("data centre %q: is draining already", name)
	}
	next := m.next(now)
	next.List[i].State = Draining
	if !slices.ContainsFunc(next.List, func(d Member) bool { return d.State == Active }) {
		return nil, fmt.Errorf("data centre %q is the last active one: add another first", name)
	}
	return next, nil
}

// Remove returns the list without a data centre.
func (m *Members) Remove(now time.Time, name string) (*Members, error) {
	i := m.Find(name)
	if i < 0 {
		return nil, m.Unknown(name)
	}
	if m.count() == 1 {
		return nil, fmt.Errorf("data centre %q is the last one: a fleet has at least one", name)
	}
	next := m.next(now)
	next.List = slices.Delete(next.List, i, i+1)
	return next, nil
}

// RemoveByForce returns the list without a member that may hold permits: its entry stays.
func (m *Members) RemoveByForce(now time.Time, name string) (*Members, error) {
	if _, err := m.Remove(now, name); err != nil {
		return nil, err
	}
	next := m.next(now)
	next.List[m.Find(name)].State = Removed
	return next, nil
}

// Release returns the list without the entry of a data centre that was removed by force.
func (m *Members) Release(now time.Time, name string) *Members {
	next := m.next(now)
	next.List = slices.DeleteFunc(next.List, func(d Member) bool { return d.Name == name && d.State == Removed })
	return next
}

// Enrol returns the list with the cluster ID of a data centre that had none. It is granted permits once all others
// know it.
func (m *Members) Enrol(now time.Time, name string, clusterID uint64) *Members {
	next := m.next(now)
	if i := next.Find(name); i >= 0 && next.List[i].ClusterID == 0 {
		next.List[i].ClusterID, next.List[i].Since = clusterID, next.Version
	}
	return next
}

// Ledger returns the list in the form of the ledger.
func (m *Members) Ledger() ledger.Members {
	if m == nil {
		return ledger.Members{}
	}
	out := ledger.Members{Version: m.Version}
	for _, d := range m.List {
		out.List = append(out.List, ledger.Member{
			Name: d.Name, Draining: d.State == Draining, Removed: d.State == Removed, Since: d.Since, ClusterID: d.ClusterID,
		})
	}
	return out
}

// MembersStatus is the leading global's report about the data centres.
type MembersStatus struct {
	Version uint64        `json:"version"`          // of the list in use
	Newest  uint64        `json:"newest,omitempty"` // a newer one known to a data centre; 0 for none
	At      time.Time     `json:"at"`               // by its clock
	List    []CentreState `json:"data_centers"`
}

// CentreState is the state of one data centre, summed over all rooms.
type CentreState struct {
	Name       string `json:"name"`
	ClusterID  uint64 `json:"cluster_id,omitempty"`
	State      string `json:"state"` // active, draining or unlisted
	Reporting  bool   `json:"told"`  // it reports its permits, and did so in the last seconds
	Held       int64  `json:"held"`  // permits of total_active_users
	RateHeld   int64  `json:"rate_held"`
	Sessions   uint64 `json:"sessions"`
	Overcommit int64  `json:"overcommit"` // possibly valid sessions beyond those permits

	// Silent is the time in seconds since its last report, in steps of silentStep; 0 below the first.
	Silent int64 `json:"silent_s,omitempty"`
}

// silentStep is the interval at which the length of a silence is published.
const silentStep = 10 * time.Second

// SilentSeconds returns the value of [CentreState.Silent].
func SilentSeconds(silent time.Duration) int64 {
	return int64(silent.Truncate(silentStep) / time.Second)
}

// recentStatus is how old a status may be that a new leader believes: a data centre that it calls silent may have been
// heard since.
const recentStatus = 30 * time.Second

// Silences calls yield for each data centre that was silent when st was published, unless that was too long ago at
// now.
func (st *MembersStatus) Silences(now time.Time, yield func(name string, silent time.Duration)) {
	if age := now.Sub(st.At); age < -recentStatus || age > recentStatus {
		return
	}
	for _, d := range st.List {
		if d.Silent > 0 {
			yield(d.Name, min(time.Duration(d.Silent), time.Duration(math.MaxInt32))*time.Second)
		}
	}
}

// ClusterID is a data centre's cluster ID in logs.
func ClusterID(clusterID uint64) slog.Attr {
	return slog.String("cluster_id", fmt.Sprintf("%016x", clusterID))
}
