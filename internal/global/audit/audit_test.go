package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/global/audit"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/fakes"
)

// verify walks a chain and returns the number of valid entries, the gaps, and the first fault.
func verify(entries [][]byte) (n int, gaps []string, err error) {
	var c audit.Chain
	for _, data := range entries {
		_, gap, err := c.Next(data)
		if err != nil {
			return n, gaps, err
		}
		if n++; gap != "" {
			gaps = append(gaps, gap)
		}
	}
	return n, gaps, nil
}

// entries are some as a journal writes them.
func entries(t testing.TB, n int) [][]byte {
	t.Helper()
	stream := &fakes.Stream{}
	j := audit.NewJournal(stream)
	for i := range n {
		e := audit.Entry{
			ID: fmt.Sprint("change-", i), At: time.Unix(1_800_000_000+int64(i), 0).UTC(),
			By: audit.By{Name: "<ops> & co", Operation: "put"},
		}
		if e.Target = "token.x"; i%3 > 0 {
			e.Target, e.Base, e.Version = "", uint64(10*i-10), uint64(10*i)
			if i%3 == 1 {
				e.Base = max(0, uint64(10*i)-20) // the one before is about a token
			}
			e.Rooms = []audit.Room{{ID: "f", Name: "fair", After: json.RawMessage(fmt.Sprintf(`{"v":%d}`, i))}}
		}
		testkit.NoError(t, j.Add(t.Context(), e))
	}
	return stream.Entries()
}

func TestWhateverIsDoneToAChainIsFound(t *testing.T) {
	whole := entries(t, 12)
	if n, gaps, err := verify(whole); n != 12 || err != nil || len(gaps) > 0 {
		t.Fatalf("%d good, %v, %v", n, gaps, err)
	}
	// A kept chain may begin later: the oldest entries go.
	if n, _, err := verify(whole[5:]); n != 7 || err != nil {
		t.Errorf("%d good, %v", n, err)
	}
	replace := func(i int, old, new string) func([][]byte) [][]byte {
		return func(c [][]byte) [][]byte {
			changed := strings.Replace(string(c[i]), old, new, 1)
			if changed == string(c[i]) {
				t.Fatalf("%q is not in %s", old, c[i])
			}
			c[i] = []byte(changed)
			return c
		}
	}
	for what, x := range map[string]struct {
		do    func([][]byte) [][]byte
		first uint64 // number of the first entry that is not as it was, or of the one after it
	}{
		"a name changed":         {replace(4, "cops", "copz"), 6},
		"a value changed":        {replace(4, `"v":4`, `"v":5`), 6},
		"a time changed":         {replace(0, "2027", "2026"), 2},
		"a space put in":         {replace(7, `{"v"`, `{ "v"`), 9},
		"another number":         {replace(3, `"number":4`, `"number":5`), 4},
		"another entry before":   {replace(6, `"previous":"`, `"previous":"0`), 7},
		"another version":        {replace(8, `"through":80`, `"through":20`), 9},
		"one taken out":          {func(c [][]byte) [][]byte { return slices.Delete(c, 3, 4) }, 4},
		"several taken out":      {func(c [][]byte) [][]byte { return slices.Delete(c, 3, 9) }, 4},
		"two in the other order": {func(c [][]byte) [][]byte { c[5], c[6] = c[6], c[5]; return c }, 6},
		"one twice":              {func(c [][]byte) [][]byte { return slices.Insert(c, 5, c[4]) }, 6},
		"one put in between":     {func(c [][]byte) [][]byte { return slices.Insert(c, 2, c[9]) }, 3},
		"no entry":               {func(c [][]byte) [][]byte { c[2] = []byte("x"); return c }, 3},
		"an empty one":           {func(c [][]byte) [][]byte { c[2] = []byte("{}"); return c }, 3},
	} {
		got := x.do(slices.Clone(whole))
		_, _, err := verify(got)
		if broken, ok := errors.AsType[*audit.BrokenError](err); !ok || broken.Number != x.first {
			t.Errorf("%s: %v, want entry %d", what, err, x.first)
		}
	}
}

