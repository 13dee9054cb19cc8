package page_test

import (
	"strings"
	"testing"

	"github.com/cbroglie/mustache"

	"vestibule/internal/lab/testkit"
	"vestibule/internal/page"
	"vestibule/internal/page/checkpage"
)

func TestCustomPages(t *testing.T) {
	v := &page.Samples[0].Visitor
	for _, tc := range []struct{ name, page, want string }{
		{"a variable", "{{peopleAhead}} ahead, {{ waitTime }} min", "1234 ahead, 10 min"},
		{
			"escaped and raw", "{{waitTimeFormatted}} {{{waitTimeFormatted}}} {{&waitTimeFormatted}}",
			"10 minutes 10 minutes 10 minutes",
		},
		{"a section", "{{#waitTimeKnown}}yes{{/waitTimeKnown}}{{^waitTimeKnown}}no{{/waitTimeKnown}}", "yes"},
		{"nested", "{{#isFIFOQueue}}a{{#queueAll}}b{{/queueAll}}{{^queueAll}}c{{/queueAll}}{{/isFIFOQueue}}", "ac"},
		{
			"a zero is false",
			"{{#timeUntilEventStart}}x{{/timeUntilEventStart}}{{^timeUntilEventStart}}none{{/timeUntilEventStart}}", "none",
		},
		{"blank text is false", "{{#turnstile}}x{{/turnstile}}", ""},
		{"comments and lines of their own", "a\n  {{! gone }}\n{{#inWaitingRoom}}\nb\n{{/inWaitingRoom}}\nc", "a\nb\nc"},
		{"two tags on a line", "{{#queueAll}} {{/queueAll}}\nx", "\nx"},
		{"Windows line ends", "{{#inWaitingRoom}}\r\nb\r\n{{/inWaitingRoom}}\r\n", "b\r\n"},
	} {
		if _, err := checkpage.Check([]byte(tc.page)); err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		p := testkit.Must(page.Custom([]byte(tc.page)))(t)
		if got := string(p.Render(nil, v)); got != tc.want {
			t.Errorf("%s: rendered %q, want %q", tc.name, got, tc.want)
		}
	}
}

// Every variable shows the same wait for a visitor that is next.
func TestAShortWaitIsOneMinute(t *testing.T) {
	p, err := page.Custom([]byte("{{waitTime}}, {{waitTimeHours}}:{{waitTimeHourMinutes}}, {{waitTimeFormatted}}<br>"))
	testkit.NoError(t, err)
	v := page.Samples[0].Visitor
	v.Decision.Next, v.Decision.Wait = true, 0
	if got, want := string(p.Render(nil, &v)), "1, 0:1, 1 minute<br>"; got != want {
		t.Errorf("rendered %q, want %q", got, want)
	}
	v.Decision.Known = false
	if got, want := string(p.Render(nil, &v)), "0, 0:0, unavailable<br>"; got != want {
		t.Errorf("rendered %q, want %q", got, want)
	}
}

// The page's own scripts get the nonce of the policy, at any position; nothing else does.
func TestScriptsOfCustomPagesGetTheNonce(t *testing.T) {
	const text = "<script src=\"https://x.test/a.js\"></script><SCRIPT>if (1<2) {{#queueAll}}<script\n>{{/queueAll}}</SCRIPT><scripty {{! <script> }}<script"
	p := testkit.Must(page.Custom([]byte(text)))(t)
	v := page.Samples[0].Visitor
	v.QueueAll, v.Nonce = true, "n0-nce"
	const want = "<script nonce=n0-nce src=\"https://x.test/a.js\"></script><SCRIPT nonce=n0-nce>if (1<2) <script nonce=n0-nce\n></SCRIPT><scripty <script"
	if got := string(p.Render(nil, &v)); got != want {
		t.Errorf("rendered %q, want %q", got, want)
	}
	if policy := p.Policy(v.Nonce, ""); !p.IsCustom() || !strings.Contains(policy, "script-src 'nonce-n0-nce'") ||
		!strings.HasPrefix(policy, "default-src 'none'") {
		t.Errorf("policy %q", policy)
	}
}

func TestBrokenPagesAreRefusedWithEveryFault(t *testing.T) {
	for _, tc := range []struct {
		name, page string
		want       []string
	}{
		{"a section left open", "a\n{{#queueAll}}", []string{"line 2: section {{#queueAll}} is not closed"}},
		{
			"sections that cross", "{{#queueAll}}{{^inWaitingRoom}}{{/queueAll}}{{/inWaitingRoom}}",
			[]string{"{{/queueAll}} closes nothing"},
		},
		{"a tag left open", "{{queueAll", []string{"line 1: tag is not closed"}},
		{"an empty tag", "{{ }}", []string{"empty"}},
		{"a partial", "{{>header}}", []string{"partials are not supported"}},
		{"other delimiters", "{{=<% %>=}}", []string{"delimiters"}},
		{"too deep", strings.Repeat("{{#queueAll}}", 40) + strings.Repeat("{{/queueAll}}", 40), []string{"deep"}},
		{"too large", strings.Repeat("x", page.MaxPage+1), []string{"at most"}},
	} {
		_, err := checkpage.Check([]byte(tc.page))
		for _, want := range tc.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want one that says %q", tc.name, err, want)
			}
		}
	}
}

