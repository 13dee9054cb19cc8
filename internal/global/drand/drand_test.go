package drand

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/draw/beacon"
)

// Round 657413 of quicknet, as published, and when.
const (
	round      = 657413
	signature  = "b713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be41076862b98fad56e91a6b85b89cd97b"
	randomness = "fc1873a13f3545aeade8401532ef5519920652eee6b0d2b19ca12643b87b3587"
	published  = 1692803367 + 3*(round-1)
)

// TestTheFirstMirrorThatTellsTheTruth: mirrors that lie, fail, hang or send too much do no harm next to a correct
// one.
func TestTheFirstMirrorThatTellsTheTruth(t *testing.T) {
	chain := beacon.Chain()
	end, patience := make(chan struct{}), fetchWithin
	defer func() { fetchWithin = patience }()
	fetchWithin = time.Minute // not needed with a correct mirror
	serve := func(answer func(w http.ResponseWriter, r *http.Request)) string {
		s := httptest.NewServer(http.HandlerFunc(answer))
		t.Cleanup(s.Close)
		return s.URL
	}
	say := func(text string) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
	}
	right := fmt.Sprintf(`{"round":%d,"randomness":%q,"signature":%q}`, round, randomness, signature)
	good := serve(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != fmt.Sprintf("/%x/public/%d", chain[:], round) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, right)
	})
	bad := Mirrors{
		serve(say(strings.Replace(right, "b713", "b714", 1))), serve(say("{")),
		serve(say(strings.Repeat(" ", maxAnswer) + right)), serve(say(`{"round":657413,"signature":"zz"}`)),
		serve(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, good, http.StatusFound) }),
	}
	silent := serve(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-end:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(end) }) // before the servers wait for their responses
	closes := time.Unix(published-1, 0)
	b, err := append(bad, silent, good+"/").Fetch(t.Context(), closes)
	if err != nil || b.Round != round {
		t.Fatalf("%+v, %v", b, err)
	}
	if b, err := bad.Fetch(t.Context(), closes); err == nil {
		t.Errorf("%+v of mirrors that do not tell the truth", b)
	}
	fetchWithin = time.Millisecond
	if b, err := (Mirrors{silent}).Fetch(t.Context(), closes); err == nil {
		t.Errorf("%+v of a mirror that says nothing", b)
	}
	if _, err := (Mirrors{}).Fetch(t.Context(), closes); err == nil {
		t.Error("without mirrors")
	}
}
