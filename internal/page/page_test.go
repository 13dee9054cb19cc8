package page_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/page"
	"vestibule/internal/page/checkpage"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// one is a typical visitor: some visitors in front, an estimate with a range.
func one() page.Visitor { return page.Samples[0].Visitor }

// sample returns the sample called name.
func sample(t testing.TB, name string) page.Visitor {
	t.Helper()
	for _, s := range page.Samples {
		if s.Name == name {
			return s.Visitor
		}
	}
	t.Fatalf("no sample %q", name)
	return page.Visitor{}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *rewrite {
		testkit.NoError(t, os.WriteFile(file, got, 0o600))
	}
	want := testkit.Must(os.ReadFile(file))(t)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("run with -rewrite if this is meant (-golden +ours):\n%s", diff)
	}
}

// body returns the page without the parts common to all pages: styles, words and scripts.
func body(shown []byte) []byte {
	shown = regexp.MustCompile(`(?s)<style>.*?</style>`).ReplaceAll(shown, []byte("<style></style>"))
	shown = regexp.MustCompile(`(?s)<script>.*?</script>`).ReplaceAll(shown, []byte("<script></script>"))
	return regexp.MustCompile(`(?s)(id=words>).*?</script>`).ReplaceAll(shown, []byte("$1</script>"))
}

func TestThePageIsGolden(t *testing.T) {
	v := one()
	golden(t, "testdata/page.golden.html", body(page.Builtin().Render(nil, &v)))
}

// The documented JSON fields equal the template variables, for any method and event.
func TestTheJSONHasTheVariablesOfTemplates(t *testing.T) {
	for _, method := range []string{"", room.MethodFIFO, "random", room.MethodPassthrough, room.MethodReject} {
		for name, event := range map[string]page.Event{
			"none": {}, "gathering": {Start: one().Now.Add(time.Hour), End: one().Now.Add(3 * time.Hour), Prequeue: true},
			"on":       {Start: one().Now.Add(-time.Hour), End: one().Now.Add(time.Hour), Shuffle: true},
			"no start": {End: one().Now.Add(time.Hour)},
		} {
			v := one()
			v.Method, v.Event = method, event
			var answer struct {
				Fields map[string]any `json:"cfWaitingRoom"`
			}
			testkit.NoError(t, json.Unmarshal(page.AppendJSON(nil, &v), &answer))
			values := page.Values(&v)
			for field, got := range answer.Fields {
				if n, ok := got.(float64); ok {
					got = int64(n)
				}
				if want := values[field]; got != want {
					t.Errorf("%q, event %s: %s is %v, want %v", method, name, field, got, want)
				}
			}
			if len(answer.Fields) != 25 {
				t.Errorf("%q, event %s: %d fields", method, name, len(answer.Fields))
			}
		}
	}
}

func TestTheJSONIsGolden(t *testing.T) {
	v := one()
	var indented bytes.Buffer
	testkit.NoError(t, json.Indent(&indented, page.AppendJSON(nil, &v), "", "  "))
	golden(t, "testdata/page.golden.json", indented.Bytes())
}

// The page's script starts with what it is told later: the list in the page, with the names in the script, is the JSON
// form.
func TestThePageHasTheJSON(t *testing.T) {
	list := regexp.MustCompile(`(?s)id=now>(.*?)</script>`)
	names := regexp.MustCompile(`"(state pausedBy [A-Za-z ]*)"\.split`)
	for _, s := range page.Samples {
		shown := page.Builtin().Render(nil, &s.Visitor)
		var values []any
		testkit.NoError(t, json.Unmarshal(list.FindSubmatch(shown)[1], &values))
		got, ok := values[len(values)-1].(map[string]any)
		script, _ := page.ScriptAt(page.ScriptPath())
		fields := strings.Fields(names.FindStringSubmatch(script.Text)[1])
		if !ok || len(fields) != len(values)-1 {
			t.Fatalf("%s: %d values, %d names", s.Name, len(values)-1, len(fields))
		}
		for i, name := range fields {
			got[name] = values[i]
		}
		var want struct {
			Vestibule map[string]any `json:"vestibule"`
		}
		testkit.NoError(t, json.Unmarshal(page.AppendJSON(nil, &s.Visitor), &want))
		if diff := cmp.Diff(want.Vestibule, got); diff != "" {
			t.Errorf("%s: (-JSON +page):\n%s", s.Name, diff)
		}
	}
}

