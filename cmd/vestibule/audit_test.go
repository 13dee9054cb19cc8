package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"vestibule/internal/global/audit"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/fakes"
)

// TestTheAuditStreamIsVerified: a stream as it was written is good; one that was changed is
// named by its first bad entry, and the exit code says so.
func TestTheAuditStreamIsVerified(t *testing.T) {
	stream := &fakes.Stream{}
	journal := audit.NewJournal(stream)
	for i := range 1200 {
		e := audit.Entry{
			ID: fmt.Sprint(i), At: time.Unix(1_800_000_000, 0).UTC(),
			By: audit.By{Name: "a & b", Operation: "put-host"}, Target: "token.x",
		}
		testkit.NoError(t, journal.Add(t.Context(), e))
	}
	entries := stream.Entries()
	known := func(i int) string { return fmt.Sprintf("%d:%s", i, audit.Hash(stream.Entries()[i-1])) }
	apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		from, err := strconv.Atoi(r.URL.Query().Get("from"))
		if err != nil {
			t.Errorf("%s: %v", r.URL, err)
		}
		type link struct {
			Sequence int             `json:"sequence"`
			Hash     string          `json:"hash"`
			Entry    json.RawMessage `json:"entry"`
		}
		out := []link{}
		for i := from; i <= len(entries) && len(out) < 500; i++ {
			out = append(out, link{i, audit.Hash(entries[i-1]), entries[i-1]})
		}
		if err := json.NewEncoder(w).Encode(map[string]any{
			"success": true, "errors": []any{}, "messages": []any{},
			"result": out,
		}); err != nil {
			t.Error(err)
		}
	})
	changed := bytes.Replace(entries[699], []byte("put-host"), []byte("get-host"), 1)
	for _, c := range []struct {
		what, args string
		change     func()
		code       int
		says       string
	}{
		{"as it was written", "audit verify", func() {}, 0, "1200 entries follow each other, from 1 on; the newest is " +
			known(1200)},
		{"as it was written", "audit verify --output json", func() {}, 0, `"entries": 1200`},
		{"what is known", "audit verify --known " + known(900), func() {}, 0, "1200 entries"},
		{"another hash is known", "audit verify --known 900:00", func() {}, 1, "entry 900: does not have the known hash"},
		{
			"the end taken away", "audit verify --known " + known(1200), func() { entries = entries[:1100] }, 1,
			"entry 1101: is missing: the newest is 1100, and 1200 is known",
		},
		{"one changed", "audit verify", func() { entries[699] = changed }, 1, "entry 701: does not follow"},
		{
			"one taken out", "audit verify --output json", func() { entries = append(entries[:30:30], entries[31:]...) }, 1,
			`"broken": "entry 31: is missing`,
		},
		{"no verb", "audit", func() {}, 2, "needs a command\nUsage:"},
		{"half a hash", "audit verify --known 5", func() {}, 2, "known: must be NUMBER:HASH, got \"5\""},
	} {
		c.change()
		if code, out := told(t.Context(), strings.Fields(c.args)...); code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("%s: %d %s\nwant %d %s", c.what, code, out, c.code, c.says)
		}
		entries = stream.Entries()
	}
}