// A misspelt variable stays empty, as in any Mustache, with a warning; so does content that the page's policy
// blocks.
func TestDoubtsAboutAPage(t *testing.T) {
	for _, tc := range []struct {
		name, page, shown string
		want              []string
	}{
		{
			"misspelt variables, on their lines",
			"{{peopleAhed}}\n\n{{#waitTimeNown}}x{{/waitTimeNown}}{{^zzz}}y{{/zzz}}{{{zzz}}}{{a.b}}", "\n\ny",
			[]string{
				"line 1: {{peopleAhed}}: no such variable, it stays empty, did you mean {{peopleAhead}}?",
				"line 3: {{waitTimeNown}}: no such variable, it stays empty, did you mean {{waitTimeKnown}}?",
				"line 3: {{zzz}}: no such variable, it stays empty", "line 3: {{zzz}}: no such variable, it stays empty",
				"line 3: {{a.b}}: no such variable, it stays empty",
			},
		},
		{
			"handlers in attributes",
			"<p>on click = 1</p>\n<button class=a\n" +
				" onClick = 'go()'>x</button><img src=x onerror=y()><a href=\"JavaScript:x()\">",
			"",
			[]string{"line 3: onclick does not run", "line 3: onerror does not run", "line 3: javascript: does not run"},
		},
		{
			"pictures that are not safe", "<b>http://x.test</b>\n<img src='http://x.test/a.png'><a href=http://x.test/>", "",
			[]string{"line 2: http://x.test/a.png is not loaded"},
		},
		{"nothing", "<script>document.body.onclick = f; if (1 < onx) {}</script><p title='on time'>{{peopleAhead}}", "", nil},
	} {
		doubts, err := checkpage.Check([]byte(tc.page))
		if err != nil || len(doubts) != len(tc.want) {
			t.Errorf("%s: %q %v, want %q", tc.name, doubts, err, tc.want)
			continue
		}
		for i, want := range tc.want {
			if !strings.HasPrefix(doubts[i], want) {
				t.Errorf("%s: %q, want %q", tc.name, doubts[i], want)
			}
		}
		shown := testkit.Must(page.Custom([]byte(tc.page)))(t)
		if got := string(shown.Render(nil, &page.Samples[0].Visitor)); tc.shown != "" && got != tc.shown {
			t.Errorf("%s: rendered %q, want %q", tc.name, got, tc.shown)
		}
	}
}

// Only the operator's page may use the origins of the room's setting.
func TestSourcesOfAPage(t *testing.T) {
	shown := testkit.Must(page.Custom([]byte("<script src=https://cdn.test/a.js></script>")))(t)
	policy := shown.Policy("n", "https://cdn.test https://api.test:8443")
	for _, want := range []string{
		"script-src 'nonce-n' https://cdn.test https://api.test:8443",
		"connect-src 'self' https://cdn.test https://api.test:8443;", "default-src 'none';",
	} {
		if !strings.Contains(policy, want) {
			t.Errorf("policy %s, want %s", policy, want)
		}
	}
	if policy := page.Builtin().Policy("", "https://cdn.test"); strings.Contains(policy, "cdn") {
		t.Errorf("the built-in page has %s", policy)
	}
}

// An accepted page renders like with a full Mustache library, with gzip and without.
func FuzzCustomPage(f *testing.F) {
	for _, s := range []string{
		"{{peopleAhead}}", "a {{#queueAll}}\n b{{/queueAll}}", "{{^queueAll}}x\n {{/queueAll}} \ny", "{{! c }}\n{{!d}}",
		"{{{waitTimeFormatted}}}\r\n", "\n {{#inWaitingRoom}} \n\n{{/inWaitingRoom}}\n",
	} {
		f.Add(s)
	}
	var out page.Packer
	f.Fuzz(func(t *testing.T, text string) {
		shown, err := page.Custom([]byte(text))
		if err != nil || !shown.IsCustom() {
			return
		}
		oracle, err := mustache.ParseString(text)
		if err != nil {
			return // checkpage rejects it
		}
		for i := range page.Samples {
			v := &page.Samples[i].Visitor
			want, err := oracle.Render(page.Values(v))
			if err != nil {
				return
			}
			if got := string(shown.Render(nil, v)); got != want {
				t.Fatalf("%q rendered as %q, the library says %q", text, got, want)
			}
			samePage(t, shown, v, &out, text)
		}
	})
}
