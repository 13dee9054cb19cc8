package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/rogpeppe/go-internal/txtar"

	"vestibule/internal/core/draw"
	clock "vestibule/internal/core/fleettime"
	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/page"
)

// BenchmarkReceipts holds a million receipts, of which every thousandth is forged, against a
// record. The goal is 60 s, all forged ones found, and no other.
func BenchmarkReceipts(b *testing.B) {
	const receipts, every = 1_000_000, 1000
	closes := time.Date(2026, 12, 1, 9, 59, 30, 0, time.UTC)
	var secret draw.Secret
	rand.Read(secret[:])
	record := &draw.Record{
		Algorithm: draw.Algorithm, Room: "room", Event: "event", Commit: secret.Commit(), Committed: closes.Add(-time.Hour),
		Closes: closes, Secret: draw.Hash(secret), Entrants: receipts,
	}
	text := testkit.Must(draw.EncodeRecord(record))(b)
	dir := b.TempDir()
	files := []string{filepath.Join(dir, "record.json"), filepath.Join(dir, "receipts.json")}
	testkit.NoError(b, os.WriteFile(files[0], text, 0o600))
	f := testkit.Must(os.Create(files[1]))(b)
	out, d := bufio.NewWriter(f), record.Draw()
	for i := range receipts {
		var id [8]byte
		rand.Read(id[:])
		r := draw.Receipt{
			Ticket: draw.Ticket(binary.BigEndian.Uint64(id[:])),
			Joined: closes.Add(-time.Duration(1+i) * time.Millisecond),
		}
		place := d.Place(uint64(r.Ticket), clock.TimeOf(r.Joined), 0)
		if i%every == 0 {
			place--
		}
		r.Place = time.UnixMilli(int64(place)).UTC()
		line := testkit.Must(json.Marshal(r))(b)
		testkit.Must(out.Write(append(line, '\n')))(b)
	}
	testkit.NoError(b, out.Flush())
	testkit.NoError(b, f.Close())
	for b.Loop() {
		var out bytes.Buffer
		if err := verifyDraw(nil, &out, "", "", files[0], files[1:]); err == nil {
			b.Fatal("nothing forged is found")
		}
		want := fmt.Sprintf("%d receipts: %d right, %d wrong\n", receipts, receipts-receipts/every, receipts/every)
		if !bytes.HasSuffix(out.Bytes(), []byte(want)) {
			b.Fatalf("%s, want %s", out.Bytes(), want)
		}
	}
}

