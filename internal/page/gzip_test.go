package page_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/page"
)

// unpacked returns what the standard library reads.
func unpacked(t *testing.T, data []byte) []byte {
	t.Helper()
	r := testkit.Must(gzip.NewReader(bytes.NewReader(data)))(t)
	r.Multistream(false)
	return testkit.Must(io.ReadAll(r))(t)
}

// samePage holds a page with gzip against the same without.
func samePage(t *testing.T, p *page.Page, v *page.Visitor, out *page.Packer, name string) (size int) {
	t.Helper()
	const before = "what was there"
	data := p.RenderGzip([]byte(before), v, out)
	if !bytes.HasPrefix(data, []byte(before)) {
		t.Fatalf("%s: what was there is gone", name)
	}
	data = data[len(before):]
	if want, got := p.Render(nil, v), unpacked(t, data); !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes, not %d:\n%.300q", name, len(got), len(want), got)
	}
	return len(data)
}

// A page with gzip is the same page, in every state and language, and not much longer than if it were compressed whole
// for each visitor.
func TestPagesWithGzip(t *testing.T) {
	const english, percent = 3_900, 108 // bytes, and of the page compressed whole
	var out page.Packer
	var sizes []int
	script, _ := page.ScriptAt(page.ScriptPath())
	var plain, proof int // the longest, without and with a draw's proof
	for _, s := range page.Samples {
		longest := &plain
		if strings.Contains(s.Name, "draw") {
			longest = &proof
		}
		for lang := range room.Languages {
			v := s.Visitor
			v.Lang = page.Lang(lang)
			size := samePage(t, page.Builtin(), &v, &out, s.Name+" in "+v.Lang.Code())
			*longest = max(*longest, size+len(script.Gzip()))
			if s.Name != "queued" {
				continue
			}
			sizes = append(sizes, size)
			var all bytes.Buffer
			z := testkit.Must(gzip.NewWriterLevel(&all, gzip.BestCompression))(t)
			testkit.Must(z.Write(page.Builtin().Render(nil, &v)))(t)
			testkit.NoError(t, z.Close())
			if v.Lang == page.English && size > english || size > all.Len()*percent/100 {
				t.Errorf("%s: %d bytes, and %d if it is compressed whole", v.Lang.Code(), size, all.Len())
			}
		}
	}
	figures.Check(t, "page: page and script with gzip", "", float64(plain))
	figures.Check(t, "page: page with a draw's proof and script with gzip", "", float64(proof))
	t.Logf("English: %d bytes", sizes[page.English])
	slices.Sort(sizes)
	t.Logf("all languages: %d to %d bytes, median %d", sizes[0], sizes[len(sizes)-1], sizes[len(sizes)/2])
}

// Pages of random visitors are the same with gzip, in every language, with and without a style, with several visitors
// at once.
func TestPagesOfRandomVisitorsWithGzip(t *testing.T) {
	branded := testkit.Must(page.Custom([]byte("p{color:red}")))(t)
	for worker := range uint64(4) {
		t.Run(strconv.FormatUint(worker, 10), func(t *testing.T) {
			t.Parallel()
			chance := rand.New(rand.NewPCG(1, worker))
			var out page.Packer
			for range 500 {
				v := page.Samples[chance.IntN(len(page.Samples))].Visitor
				v.Lang = page.Lang(chance.IntN(len(room.Languages)))
				p := page.Builtin()
				for range chance.IntN(4) {
					change(chance, &v)
				}
				if chance.IntN(4) == 0 {
					p = branded
				}
				d := &v.Decision
				v.Now = v.Now.Add(time.Duration(chance.Int64N(5000)) * time.Millisecond)
				d.Ahead, d.Waiting = chance.Uint64()>>chance.IntN(64), chance.Uint64()>>chance.IntN(64)
				d.Wait, d.High = time.Duration(chance.Int64()>>chance.IntN(63)), time.Duration(chance.Int64()>>chance.IntN(63))
				d.Ticket.Joined = fleettime.Time(chance.Int64N(int64(v.Now)))
				d.Ticket.Answer = uint8(chance.IntN(256))
				samePage(t, p, &v, &out, fmt.Sprintf("%+v", v))
			}
		})
	}
}