func TestWhatVisitorsSee(t *testing.T) {
	for _, tc := range []struct {
		sample string
		change func(*page.Visitor)
		says   []string
		not    []string
	}{
		{"queued", nil, []string{
			"<title>(1,234) You are in line</title>", ">You are in line</h1>", `id=ahead>1,234<`, "id=wait>8–\u206011 minutes<",
			`id=total>20,000<`,
			`<dd id=joined>16:26 UTC</div>`, `<dd id=updated>16:33:20 UTC</div>`,
			`id=kept>5 minutes<`, `content="20"`, "in the order of arrival", `data-state=queued data-bar="39"`,
			`id=waited>6 minutes<`,
			`<p id=lost></p>`, `action="/.well-known/vestibule/leave?room=sale"`,
		}, []string{"drawn at random.</p>"}},
		{"queued", func(v *page.Visitor) { v.Decision.Low, v.Decision.High = 0, 0 }, []string{`id=wait>10 minutes<`}, nil},
		{"queued", func(v *page.Visitor) { v.Decision.Low = v.Decision.High }, []string{`id=wait>11 minutes<`}, nil},
		{"queued-unknown", nil, []string{`id=wait>Not known yet<`, `data-bar=""`}, nil},
		{"queued-random", nil, []string{
			"<title>You are in line</title>", "drawn at random.</p>",
			"id=wait>25% wait at most 5 minutes\n50% wait at most 10 minutes\n75% wait at most 20 minutes<",
			`data-bar="" data-order=random`, `"waitTimePercentileSeconds":[250,600,1200]`,
		}, []string{"order of arrival.</p>"}},
		{
			"queued-random", func(v *page.Visitor) { v.Decision.Known = false },
			[]string{`id=wait>Not known yet<`},
			[]string{"waitTimePercentileSeconds\":["},
		},
		{"queued-million", nil, []string{`id=ahead>1,234,567<`, `id=wait>More than a day<`}, nil},
		{"queued-message", func(v *page.Visitor) { v.Message = `</p><script>alert("1")</script> & 'so'` }, []string{
			`>&lt;/p&gt;&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt; &amp; &#39;so&#39;</p>`,
			`"message":"\u003c/p\u003e\u003cscript\u003ealert(\"1\")`,
		}, []string{`<script>alert`}},
		{"next", nil, []string{
			"<title>You are next</title>", ">You are next</h1>", `id=wait>Any moment now<`,
			"as soon as there is room", `content="2"`,
		}, nil},
		// before the regional has counted anybody
		{"next", func(v *page.Visitor) { v.Decision.Waiting = 0 }, []string{`id=total>1<`}, nil},
		{"entering", nil, []string{">It is your turn</h1>", "The site is opening."}, nil},
		{
			"paused-system", nil,
			[]string{">The line is paused</h1>", "Nobody can be let in at the moment. Your place is kept"},
			nil,
		},
		{"paused-operator", nil, []string{"The organiser has paused the line.", "We let the next people in at 17:00."}, nil},
		{"paused-site", nil, []string{"The site has a problem"}, nil},
		{
			"paused-system", func(v *page.Visitor) { v.Decision.Ahead = 0 },
			[]string{">The line is paused</h1>"},
			[]string{">You are next</h1>"},
		},
		{"closed", nil, []string{">The line is closed</h1>", `http-equiv="refresh"`}, nil},
		{"rejected", nil, []string{">The line is closed</h1>", `http-equiv="refresh"`}, nil},
		{"queued", func(v *page.Visitor) { // in line before the room rejected
			v.Method, v.Decision.Reason, v.Decision.Fresh = room.MethodReject, admission.Rejected, admission.Kept
		}, []string{">The line is paused</h1>", "Your place is kept.", `id=ahead>1,234<`, `"peopleAhead":1234,`}, nil},
		{"draw-placed", nil, []string{
			"<dd id=place>≈\u00a057/290</div>", ">Your place was drawn by lot.</p>",
			`"place":57,"entrants":290`, "This draw can be checked</summary>",
			`download="draw.json" href="data:application/json,%7B%22commit%22:%227f83b1657ff1`,
		}, nil},
		{
			"draw-placed", func(v *page.Visitor) { v.Event.Draw.Counted, v.Decision.Ticket.Forecast = v.Now+1, 0 },
			[]string{`<div class=s hidden>`, `"peopleAhead":-1`},
			[]string{"57/"},
		},
		{"before", nil, []string{
			"id=kept>5 minutes<", "id=number>482-177-301<", ">It has not started yet</h1>",
			`id=starts>4 minutes<`, "puts you in line by itself",
		}, nil},
		{"before", func(v *page.Visitor) { v.Event.Start = v.Now.Add(50 * time.Hour) }, []string{`id=starts>2 days<`}, nil},
		{"before-draw", nil, []string{
			"<div><dt>The draw closes at<dd id=closes>16:37 UTC</div>", "id=kept>5 minutes<",
			"id=number>482-177-301<", `id=ahead>–<`, `"peopleAhead":-1,`,
			`<code id="proof">{&#34;commit&#34;:&#34;7f83b1657ff1`,
		}, []string{"1,234", "1234"}},
		{
			"moment", nil,
			[]string{"The waiting room needs a moment."},
			[]string{"cannot be reached at the moment. This page keeps trying.</p>"},
		},
		{"queued", nil, []string{`id=number>482-177-301<`, `"number":"482-177-301"`}, nil},
		{
			"draw-making", nil,
			[]string{"<div hidden><dt>The draw closes at<", `id=ahead>–<`, `"peopleAhead":-1,`},
			[]string{"1,234", "1234"},
		},
		{"draw-late", nil, []string{`id=ahead>1,234<`, `"peopleAhead":1234,`}, nil},
		{"left", nil, []string{">You have left the line</h1>", `<a href="/">Join again</a>`}, []string{`http-equiv="refresh"`}},
		{"left", func(v *page.Visitor) { v.Back = `/sale"><b>` }, []string{`<a href="/sale&#34;&gt;&lt;b&gt;">`}, nil},
		{"lost-expired", nil, []string{`<p id=lost>Your earlier visit has ended`}, nil},
		{"lost-away", nil, []string{`<p id=lost>You were away for too long`}, nil},
		{"lost-void", nil, []string{`<p id=lost>The line was started anew`}, nil},
	} {
		v := sample(t, tc.sample)
		if tc.change != nil {
			tc.change(&v)
		}
		shown := string(page.AppendJSON(page.Builtin().Render(nil, &v), &v))
		for _, text := range tc.says {
			if !strings.Contains(shown, text) {
				t.Errorf("%s: the page does not say %q", tc.sample, text)
			}
		}
		for _, text := range tc.not {
			if strings.Contains(shown, text) {
				t.Errorf("%s: the page says %q", tc.sample, text)
			}
		}
	}
}