// FuzzChain: no chain but the one that was written is taken for it.
func FuzzChain(f *testing.F) {
	whole := entries(f, 8)
	f.Add(uint8(3), uint16(20), byte(1))
	f.Fuzz(func(t *testing.T, entry uint8, at uint16, flip byte) {
		i := int(entry) % (len(whole) - 1) // nothing follows the newest: a recorded hash reveals a change of it
		changed := slices.Clone(whole)
		changed[i] = slices.Clone(whole[i])
		changed[i][int(at)%len(changed[i])] ^= flip
		if _, _, err := verify(changed); (err == nil) != (flip == 0) {
			t.Errorf("byte %d of entry %d: %v", at, i+1, err)
		}
	})
}

func TestChangesWithoutAnEntryAreReported(t *testing.T) {
	stream := &fakes.Stream{}
	j := audit.NewJournal(stream)
	for _, v := range [][2]uint64{{0, 5}, {5, 6}, {9, 10}} {
		testkit.NoError(t, j.Add(t.Context(), audit.Entry{ID: fmt.Sprint(v), Base: v[0], Version: v[1]}))
	}
	if n, gaps, err := verify(stream.Entries()); n != 3 || err != nil || len(gaps) != 1 ||
		!strings.Contains(gaps[0], "before entry 3: changes of the rooms from version 6 to 9") {
		t.Errorf("%d, %q, %v", n, gaps, err)
	}
}

// Several journals of one stream make one chain, despite any answers of the stream.
func TestManyJournalsMakeOneChain(t *testing.T) {
	stream := &fakes.Stream{}
	var mu sync.Mutex
	n := 0
	stream.Before = func(op string) string {
		mu.Lock()
		defer mu.Unlock()
		n++
		switch {
		case n%7 == 0:
			return "failed"
		case n%5 == 0 && op == "append":
			return "silent"
		case n%11 == 0:
			return "stale"
		}
		return ""
	}
	const journals, each = 4, 25
	var g sync.WaitGroup
	for i := range journals {
		j := audit.NewJournal(stream)
		j.Pause = func(context.Context, time.Duration) {}
		g.Go(func() {
			for k := range each {
				e := audit.Entry{ID: fmt.Sprintf("%d-%d", i, k), Target: "token.x"}
				// If the result is unknown, the entry may be there, and is not sent again.
				if err := j.Add(t.Context(), e); err != nil && !errors.Is(err, audit.ErrNotAdded) {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	all := stream.Entries()
	if _, _, err := verify(all); err != nil {
		t.Error(err)
	}
	seen := map[string]int{}
	for _, data := range all {
		var e audit.Entry
		testkit.NoError(t, json.Unmarshal(data, &e))
		if seen[e.ID]++; seen[e.ID] > 1 {
			t.Errorf("%s stands there twice", e.ID)
		}
	}
	if len(seen) < journals*each/2 {
		t.Errorf("%d entries of %d", len(seen), journals*each)
	}
}

// A change of many rooms is recorded in parts, each at most as large as a message.
func TestALargeChangeIsRecordedInParts(t *testing.T) {
	stream := &fakes.Stream{}
	j := audit.NewJournal(stream)
	e := audit.Entry{ID: "import", Version: 7}
	for i := range 3000 {
		e.Rooms = append(e.Rooms, audit.Room{
			ID: fmt.Sprint(i), Name: fmt.Sprint("room-", i),
			After: json.RawMessage(`"` + strings.Repeat("x", 400) + `"`),
		})
	}
	for range 2 { // the second time it is there already
		testkit.NoError(t, j.Add(t.Context(), e))
	}
	if n, _, err := verify(stream.Entries()); err != nil || n < 10 || n > 20 {
		t.Errorf("%d parts, %v", n, err)
	}
	rooms := 0
	for _, data := range stream.Entries() {
		var part audit.Entry
		if err := json.Unmarshal(data, &part); err != nil || len(data) > 200<<10 {
			t.Errorf("%d bytes, %v", len(data), err)
		}
		rooms += len(part.Rooms)
		if (part.Through == 7) != (part.Part == part.Parts) {
			t.Errorf("part %d of %d tells of version %d", part.Part, part.Parts, part.Through)
		}
	}
	if rooms != 3000 || j.Through() != 7 {
		t.Errorf("%d rooms, through %d", rooms, j.Through())
	}
}