// change changes one thing of what a page tells that is no number of the visitor's.
func change(chance *rand.Rand, v *page.Visitor) {
	d := &v.Decision
	some := func(all ...string) string { return all[chance.IntN(len(all))] }
	switch chance.IntN(16) {
	case 0:
		v.Room = some("sale", "sell", "a-much-longer-name")
	case 1:
		v.Message = some("", "Doors open at 8.", "<b>\"&'", strings.Repeat("0<", 1000), strings.Repeat("0123456789", 300))
	case 2:
		v.Back = some("", "/a", "/b?c=\"1\"")
	case 3:
		v.Grace = time.Duration(chance.IntN(20)) * time.Minute
	case 4:
		v.Method = some("fifo", "random", "passthrough", "reject")
	case 5:
		v.QueueAll = !v.QueueAll
	case 6:
		v.Blocked = !v.Blocked
	case 7:
		d.Known = !d.Known
	case 8:
		d.Counting = !d.Counting
	case 9:
		d.Longer = !d.Longer
	case 10:
		d.Next = !d.Next
	case 11:
		d.Fresh = admission.Fresh(chance.IntN(int(admission.Gone) + 1))
	case 12:
		d.Reason = admission.Reason(chance.IntN(int(admission.Drains) + 1))
	case 13:
		v.Left, v.Moment = chance.IntN(2) == 0, chance.IntN(4) == 0
	case 14:
		v.Event = page.Samples[chance.IntN(len(page.Samples))].Event
	case 15:
		v.Event.Draw.Commit = some("", "7f83b1657ff1fc53", "7f83b1657ff1fc54")
	}
}