// An estimate is shown with its precision.
func TestEstimates(t *testing.T) {
	for _, tc := range []struct {
		wait, low, high time.Duration
		want            string
	}{
		{44 * time.Second, 0, 0, "Less than a minute"},
		{45 * time.Second, 0, 0, "1 minute"},
		{89 * time.Second, 0, 0, "1 minute"},
		{90 * time.Second, 0, 0, "2 minutes"},
		{119*time.Minute + 40*time.Second, 0, 0, "120 minutes"},
		{150 * time.Minute, 0, 0, "3 hours"},
		{24 * time.Hour, 0, 0, "More than a day"},
		{30 * time.Second, 10 * time.Second, 40 * time.Second, "Less than a minute"},
		{50 * time.Second, 40 * time.Second, 59 * time.Second, "Less than a minute"},
		{50 * time.Second, 40 * time.Second, time.Minute, "1 minute"},
		{time.Minute, 30 * time.Second, 100 * time.Second, "1–\u20602 minutes"},
		{10 * time.Minute, 8*time.Minute + 50*time.Second, 10*time.Minute + 10*time.Second, "8–\u206011 minutes"},
		{100 * time.Minute, 80 * time.Minute, 130 * time.Minute, "1–\u20603 hours"},
		{20 * time.Hour, 15 * time.Hour, 30 * time.Hour, "15–\u206030 hours"},
	} {
		v := one()
		v.Decision.Wait, v.Decision.Low, v.Decision.High = tc.wait, tc.low, tc.high
		if shown := string(page.Builtin().Render(nil, &v)); !strings.Contains(shown, `id=wait>`+tc.want+"<") {
			t.Errorf("%v (%v to %v): the page does not say %q", tc.wait, tc.low, tc.high, tc.want)
		}
	}
}

