package waiting_test

import (
	"strings"
	"testing"

	"github.com/cbroglie/mustache"

	"vestibule/internal/waiting"
	"vestibule/internal/waiting/checkpage"
)

func TestCustomPages(t *testing.T) {
	v := &waiting.Samples[0].Visitor
	for _, tc := range []struct{ name, page, want string }{
		{"a variable", "{{peopleAhead}} ahead, {{ waitTime }} min", "1234 ahead, 10 min"},
		{"escaped and raw", "{{waitTimeFormatted}} {{{waitTimeFormatted}}} {{&waitTimeFormatted}}", "10 minutes 10 minutes 10 minutes"},
		{"a section", "{{#waitTimeKnown}}yes{{/waitTimeKnown}}{{^waitTimeKnown}}no{{/waitTimeKnown}}", "yes"},
		{"nested", "{{#isFIFOQueue}}a{{#queueAll}}b{{/queueAll}}{{^queueAll}}c{{/queueAll}}{{/isFIFOQueue}}", "ac"},
		{"a zero is false", "{{#timeUntilEventStart}}x{{/timeUntilEventStart}}{{^timeUntilEventStart}}none{{/timeUntilEventStart}}", "none"},
		{"blank text is false", "{{#turnstile}}x{{/turnstile}}", ""},
		{"comments and lines of their own", "a\n  {{! gone }}\n{{#inWaitingRoom}}\nb\n{{/inWaitingRoom}}\nc", "a\nb\nc"},
		{"two tags on a line", "{{#queueAll}} {{/queueAll}}\nx", "\nx"},
		{"Windows line ends", "{{#inWaitingRoom}}\r\nb\r\n{{/inWaitingRoom}}\r\n", "b\r\n"},
	} {
		if err := checkpage.Check([]byte(tc.page)); err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		p, err := waiting.Custom([]byte(tc.page))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(p.Render(nil, v)); got != tc.want {
			t.Errorf("%s: rendered %q, want %q", tc.name, got, tc.want)
		}
	}
}

// The scripts that a page calls itself get the nonce of the policy, wherever
// they stand; nothing else does.
func TestScriptsOfCustomPagesGetTheNonce(t *testing.T) {
	const text = "<script src=\"https://x.test/a.js\"></script><SCRIPT>if (1<2) {{#queueAll}}<script\n>{{/queueAll}}</SCRIPT><scripty {{! <script> }}<script"
	p, err := waiting.Custom([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	v := waiting.Samples[0].Visitor
	v.QueueAll, v.Nonce = true, "n0-nce"
	const want = "<script nonce=n0-nce src=\"https://x.test/a.js\"></script><SCRIPT nonce=n0-nce>if (1<2) <script nonce=n0-nce\n></SCRIPT><scripty <script"
	if got := string(p.Render(nil, &v)); got != want {
		t.Errorf("rendered %q, want %q", got, want)
	}
	if policy := p.Policy(v.Nonce); !p.IsCustom() || !strings.Contains(policy, "script-src 'nonce-n0-nce'") || !strings.HasPrefix(policy, "default-src 'none'") {
		t.Errorf("policy %q", policy)
	}
}

func TestBrokenPagesAreRefusedWithEveryFault(t *testing.T) {
	for _, tc := range []struct {
		name, page string
		want       []string
	}{
		{"misspelt variables, on their lines", "{{peopleAhed}}\n\n{{#waitTimeNown}}{{/waitTimeNown}}", []string{"line 1: {{peopleAhed}}", "line 3: {{waitTimeNown}}"}},
		{"a section left open", "a\n{{#queueAll}}", []string{"line 2: section {{#queueAll}} is not closed"}},
		{"sections that cross", "{{#queueAll}}{{^inWaitingRoom}}{{/queueAll}}{{/inWaitingRoom}}", []string{"{{/queueAll}} closes nothing"}},
		{"a tag left open", "{{queueAll", []string{"line 1: tag is not closed"}},
		{"an empty tag", "{{ }}", []string{"empty"}},
		{"a partial", "{{>header}}", []string{"partials are not supported"}},
		{"other delimiters", "{{=<% %>=}}", []string{"delimiters"}},
		{"too deep", strings.Repeat("{{#queueAll}}", 40) + strings.Repeat("{{/queueAll}}", 40), []string{"deep"}},
		{"too large", strings.Repeat("x", waiting.MaxPage+1), []string{"at most"}},
	} {
		err := checkpage.Check([]byte(tc.page))
		for _, want := range tc.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want one that says %q", tc.name, err, want)
			}
		}
	}
}

// What our renderer accepts it renders as a full Mustache library does.
func FuzzCustomPage(f *testing.F) {
	for _, s := range []string{
		"{{peopleAhead}}", "a {{#queueAll}}\n b{{/queueAll}}", "{{^queueAll}}x\n {{/queueAll}} \ny", "{{! c }}\n{{!d}}", "{{{waitTimeFormatted}}}\r\n", "\n {{#inWaitingRoom}} \n\n{{/inWaitingRoom}}\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		page, err := waiting.Custom([]byte(text))
		if err != nil || !page.IsCustom() {
			return
		}
		oracle, err := mustache.ParseString(text)
		if err != nil {
			return // checkpage refuses it
		}
		for i := range waiting.Samples {
			v := &waiting.Samples[i].Visitor
			want, err := oracle.Render(waiting.Values(v))
			if err != nil {
				return
			}
			if got := string(page.Render(nil, v)); got != want {
				t.Fatalf("%q rendered as %q, the library says %q", text, got, want)
			}
		}
	})
}