// Pages of operators: with sections that are shown or not, in which nothing is copied from
// what was not shown; with much between two texts; of the greatest size.
func TestPagesOfOperatorsWithGzip(t *testing.T) {
	letters := func(n int, of string) string {
		chance, b := rand.New(rand.NewPCG(1, 2)), make([]byte, n)
		for i := range b {
			b[i] = of[chance.IntN(len(of))]
		}
		return string(b)
	}
	const line = "<p>one and the same line of text, again and again</p>"
	var out page.Packer
	for name, text := range map[string]string{
		"empty": "<p></p>",
		"a variable first": "{{waitTimeFormatted}}<p>" + strings.Repeat(line, 20) + "{{waitTime}}" + strings.Repeat(line,
			20) + "{{waitTime}}",
		"a variable": "<p>{{waitTimeFormatted}}</p>",
		"sections": "<p>" + "{{#waitTimeKnown}}" + line + "{{waitTime}}{{/waitTimeKnown}}{{^waitTimeKnown}}" +
			line + line + "{{/waitTimeKnown}}" + line,
		"nested": "<p>{{#inWaitingRoom}}{{^queueIsFull}}" + line +
			"{{/queueIsFull}}{{queueMessage}}{{/inWaitingRoom}}" + line + "{{^inWaitingRoom}}" + line + "{{/inWaitingRoom}}",
		"scripts": "<script>a</script>{{{liveScript}}}<script src=x></script>" + line,
		"much between": "<p>" + line + "{{queueMessage}}" + strings.Repeat("{{queueMessage}}",
			30) + line + "{{queueMessage}}" + line,
		"far apart":        "<p>" + line + letters(40<<10, "abcdefghijklmnop") + line,
		"much of the same": "<p>" + strings.Repeat("a", 20000) + "{{waitTime}}" + strings.Repeat("a", 20000),
		"bytes":            "<p>" + letters(20000, "\x80\xff\x00\x01\xfe<>&é") + "{{queueMessage}}",
		"of a MiB": "<p>" + strings.Repeat(line, 2000) + letters(page.MaxPage-120<<10,
			"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"),
		"of few symbols": "<" + strings.Repeat("b", 10),
		"style":          "p{color:red}",
		"much style":     "p{color:red}" + strings.Repeat("q{content:\"0123\"}", 3000),
		"words of all sizes": "<p>" + letters(1<<10, strings.Repeat("a", 512)+strings.Repeat("b", 256)+strings.Repeat("c",
			128)+strings.Repeat("d", 64)+strings.Repeat("e", 32)+"fghijklmnopqrstuvw"),
	} {
		p, err := page.Custom([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, s := range page.Samples {
			v := s.Visitor
			v.Nonce = "AbC_-12"
			samePage(t, p, &v, &out, name+", "+s.Name)
			v.Message = strings.Repeat("0123456789 \xff\x00é", 300)
			samePage(t, p, &v, &out, name+", "+s.Name+", with a long message")
			if len(text) > 100<<10 {
				break // of that size one is enough
			}
		}
	}
}

// How long a page is with gzip tells nothing of what in it is equal to something else: the same letters have the same
// length in any order, and beside any other values.
func TestLengthsTellOnlyLengths(t *testing.T) {
	var out page.Packer
	v := one()
	size := func(message, room string) int {
		v.Message, v.Room = message, room
		return len(page.Builtin().RenderGzip(nil, &v, &out))
	}
	one := size("0000000000", v.Room)
	two := size(strings.Repeat("0000000000", 2), v.Room)
	three := size(strings.Repeat("0000000000", 3), v.Room)
	if d := (two - one) - (three - two); d < -1 || d > 1 || one == two {
		t.Errorf("%d, %d and %d bytes: what is repeated is not written again", one, two, three)
	}
	const letters = "secretsalenames"
	chance := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		shuffled := []byte(letters + letters)
		chance.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if equal, other := size(letters+letters, letters), size(string(shuffled), letters); equal != other {
			t.Fatalf("%d bytes with what the page has already, %d with %q: values are copied", equal, other, shuffled)
		}
	}
}

func TestWhoTakesGzip(t *testing.T) {
	for _, tc := range []struct {
		accept string
		want   bool
	}{
		{"gzip, deflate, br, zstd", true},
		{"", false},
		{"br", false},
		{"GZIP", true},
		{"x-gzip", true},
		{"*", true},
		{"*;q=0", false},
		{"gzip;q=0", false},
		{"gzip;q=0, *", false},
		{"identity", false},
		{"gzip;q=0.5, identity", false},
		{"gzip, identity;q=0.5", true},
		{"br;q=1.0, gzip;q=0.8, *;q=0.1", true},
		{"gzip;q=2", false},
		{" gzip ;q=0.1", true},
		{"gzipp", false},
	} {
		if got := page.TakesGzip([]string{tc.accept}); got != tc.want {
			t.Errorf("%q: %v", tc.accept, got)
		}
	}
	if page.TakesGzip(nil) || !page.TakesGzip([]string{"br", "gzip"}) {
		t.Error("none or two headers")
	}
}

func BenchmarkGzip(b *testing.B) {
	v := one()
	var out page.Packer
	var shown []byte
	b.ReportAllocs()
	for b.Loop() {
		shown = page.Builtin().RenderGzip(shown[:0], &v, &out)
	}
	b.ReportMetric(float64(len(shown)), "B/page")
}

// BenchmarkGzipOfMany renders pages of different visitors of many rooms.
func BenchmarkGzipOfMany(b *testing.B) {
	chance := rand.New(rand.NewPCG(1, 2))
	visitors := make([]page.Visitor, 20_000)
	for i := range visitors {
		v := one()
		v.Room = fmt.Sprintf("sale-%d", chance.IntN(100))
		if chance.IntN(3) == 0 {
			v.Lang = page.Lang(chance.IntN(10))
		}
		d := &v.Decision
		d.Ahead, d.Waiting = 1+chance.Uint64N(50_000), 50_000+chance.Uint64N(1000)
		d.Wait = time.Duration(d.Ahead) * time.Second / 10
		d.Low, d.High = d.Wait*8/10, d.Wait*12/10
		d.Ticket.ID, d.Ticket.Answer = chance.Uint64N(1e9), uint8(chance.IntN(100))
		d.Ticket.Joined = v.Now.Add(-time.Duration(chance.Int64N(int64(40 * time.Minute))))
		visitors[i] = v
	}
	var out page.Packer
	var shown []byte
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		shown = page.Builtin().RenderGzip(shown[:0], &visitors[i%len(visitors)], &out)
	}
}
