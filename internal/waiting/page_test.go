package waiting_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vestibule/internal/admission"
	"vestibule/internal/fleet"
	"vestibule/internal/ticket"
	"vestibule/internal/waiting"
)

var rewrite = flag.Bool("rewrite", false, "write the golden file anew")

// one is a visitor like most: some people in front, an estimate.
func one() waiting.Visitor {
	now := fleet.Time(1622133200_000) // 27 May 2021, 16:33:20 UTC
	return waiting.Visitor{Now: now, Grace: 5 * time.Minute, Decision: admission.Decision{
		Reason: admission.Behind, Ahead: 1234, Waiting: 20000, Wait: 10 * time.Minute, Known: true, Retry: 20 * time.Second,
		Ticket: ticket.Ticket{ID: 1, Joined: now.Add(-95 * time.Second)},
	}}
}

func TestThePageIsGolden(t *testing.T) {
	v := one()
	got := waiting.Builtin().Render(nil, &v)
	const file = "testdata/page.golden.html"
	if *rewrite {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("run with -rewrite if this is meant (-golden +page):\n%s", diff)
	}
}

func TestWhatVisitorsAreTold(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*waiting.Visitor)
		says   []string
		not    []string
	}{
		{"in line", func(*waiting.Visitor) {}, []string{
			"<title>1,234 ahead – You are in line</title>", "<h1>You are in line</h1>", "<dd>1,234</dd>", "about 10 minutes", "20,000 waiting in all",
			`<time datetime="2021-05-27T16:31:45Z">16:31:45</time>`, `<time datetime="2021-05-27T16:33:20Z">16:33:20</time>`,
			"come back within 5 minutes", "the next in about 20 seconds", "in the order in which they came",
		}, []string{"notice\">"}},
		{"next", func(v *waiting.Visitor) { v.Decision.Ahead, v.Decision.Wait, v.Decision.Retry = 0, 0, time.Second }, []string{
			"<title>You are in line</title>", "<h1>You are next</h1>", "any moment", "as soon as there is room", "in about 1 second.",
		}, nil},
		{"alone before the regional counted anybody", func(v *waiting.Visitor) { v.Decision.Waiting = 0 }, []string{"<footer>1 waiting in all"}, nil},
		{"no estimate", func(v *waiting.Visitor) { v.Decision.Known = false }, []string{"not known yet"}, []string{"about 10 minutes"}},
		{"isolated", func(v *waiting.Visitor) { v.Decision.Reason = admission.Isolated }, []string{"paused", "Nobody can be let in for the moment"}, []string{"about 10 minutes"}},
		{"unsure, nobody in front", func(v *waiting.Visitor) { v.Decision.Reason, v.Decision.Ahead = admission.Unsure, 0 }, []string{"paused", "<h1>You are in line</h1>"}, []string{"next</h1>"}},
		{"closed", func(v *waiting.Visitor) { v.Decision.Reason = admission.Closed }, []string{
			"<title>Closed for the moment</title>", "<h1>Closed for the moment</h1>", "paused", "Please come back a little later",
		}, []string{"You are in line", "about 10 minutes", "Nobody can be let in"}},
		{"back after the session", func(v *waiting.Visitor) { v.Decision.Fresh = admission.Expired }, []string{"Your earlier visit has ended"}, nil},
		{"back too late", func(v *waiting.Visitor) { v.Decision.Fresh = admission.Lost }, []string{"away for too long"}, nil},
		{"back in another epoch", func(v *waiting.Visitor) { v.Decision.Fresh = admission.Void }, []string{"started anew"}, nil},
		{"new", func(v *waiting.Visitor) { v.Decision.Fresh = admission.Newcomer }, nil, []string{"notice\">"}},
		{"a short wait", func(v *waiting.Visitor) { v.Decision.Wait = 44 * time.Second }, []string{"less than a minute"}, nil},
		{"a minute", func(v *waiting.Visitor) { v.Decision.Wait = 45 * time.Second }, []string{"about 1 minute<"}, nil},
		{"almost an hour", func(v *waiting.Visitor) { v.Decision.Wait = 59*time.Minute + 40*time.Second }, []string{"about 1 hour<"}, nil},
		{"hours", func(v *waiting.Visitor) { v.Decision.Wait = 150 * time.Minute }, []string{"about 3 hours"}, nil},
		{"days", func(v *waiting.Visitor) { v.Decision.Wait = 24 * time.Hour }, []string{"more than a day"}, nil},
		{"millions", func(v *waiting.Visitor) { v.Decision.Ahead = 1_234_567 }, []string{"<dd>1,234,567</dd>"}, nil},
	} {
		v := one()
		tc.change(&v)
		page := string(waiting.Builtin().Render(nil, &v))
		for _, text := range tc.says {
			if !strings.Contains(page, text) {
				t.Errorf("%s: the page does not say %q", tc.name, text)
			}
		}
		for _, text := range tc.not {
			if strings.Contains(page, text) {
				t.Errorf("%s: the page says %q", tc.name, text)
			}
		}
	}
}

