package node

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

var june = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func members(t *testing.T, m *Members) []byte {
	t.Helper()
	return testkit.Must(EncodeMembers(m))(t)
}

// The stored document: an incompatible change breaks running fleets.
func TestTheMembersDocumentIsStoredLikeThis(t *testing.T) {
	m := NewMembers(june, []string{"nairobi", "dublin"})
	m = testkit.Must(m.Add(june, "lima"))(t)
	m = testkit.Must(m.Drain(june, "dublin"))(t)
	const want = `{"version":1780315200002,"data_centers":[` +
		`{"name":"nairobi","state":"active"},{"name":"dublin","state":"draining"},{"name":"lima","state":"active","since":1780315200001}]}`
	data := members(t, m)
	if string(data) != want {
		t.Errorf("got  %s\nwant %s", data, want)
	}
	again, err := DecodeMembers(data)
	if err != nil || string(members(t, again)) != want {
		t.Errorf("read back: %v, %v", again, err)
	}
}

func TestMembersThatBreakARuleAreRefused(t *testing.T) {
	const a = `{"name":"a","state":"active"}`
	for _, c := range []struct{ before, list, after, want string }{
		{`"version":0`, a, "", "version: must be at least 1"},
		{`"version":1`, "", "", "data_centers: must be 1 to"},
		{`"version":1`, `{"name":"A","state":"active"}`, "", "data_centers[0]: must be 1 to 64 characters"},
		{`"version":1`, `{"name":"global","state":"active"}`, "", `data_centers[0]: must not be "global"`},
		{`"version":1`, a + "," + a, "", `data_centers[1]: "a" must differ from "a"`},
		{
			`"version":1`, `{"name":"a","state":"gone"}`, "",
			"data_centers[0]: state: must be active, draining or removed",
		},
		{
			`"version":1`, `{"name":"a","state":"active","since":2}`, "",
			"data_centers[0]: since: must be at most version 1",
		},
		{`"version":1`, `{"name":"a","state":"removed"}`, "", "data_centers: must be 1 to"},
		{`"version":1,"colour":"blue"`, a, "", "unknown field"},
		{`"version":1`, a, "{}", "data after the document"},
	} {
		text := "{" + c.before + `,"data_centers":[` + c.list + "]}" + c.after
		if _, err := DecodeMembers([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n%v, want %s", text, err, c.want)
		}
	}
}

func TestChangesOfTheMembers(t *testing.T) {
	m := NewMembers(june, []string{"nairobi", "dublin"})
	if m.Version != uint64(june.UnixMilli()) {
		t.Errorf("the first: %+v", m)
	}
	next, err := m.Add(june.Add(-time.Hour), "lima")
	if err != nil || next.Version != m.Version+1 || next.List[2] != (Member{"lima", Active, 0, next.Version}) ||
		len(m.List) != 2 {
		t.Errorf("with another: %+v, %v", next, err)
	}
	drained, err := next.Drain(june, "lima")
	if err != nil || drained.List[2].State != Draining {
		t.Errorf("draining: %+v, %v", drained, err)
	}
	if back, err := drained.Add(june, "lima"); err != nil || back.List[2].State != Active ||
		back.List[2].Since != next.Version {
		t.Errorf("it stays after all: %+v, %v", back, err)
	}
	gone, err := drained.Remove(june, "lima")
	if err != nil || gone.Find("lima") >= 0 || len(gone.List) != 2 {
		t.Errorf("without it: %+v, %v", gone, err)
	}
	proven := drained.Enrol(june, "lima", 7)
	if d := proven.List[2]; d.ClusterID != 7 || d.Since != proven.Version ||
		!slices.Equal(proven.Enrol(june, "lima", 8).List, proven.List) {
		t.Errorf("with its cluster ID: %+v", proven)
	}
	forced, err := proven.RemoveByForce(june, "lima")
	if err != nil || forced.Find("lima") >= 0 || forced.List[2].State != Removed || forced.List[2].ClusterID != 7 ||
		drained.List[2].State != Draining {
		t.Errorf("removed by force: %+v, %v", forced, err)
	}
	if again, err := DecodeMembers(members(t, forced)); err != nil || !slices.Equal(again.List, forced.List) {
		t.Errorf("read back: %+v, %v", again, err)
	}
	if back, err := forced.Add(june, "lima"); err != nil || back.List[2] != (Member{"lima", Active, 7, back.Version}) {
		t.Errorf("added again: %+v, %v", back, err)
	}
	if over := forced.Release(june, "lima"); len(over.List) != 2 || over.Version <= forced.Version {
		t.Errorf("when nothing is out: %+v", over)
	}
	for what, f := range map[string]func() (*Members, error){
		"is in the list already":     func() (*Members, error) { return m.Add(june, "dublin") },
		"must be 1 to 64 characters": func() (*Members, error) { return m.Add(june, "Lima") },
		"no such data centre":        func() (*Members, error) { return m.Drain(june, "lima") },
		"is draining already":        func() (*Members, error) { return drained.Drain(june, "lima") },
		"is the last active one": func() (*Members, error) {
			m, err := NewMembers(june, []string{"a", "b"}).Drain(june, "a")
			if err != nil {
				return nil, err
			}
			return m.Drain(june, "b")
		},
		"no such data centre in the": func() (*Members, error) { return m.Remove(june, "lima") },
		"is the last one: a fleet has": func() (*Members,
			error,
		) {
			return NewMembers(june, []string{"a"}).Remove(june, "a")
		},
		"must differ from \"nairobi\", ": func() (*Members,
			error,
		) {
			return nil, CheckMember("nairobi", []string{"nairobi"})
		},
	} {
		if _, err := f(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
	if _, err := m.Drain(june, "dubiln"); err == nil ||
		!strings.HasSuffix(err.Error(), `no such data centre in the list, did you mean "dublin"?`) {
		t.Errorf("a typo: %v", err)
	}
	if _, err := m.Drain(june, "lima"); !errors.Is(err, ErrNoMember) {
		t.Error(err)
	}
}

// A node keeps the newest list that it saw, across restarts, and raises an alarm while the store holds an older one
// or none.
func TestTheNewestMembersStay(t *testing.T) {
	f := follow(t, t.TempDir(), memoryStore{})
	first := NewMembers(june, []string{"nairobi"})
	second := testkit.Must(first.Add(june, "lima"))(t)
	f.Offer(t.Context(), MembersDocument, nil)
	if f.Alarm(MembersDocument) != "" || f.Members() != nil {
		t.Error("a fleet that begins")
	}
	f.Offer(t.Context(), MembersDocument, members(t, second))
	if f.changes != 1 || f.Members().Version != second.Version {
		t.Fatalf("%d changes, %+v", f.changes, f.Members())
	}
	other := *second
	other.List = other.List[1:]
	for what, data := range map[string][]byte{
		"older": members(t, first), "missing": nil, "differs": members(t, &other),
		"invalid": []byte("{"),
	} {
		f.Offer(t.Context(), MembersDocument, data)
		if f.Alarm(MembersDocument) == "" || f.Members().Version != second.Version || len(f.Members().List) != 2 {
			t.Errorf("%s: %q, %+v", what, f.Alarm(MembersDocument), f.Members())
		}
	}
	f.Offer(t.Context(), MembersDocument, members(t, second))
	if f.Alarm(MembersDocument) != "" || f.changes != 1 {
		t.Errorf("%q, %d changes", f.Alarm(MembersDocument), f.changes)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "members.json")); err != nil {
		t.Error(err)
	}
	again := follow(t, f.dir, memoryStore{})
	if again.Members() == nil || again.Members().Version != second.Version {
		t.Errorf("after a restart: %+v", again.Members())
	}
}