// Every page, in every state and language, is small, well formed, and fetches its script and nothing else; its styles
// are those of its policy.
func TestEveryPageStandsByItself(t *testing.T) {
	never := regexp.MustCompile(`(?i)\bon[a-z]+\s*=\s*"|javascript:|\ssrc\s*=|url\(|@import|https?://|<(iframe|object|embed|link|base|img)|{{|\sstyle\s*=`)
	inline := regexp.MustCompile(`(?s)<(?:script|style)>(.*?)</(?:script|style)>`)
	file := regexp.MustCompile(`<script src="` + regexp.QuoteMeta(page.ScriptPath()) + `" data-cfasync="false"></script>`)
	data := regexp.MustCompile(`(?s)<script type="application/json" id=(?:words|now)>(.*?)</script>`)
	heaviest, heaviestZipped := map[bool]int{}, map[bool]int{} // with the proof of a draw or without, with the script
	script, _ := page.ScriptAt(page.ScriptPath())
	var packer page.Packer
	var zipped []byte
	looked := map[string]bool{} // styles and scripts, which are common to all pages
	policy := page.Builtin().Policy("", "")
	for _, s := range page.Samples {
		for lang := range room.Languages {
			v := s.Visitor
			v.Lang = page.Lang(lang)
			shown := page.Builtin().Render(nil, &v)
			name := s.Name + " in " + v.Lang.Code()
			zipped = page.Builtin().RenderGzip(zipped[:0], &v, &packer)
			const noIcon = `<link rel="icon" href="data:,">` // otherwise browsers request one, and queue for it
			if strings.Count(string(shown), noIcon) != 1 {
				t.Errorf("%s: browsers will ask for an icon", name)
			}
			proof := strings.Contains(string(shown), "id=\"proof\"")
			heaviest[proof] = max(heaviest[proof], len(shown)+len(script.Text))
			heaviestZipped[proof] = max(heaviestZipped[proof], len(zipped)+len(script.Gzip()))
			rest := strings.Replace(string(shown), noIcon, "", 1)
			if len(file.FindAllString(rest, -1)) != 1 {
				t.Errorf("%s: the page has no script", name)
			}
			rest = file.ReplaceAllString(rest, "")
			for _, m := range inline.FindAllSubmatch(shown, -1) {
				rest = strings.Replace(rest, string(m[1]), "", 1)
				if looked[string(m[1])] {
					continue
				}
				looked[string(m[1])] = true
				sum := sha256.Sum256(m[1])
				if !strings.Contains(policy, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
					t.Errorf("%s: the policy forbids %.40q", name, m[1])
				}
				if found := never.Find(m[1]); found != nil {
					t.Errorf("%s: %.40q has %q", name, m[1], found)
				}
			}
			if found := never.FindString(rest); found != "" {
				t.Errorf("%s: the page has %q", name, found)
			}
			for _, must := range []string{
				`<html lang="` + v.Lang.Code() + `" dir="` + v.Lang.Dir() + `">`,
				`<meta charset="utf-8">`, `name="viewport"`, `content="noindex"`, `content="light dark"`, "<main ",
			} {
				if !strings.Contains(string(shown), must) {
					t.Errorf("%s: the page lacks %s", name, must)
				}
			}
			if n := strings.Count(string(shown), "<h1 "); n != 1 {
				t.Errorf("%s: %d headings of the first order", name, n)
			}
			if err := wellFormed(rest); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			blocks := data.FindAllStringSubmatch(rest, -1)
			if len(blocks) != 2 || !json.Valid([]byte(blocks[0][1])) || !json.Valid([]byte(blocks[1][1])) {
				t.Errorf("%s: the data for the script is not JSON", name)
			}
		}
	}
	for proof, most := range map[bool]int{false: 10 << 10, true: 12 << 10} {
		t.Logf("with the proof of a draw %v: at most %d bytes, %d zipped", proof, heaviest[proof], heaviestZipped[proof])
		if heaviest[proof] > 30_000 || heaviestZipped[proof] > most {
			t.Errorf("with the proof of a draw %v: %d bytes, %d zipped: at most 30,000 and %d are light", proof, heaviest[proof],
				heaviestZipped[proof], most)
		}
	}
}

var (
	scripts = regexp.MustCompile(`(?s)<(script|style)[^>]*>.*?</(script|style)>`)
	voids   = regexp.MustCompile(`<(meta|link|br)([^>]*)>`)
)

// wellFormed checks that every opened tag is closed, in order.
var (
	unquoted = regexp.MustCompile(` (id|class|role|dir|max|method|aria-[a-z]+|data-[a-z]+)=([^"\s>]+)`)
	terms    = regexp.MustCompile(`(?s)<dt>([^<]*)<dd([^>]*>[^<]*)</div>`)
)