// The page is one file that stands by itself: nothing to fetch, nothing to run,
// readable by a machine that reads it aloud, by day and by night.
func TestThePageStandsByItself(t *testing.T) {
	for i := range waiting.Samples {
		page := string(waiting.Builtin().Render(nil, &waiting.Samples[i]))
		for _, rule := range []string{`(?i)<script`, `(?i)\bon[a-z]+\s*=`, `(?i)javascript:`, `(?i)\bsrc\s*=`, `(?i)\bhref\s*=`, `(?i)url\(`, `(?i)@import`, `//`, `(?i)<(iframe|object|embed|link|form|base|img)`, `{{`} {
			if found := regexp.MustCompile(rule).FindString(page); found != "" {
				t.Errorf("sample %d: the page has %q", i, found)
			}
		}
		for _, must := range []string{`<html lang="en">`, `<meta charset="utf-8">`, `name="viewport"`, `content="noindex"`, `content="light dark"`, `prefers-color-scheme:dark`, "<main>"} {
			if !strings.Contains(page, must) {
				t.Errorf("sample %d: the page lacks %s", i, must)
			}
		}
		if n := strings.Count(page, "<h1>"); n != 1 {
			t.Errorf("sample %d: %d headings of the first order", i, n)
		}
		if err := wellFormed(page); err != nil {
			t.Errorf("sample %d: %v", i, err)
		}
	}
}

// wellFormed tells whether every tag that is opened is closed, in its order.
func wellFormed(page string) error {
	page = regexp.MustCompile(`<(meta|br)([^>]*)>`).ReplaceAllString(strings.TrimPrefix(page, "<!doctype html>"), "<$1$2/>")
	d := xml.NewDecoder(strings.NewReader(page))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Both schemes define the same colours, and text keeps a contrast of 4.5 to 1
// on what it stands on.
func TestColours(t *testing.T) {
	v := one()
	page := string(waiting.Builtin().Render(nil, &v))
	schemes := regexp.MustCompile(`:root{([^}]*)}`).FindAllStringSubmatch(page, -1)
	if len(schemes) != 2 {
		t.Fatalf("%d schemes, want light and dark", len(schemes))
	}
	for i, scheme := range schemes {
		colours := map[string]float64{}
		for _, m := range regexp.MustCompile(`--vr-(\w+):#([0-9a-f]{3,6})`).FindAllStringSubmatch(scheme[1], -1) {
			colours[m[1]] = luminance(t, m[2])
		}
		for _, text := range []string{"text", "muted"} {
			for _, ground := range []string{"bg", "card"} {
				a, b := colours[text]+0.05, colours[ground]+0.05
				if ratio := max(a, b) / min(a, b); ratio < 4.5 || len(colours) != 6 {
					t.Errorf("scheme %d: %s on %s has a contrast of %.1f", i, text, ground, ratio)
				}
			}
		}
	}
}

func TestBuiltinRendersWithoutAllocating(t *testing.T) {
	v := one()
	dst := make([]byte, 0, 1<<14)
	if n := testing.AllocsPerRun(100, func() { dst = waiting.Builtin().Render(dst[:0], &v) }); n > 0 {
		t.Errorf("%v allocations per page", n)
	}
}

func BenchmarkRender(b *testing.B) {
	v := one()
	dst := make([]byte, 0, 1<<14)
	b.ReportAllocs()
	for b.Loop() {
		dst = waiting.Builtin().Render(dst[:0], &v)
	}
}
