package global

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"vestibule/internal/control/api"
)

func TestCandidatesThatWereHeardAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c candidates
		tell := func(name, term string, leading bool, centres ...string) {
			t.Helper()
			told := toldCandidate{Candidate: api.Candidate{Name: name, Term: term, Leading: leading}}
			for _, dc := range centres {
				told.DataCenters = append(told.DataCenters, api.DataCenter{Name: dc})
			}
			data, err := json.Marshal(told)
			if err == nil {
				err = c.hear(data, time.Now())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		want := func(leader string, candidates, centres int) api.Fleet {
			t.Helper()
			v := c.view()
			if v.Leader != leader || len(v.Candidates) != candidates || v.DataCenters == nil || len(v.DataCenters) != centres {
				t.Errorf("%+v, want %s, %d candidates, %d data centres", v, leader, candidates, centres)
			}
			return v
		}
		want("", 0, 0)
		tell("global-2", "", false)
		tell("global-1", "9", true, "nairobi", "dublin")
		if v := want("global-1", 2, 2); v.Candidates[0].Name != "global-1" || v.Candidates[0].Alarms == nil {
			t.Errorf("%+v", v)
		}
		tell("global-3", "10", true, "nairobi") // two say so for a moment
		want("global-3", 3, 1)
		tell("global-3", "", false)
		want("global-1", 3, 2)
		time.Sleep(leaderGone + time.Millisecond)
		if v := want("", 3, 0); v.Candidates[0].Leading {
			t.Error("who has not been heard for seconds is shown to lead")
		}
		time.Sleep(candidateGone)
		want("", 0, 0)
		for i := range 3 * maxCandidates {
			tell(fmt.Sprint("global-", i), "", false)
		}
		want("", maxCandidates, 0)
		for _, bad := range []string{"", "x", `{"name":"a b"}`, `{"name":7}`} {
			if err := c.hear([]byte(bad), time.Now()); err == nil {
				t.Errorf("%q was taken", bad)
			}
		}
	})
}