// TestThePageChecksAsTheCommandDoes: what the command says of the vectors, and of draws made by chance, the page says
// in a real browser, but for the beacon's signature, which it does not check.
func TestThePageChecksAsTheCommandDoes(t *testing.T) {
	text := testkit.Must(os.ReadFile("testdata/verifydraw.txtar"))(t)
	file := map[string]string{}
	for _, f := range txtar.Parse(text).Files {
		file[f.Name] = string(f.Data)
	}
	asked := ""
	url := browsertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/.well-known/vestibule/draw" {
			asked = r.URL.RawQuery
			io.WriteString(w, file["plain.json"]) //nolint:errcheck // the page tells
			return
		}
		w.Header().Set("Content-Security-Policy", page.CheckDrawPolicy)
		io.WriteString(w, page.CheckDraw(page.English)) //nolint:errcheck // the page tells
	}))
	ctx := browsertest.Open(t)
	browsertest.Do(t, ctx, chromedp.Navigate(url+"/.well-known/vestibule/check-draw?room=shop"))
	testkit.Eventually(t, "the page has fetched the record", func() bool {
		record := browsertest.See(t, ctx, chromedp.Evaluate[string](`document.getElementById("record").value`))
		return record == strings.TrimSpace(file["plain.json"])
	})
	if asked != "room=shop" {
		t.Errorf("the record was asked for by %q", asked)
	}
	says := func(record, receipts string) []string {
		t.Helper()
		return browsertest.See(t, ctx, chromedp.Evaluate[[]string](fmt.Sprintf("verify(%q, %q)", record, receipts),
			chromedp.EvalAwaitPromise))
	}
	dir := t.TempDir()
	agree := func(what, record, receipts string) {
		t.Helper()
		var out bytes.Buffer
		args := []string{filepath.Join(dir, "record.json")}
		testkit.NoError(t, os.WriteFile(args[0], []byte(record), 0o600))
		if receipts != "" {
			args = append(args, filepath.Join(dir, "receipts.json"))
			testkit.NoError(t, os.WriteFile(args[1], []byte(receipts), 0o600))
		}
		err := verifyDraw(nil, &out, "", "", args[0], args[1:])
		page := says(record, receipts)
		if right := page[0] == "RIGHT"; right != (err == nil) {
			t.Errorf("%s: the page says %q, the command %v", what, page, err)
		}
		want := slices.DeleteFunc(strings.Split(strings.TrimSpace(out.String()), "\n"),
			func(line string) bool { return strings.HasPrefix(line, "round ") })
		got := slices.DeleteFunc(page[1:], func(line string) bool { return strings.HasPrefix(line, "round ") })
		if slices.Sort(want); out.Len() > 0 && !slices.Equal(want, slices.Sorted(slices.Values(got))) {
			t.Errorf("%s: the page says\n%s\nand the command\n%s", what, strings.Join(page, "\n"), out.String())
		}
	}
	agree("with a beacon", file["record.json"], file["receipts.json"])
	agree("lines", file["record.json"], file["lines.json"])
	agree("without receipts", file["plain.json"], "")
	agree("forged", file["record.json"], file["lines.json"]+file["forged.json"])
	agree("another draw's", file["plain.json"], file["receipts.json"])
	agree("no record", file["receipts.json"], "")
	if page := strings.Join(says(file["record.json"], file["broken.json"]), "\n"); !strings.HasPrefix(page, "WRONG") ||
		!strings.Contains(page, `unknown field "colour"`) {
		t.Errorf("of a field that nobody knows the page says %q", page)
	}
	bad := strings.Join(says(file["bad.json"], ""), "\n")
	for _, fault := range []string{
		"WRONG: ", "secret: it is not the one that commit was made of",
		"beacon: round: must be 657413, the first after closes, got 657414",
	} {
		if !strings.Contains(bad, fault) {
			t.Errorf("of a bad record the page says %q", bad)
		}
	}
	for n := range 5 {
		record, receipts := chance(t, mathrand.New(mathrand.NewPCG(1, uint64(n))))
		agree(fmt.Sprint("by chance ", n), record, receipts)
	}
}

// chance returns a record and receipts, of which some are forged.
func chance(t *testing.T, rng *mathrand.Rand) (string, string) {
	t.Helper()
	closes := time.UnixMilli(1_700_000_000_000 + rng.Int64N(1e11)).UTC()
	var secret draw.Secret
	for i := range secret {
		secret[i] = byte(rng.Uint32())
	}
	record := &draw.Record{
		Algorithm: draw.Algorithm, Room: "Saal für \"alle\"", Event: fmt.Sprint(rng.Uint64()), Commit: secret.Commit(),
		Committed: closes.Add(-time.Hour), Closes: closes,
		Secret: draw.Hash(secret), Entrants: rng.Uint64N(1e9),
	}
	text := testkit.Must(draw.EncodeRecord(record))(t)
	d, list := record.Draw(), []draw.Receipt(nil)
	for range 1 + rng.IntN(15) {
		r := draw.Receipt{
			Ticket: draw.Ticket(rng.Uint64()),
			Joined: closes.Add(time.Duration(rng.Int64N(7200_000)-6000_000) * time.Millisecond),
			Class:  uint8(rng.IntN(draw.MaxClass + 1)),
		}
		place := d.Place(uint64(r.Ticket), clock.TimeOf(r.Joined), r.Class)
		if rng.IntN(5) == 0 {
			place += clock.Time(rng.IntN(3) - 1)
		}
		r.Place = time.UnixMilli(int64(place)).UTC()
		list = append(list, r)
	}
	receipts := testkit.Must(json.Marshal(list))(t)
	return string(text), string(receipts)
}
