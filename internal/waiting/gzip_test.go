package waiting_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"vestibule/internal/room"
	"vestibule/internal/waiting"
)

// unpacked returns what the standard library reads.
func unpacked(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	r.Multistream(false)
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// samePage holds a page with gzip against the same without.
func samePage(t *testing.T, p *waiting.Page, v *waiting.Visitor, out *waiting.Packer, name string) (size int) {
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

// A page with gzip is the same page, in every state and language, and as small as if it
// had been compressed for the visitor.
func TestPagesWithGzip(t *testing.T) {
	var out waiting.Packer
	for _, s := range waiting.Samples {
		for lang := range room.Languages {
			v := s.Visitor
			v.Lang = waiting.Lang(lang)
			size := samePage(t, waiting.Builtin(), &v, &out, s.Name+" in "+v.Lang.Code())
			if s.Name != "queued" {
				continue
			}
			var all bytes.Buffer
			z, err := gzip.NewWriterLevel(&all, gzip.BestCompression)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := z.Write(waiting.Builtin().Render(nil, &v)); err != nil {
				t.Fatal(err)
			}
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
			if goal := 8400; v.Lang == waiting.English && size > goal || size > all.Len()*104/100 {
				t.Errorf("%s: %d bytes, and %d if it is compressed whole; goal for English %d", v.Lang.Code(), size, all.Len(), goal)
			}
		}
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
	var out waiting.Packer
	for name, text := range map[string]string{
		"empty":              "<p></p>",
		"a variable":         "<p>{{waitTimeFormatted}}</p>",
		"sections":           "<p>" + "{{#waitTimeKnown}}" + line + "{{waitTime}}{{/waitTimeKnown}}{{^waitTimeKnown}}" + line + line + "{{/waitTimeKnown}}" + line,
		"nested":             "<p>{{#inWaitingRoom}}{{^queueIsFull}}" + line + "{{/queueIsFull}}{{queueMessage}}{{/inWaitingRoom}}" + line + "{{^inWaitingRoom}}" + line + "{{/inWaitingRoom}}",
		"scripts":            "<script>a</script>{{{liveScript}}}<script src=x></script>" + line,
		"much between":       "<p>" + line + "{{queueMessage}}" + strings.Repeat("{{queueMessage}}", 30) + line + "{{queueMessage}}" + line,
		"far apart":          "<p>" + line + letters(40<<10, "abcdefghijklmnop") + line,
		"much of the same":   "<p>" + strings.Repeat("a", 20000) + "{{waitTime}}" + strings.Repeat("a", 20000),
		"bytes":              "<p>" + letters(20000, "\x80\xff\x00\x01\xfe<>&é") + "{{queueMessage}}",
		"of a MiB":           "<p>" + strings.Repeat(line, 2000) + letters(waiting.MaxPage-120<<10, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"),
		"of few symbols":     "<" + strings.Repeat("b", 10),
		"style":              "p{color:red}",
		"much style":         "p{color:red}" + strings.Repeat("q{content:\"0123\"}", 3000),
		"words of all sizes": "<p>" + letters(1<<10, strings.Repeat("a", 512)+strings.Repeat("b", 256)+strings.Repeat("c", 128)+strings.Repeat("d", 64)+strings.Repeat("e", 32)+"fghijklmnopqrstuvw"),
	} {
		p, err := waiting.Custom([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, s := range waiting.Samples {
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

// How long a page is with gzip tells nothing of what in it is equal to something else:
// changing one digit for another changes it by what the digit's word is longer.
func TestLengthsTellOnlyLengths(t *testing.T) {
	var out waiting.Packer
	v := one()
	v.Message = "0000000000"
	a := len(waiting.Builtin().RenderGzip(nil, &v, &out))
	v.Message = "0000000000" + "0000000000"
	b := len(waiting.Builtin().RenderGzip(nil, &v, &out))
	v.Message = strings.Repeat("0000000000", 3)
	c := len(waiting.Builtin().RenderGzip(nil, &v, &out))
	if d := (b - a) - (c - b); d < -1 || d > 1 || b == a {
		t.Errorf("%d, %d and %d bytes: what is repeated is not written again", a, b, c)
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
		if got := waiting.TakesGzip([]string{tc.accept}); got != tc.want {
			t.Errorf("%q: %v", tc.accept, got)
		}
	}
	if waiting.TakesGzip(nil) || !waiting.TakesGzip([]string{"br", "gzip"}) {
		t.Error("none or two headers")
	}
}

func BenchmarkGzip(b *testing.B) {
	v := one()
	var out waiting.Packer
	var page []byte
	b.ReportAllocs()
	for b.Loop() {
		page = waiting.Builtin().RenderGzip(page[:0], &v, &out)
	}
	b.ReportMetric(float64(len(page)), "B/page")
}