func wellFormed(shown string) error {
	shown = scripts.ReplaceAllString(shown, "")
	// What HTML allows to omit.
	shown = unquoted.ReplaceAllString(shown, ` $1="$2"`)
	shown = terms.ReplaceAllString(strings.ReplaceAll(shown, "<body>", "</head><body>"),
		"<dt>$1</dt><dd$2</dd></div>") + "</body></html>"
	shown = voids.ReplaceAllString(strings.TrimPrefix(shown, "<!doctype html>"), "<$1$2/>")
	d := xml.NewDecoder(strings.NewReader(strings.ReplaceAll(shown, " hidden>", ` hidden="">`)))
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

// All colour schemes define the same colours. Text has a contrast of 4.5 to 1 with its background, 7 to 1 with
// prefers-contrast; graphics have 3 to 1.
func TestColours(t *testing.T) {
	v := one()
	shown := string(page.Builtin().Render(nil, &v))
	schemes := regexp.MustCompile(`(?s):root{([^}]*)}`).FindAllStringSubmatch(shown, -1)
	if len(schemes) != 4 {
		t.Fatalf("%d schemes, want light and dark, and both with more contrast", len(schemes))
	}
	for i, scheme := range schemes {
		colours := map[string]float64{}
		for _, m := range regexp.MustCompile(`--vr-(\w+):#([0-9a-f]{3,6})`).FindAllStringSubmatch(scheme[1], -1) {
			colours[m[1]] = luminance(t, m[2])
		}
		if len(colours) != 6 {
			t.Errorf("scheme %d has %d colours", i, len(colours))
		}
		least := 4.5
		if i >= 2 {
			least = 7
		}
		for _, pair := range []struct {
			front, ground string
			least         float64
		}{
			{"text", "bg", least},
			{"text", "card", least},
			{"muted", "bg", least},
			{"muted", "card", least},
			{"card", "accent", 4.5},
			{"accent", "line", 3},
			{"accent", "card", 3},
			{"accent", "bg", 3},
		} {
			a, b := colours[pair.front]+0.05, colours[pair.ground]+0.05
			if ratio := max(a, b) / min(a, b); ratio < pair.least {
				t.Errorf("scheme %d: %s on %s has a contrast of %.1f, want %.1f", i, pair.front, pair.ground, ratio, pair.least)
			}
		}
	}
}

// A few lines of CSS brand the built-in page, and the policy allows them.
func TestBranding(t *testing.T) {
	const style = ":root{--vr-accent:#0a7d4f;\r\n" +
		"  --vr-logo:url(data:image/svg+xml,%3Csvg/%3E);--vr-logo-display:block}\r\n/* { } */ h1::after{content:\"}\"}\n"
	testkit.Must(checkpage.Check([]byte(style)))(t)
	p := testkit.Must(page.Custom([]byte(style)))(t)
	v := one()
	shown := string(p.Render(nil, &v))
	m := regexp.MustCompile(`(?s)</script>\n<style>(.*?)</style>`).FindStringSubmatch(shown)
	if p.IsCustom() || m == nil || !strings.Contains(m[1], "#0a7d4f") || strings.Contains(m[1], "\r") {
		t.Fatalf("the page is not branded: %q", m)
	}
	sum := sha256.Sum256([]byte(m[1]))
	if !strings.Contains(p.Policy("", ""), base64.StdEncoding.EncodeToString(sum[:])) {
		t.Errorf("the policy %s forbids the style", p.Policy("", ""))
	}
	for text, want := range map[string]string{
		":root{--vr-bg:#fff":                    `line 1: '{' is not closed`,
		"a{}\n}":                                `line 2: '}' closes nothing`,
		"a{b:url( 'https://x.test/y')}":         "must be a data: URL",
		"@import 'x.css';a{}":                   "@import is not possible",
		"a{content:'x}":                         "text in quotes is not closed",
		"a{}/* x":                               "comment is not closed",
		"Be patient.":                           "there is no rule in it",
		strings.Repeat("a{}", page.MaxPage/3+1): "at most",
	} {
		if _, err := page.Custom([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error %v, want one that says %q", text, err, want)
		}
	}
}

func TestBuiltinRendersWithoutAllocating(t *testing.T) {
	dst := make([]byte, 0, 1<<15)
	for _, s := range page.Samples {
		if n := testing.AllocsPerRun(100, func() { dst = page.Builtin().Render(dst[:0], &s.Visitor) }); n > 0 {
			t.Errorf("%s: %v allocations per page", s.Name, n)
		}
	}
}

// Times have the format of the standard library.
func TestTimes(t *testing.T) {
	v := one()
	chance := rand.New(rand.NewPCG(1, 2))
	times := []time.Time{time.Unix(0, 0), time.UnixMilli(253402300799_999), time.UnixMilli(253402300800_000)}
	for _, date := range []string{
		"2000-02-28", "2000-02-29", "2000-03-01", "2024-02-29", "2024-12-31", "2025-01-01",
		"2100-02-28", "2100-03-01",
	} {
		at := testkit.Must(time.Parse(time.DateOnly, date))(t)
		times = append(times, at, at.Add(24*time.Hour-time.Millisecond))
	}
	for range 2000 {
		times = append(times, time.UnixMilli(chance.Int64N(253402300800_000)))
	}
	var data, shown []byte
	for _, at := range times {
		at = at.UTC()
		v.Now = fleettime.TimeOf(at)
		v.Decision.Ticket.Joined = v.Now
		data = page.AppendJSON(data[:0], &v)
		short := at.Truncate(time.Second).Format(time.RFC3339)
		long := strings.TrimSuffix(short, "Z") + at.Format(".000Z")
		for _, want := range []string{
			`"lastUpdated":"` + short + `"`, `"joinedAt":"` + long + `"`,
			`"updatedAt":"` + long + `"`,
		} {
			if !bytes.Contains(data, []byte(want)) {
				t.Fatalf("no %s in %s", want, data)
			}
		}
		shown = page.Builtin().Render(shown[:0], &v)
		for _, want := range []string{
			`<dd id=joined>` + at.Format("15:04 UTC"),
			`<dd id=updated>` + at.Format("15:04:05 UTC"),
		} {
			if !bytes.Contains(shown, []byte(want)) {
				t.Fatalf("no %s", want)
			}
		}
	}
}

func BenchmarkRenderPage(b *testing.B) {
	v := one()
	dst := make([]byte, 0, 1<<15)
	b.ReportAllocs()
	for b.Loop() {
		dst = page.Builtin().Render(dst[:0], &v)
	}
}

// BenchmarkHeaviestPage renders all states in all languages.
func BenchmarkHeaviestPage(b *testing.B) {
	plain, zipped := 0, 0
	var packer page.Packer
	for b.Loop() {
		for lang := range room.Languages {
			for _, s := range page.Samples {
				s.Lang = page.Lang(lang)
				plain = max(plain, len(page.Builtin().Render(nil, &s.Visitor)))
				zipped = max(zipped, len(page.Builtin().RenderGzip(nil, &s.Visitor, &packer)))
			}
		}
	}
	b.ReportMetric(float64(plain), "B/page")
	b.ReportMetric(float64(zipped), "gzip-B/page")
}

func BenchmarkRenderJSON(b *testing.B) {
	v := one()
	dst := make([]byte, 0, 1<<15)
	b.ReportAllocs()
	for b.Loop() {
		dst = page.AppendJSON(dst[:0], &v)
	}
}

// TestUnknownIsNeverANumber: while visitors are being counted, in whatever state, and for visitors without a place, no
// answer has a number of visitors: not the page, its JSON or a custom page. The number in the decision counts those
// that were heard of so far.
func TestUnknownIsNeverANumber(t *testing.T) {
	for _, s := range page.Samples {
		v := s.Visitor
		v.Decision.Counting, v.Decision.Known, v.Decision.Next = true, false, false
		v.Decision.Ahead, v.Decision.Waiting, v.Decision.Wait, v.Decision.Low, v.Decision.High = 7654321, 7654321, 0, 0, 0
		if v.Decision.Enters() {
			continue
		}
		html, data := string(page.Builtin().Render(nil, &v)), string(page.AppendJSON(nil, &v))
		for _, text := range []string{html, data} {
			if strings.Contains(text, "7654321") || strings.Contains(text, "7,654,321") || strings.Contains(text, "7654322") ||
				strings.Contains(text, "7,654,322") {
				t.Errorf("%s: an unknown number is shown: %s", s.Name, text)
			}
		}
		for _, field := range []string{`"peopleAhead":-1,`, `"peopleWaiting":-1,`} {
			if !strings.Contains(data, field) {
				t.Errorf("%s: JSON lacks %s: %s", s.Name, field, data)
			}
		}
		values := page.Values(&v)
		if values["peopleAhead"] != "" || values["peopleWaiting"] != "" {
			t.Errorf("%s: a custom page gets %v and %v", s.Name, values["peopleAhead"], values["peopleWaiting"])
		}
	}
}
