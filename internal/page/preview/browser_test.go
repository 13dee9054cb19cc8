package preview

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/room"
	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/page"
)

// axe is the accessibility checker axe-core, with its licence next to it.
//
//go:embed testdata/axe.min.js
var axe string

// site is a waiting room simulated by a test.
type site struct {
	*Handler
	mu   sync.Mutex
	news func() []byte // the updates of pages, nil for their original sample
	down bool          // connections are cut
	in   bool          // visitors see the site

	asked int // number of polls
}

func (s *site) play(change func(*site)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	news, down, in := s.news, s.down, s.in
	if r.Header.Get("Vestibule-Poll") != "" {
		s.asked++
	}
	s.mu.Unlock()
	switch {
	case down:
		panic(http.ErrAbortHandler)
	case r.Header.Get("Vestibule-Poll") != "" && news != nil:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(news())
	case in && r.URL.Path != page.ScriptPath(): // an edge answers with the script also after the turn
		_, _ = w.Write([]byte("<!doctype html><title>The site</title><h1 class=in>The site</h1>"))
	default:
		s.Handler.ServeHTTP(w, r)
	}
}

func TestMain(m *testing.M) { os.Exit(browsertest.Main(m)) }

// open opens a browser and a waiting room that answers at url.
func open(t *testing.T) (ctx context.Context, s *site, url string) {
	t.Helper()
	s = &site{Handler: New("", "", slog.New(slog.DiscardHandler))}
	url = browsertest.Serve(t, s)
	return browsertest.Open(t), s, url
}

// media emulates preferences of the visitor.
func media(features ...string) chromedp.Action[cdp.Empty] {
	var list []*emulation.MediaFeature
	for i := 0; i < len(features); i += 2 {
		list = append(list, &emulation.MediaFeature{Name: features[i], Value: features[i+1]})
	}
	return func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: list})
	}
}

func scripts(off bool) chromedp.Action[cdp.Empty] {
	return func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled,
			emulation.SetScriptExecutionDisabledParams{Value: off})
	}
}

// atStart runs a script in every page before its own.
func atStart(script string) chromedp.Action[cdppage.AddScriptToEvaluateOnNewDocumentResult] {
	return func(ctx context.Context, target *chromedp.Target) (cdppage.AddScriptToEvaluateOnNewDocumentResult, error) {
		return cdp.Call(ctx, target, cdppage.AddScriptToEvaluateOnNewDocument,
			cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: script})
	}
}

var (
	do      = browsertest.Do
	shot    = browsertest.Shot
	waitFor = browsertest.WaitFor
)

// wide is wide enough for two columns, phone is a common phone.
func wide() chromedp.Action[chromedp.Void]  { return chromedp.EmulateViewport(1280, 800) }
func phone() chromedp.Action[chromedp.Void] { return chromedp.EmulateViewport(390, 844) }

// check runs axe-core on the open page, with all rules, including best practices.
func check(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	for _, v := range browsertest.Violations(t, ctx, axe) {
		t.Errorf("%s: %s", name, v)
	}
}

// Every state, in a real browser: the policy allows the page's script, which shows the same as the server, and
// axe-core finds nothing.
func TestStatesInABrowser(t *testing.T) {
	t.Parallel()
	ctx, s, url := open(t)
	do(t, ctx, wide())
	for _, sample := range page.Samples {
		do(t, ctx, chromedp.Navigate(url+"/"+sample.Name))
		if !browsertest.See(t, ctx, chromedp.Evaluate[bool](`window.vestibule === true`)) {
			t.Errorf("%s: the script does not run", sample.Name)
		}
		want := sample.State().String()
		if got := browsertest.See(t, ctx,
			chromedp.Evaluate[string](`document.getElementById("vr").dataset.state`)); got != want {
			t.Errorf("%s: the script shows %q, the server wrote %q", sample.Name, got, want)
		}
		check(t, ctx, sample.Name)
	}
	for _, look := range []struct {
		name, path string
		media      []string
	}{
		{"dark", "/queued-message", []string{"prefers-color-scheme", "dark"}},
		{"contrast", "/queued-message", []string{"prefers-contrast", "more"}},
		{"contrast-dark", "/lost-away", []string{"prefers-contrast", "more", "prefers-color-scheme", "dark"}},
		{"forced-colors", "/queued", []string{"forced-colors", "active"}},
		{"right-to-left", "/queued-message?lang=ar-EG", nil},
	} {
		browsertest.See(t, ctx, media(look.media...))
		do(t, ctx, chromedp.Navigate(url+look.path))
		check(t, ctx, look.name)
	}
	browsertest.See(t, ctx, media())

	do(t, ctx, chromedp.Navigate(url+"/queued"))
	s.play(func(s *site) { s.down = true })
	for range 2 {
		s.again(t, ctx)
	}
	waitFor(t, ctx, `document.getElementById("vr").dataset.state == "offline"`)
	check(t, ctx, "offline")

	browsertest.See(t, ctx,
		chromedp.Evaluate[bool](`document.querySelector("h1").outerHTML = '<p style="color:#ccc;background:#fff">Pale</p><button></button>', true`))
	if found := browsertest.Violations(t, ctx, axe); len(found) < 2 {
		t.Errorf("the checker misses what is wrong with a page: %v", found)
	}
}

// again makes the page poll, and waits for it. A page with a pending poll does not poll again, so it is repeated.
func (s *site) again(t *testing.T, ctx context.Context) {
	t.Helper()
	count := func() (n int) {
		s.play(func(s *site) { n = s.asked })
		return n
	}
	before := count()
	poll(t, "the page asks again", func() bool {
		browsertest.See(t, ctx, chromedp.Evaluate[bool](`dispatchEvent(new Event("online"))`))
		return count() > before
	})
}

var poll = testkit.Eventually

// The script writes the same text as the server, in every language: numbers, plural forms and durations come from
// two libraries.
func TestTheScriptWritesWhatTheServerWrote(t *testing.T) {
	t.Parallel()
	ctx, s, url := open(t)
	written := regexp.MustCompile(`id="?(head|text|lost|note|ahead|wait|starts|total|kept|number|place|proof)"?(?: [^>]*)?>([^<]*)<`)
	do(t, ctx, chromedp.Navigate(url+"/nothing")) // a page with frames: loading pages one by one takes much longer
	states := []string{"queued", "queued-message", "queued-million", "queued-random", "lost-away", "before", "draw-placed"}
	for _, lang := range room.Languages {
		shown := browsertest.See(t, ctx, chromedp.Evaluate[[]map[string]string](fmt.Sprintf(`document.body.replaceChildren(), Promise.all(%q.split(" ").map(state => new Promise(done => {
			const frame = document.createElement("iframe");
			frame.onload = () => done(Object.assign({script: String(frame.contentWindow.vestibule)},
				...[...frame.contentDocument.querySelectorAll("[id]")].map(e => ({[e.id]: e.textContent}))));
			frame.src = "/" + state + "?lang=%s";
			document.body.append(frame);
		})))`, strings.Join(states, " "), lang), chromedp.EvalAwaitPromise))
		for i, state := range states {
			_, _, page := ask(t, s.Handler, http.MethodGet, "/"+state+"?lang="+lang, "text/html")
			found := written.FindAllStringSubmatch(page, -1)
			if len(found) < 9 {
				t.Errorf("%s, %s: %d texts found in the page", lang, state, len(found))
			}
			for _, m := range found {
				if want := html.UnescapeString(m[2]); shown[i][m[1]] != want {
					t.Errorf("%s, %s: the script writes %s %q, the server wrote %q", lang, state, m[1], shown[i][m[1]], want)
				}
			}
			if shown[i]["script"] != "true" || shown[i]["head"] == "" {
				t.Errorf("%s, %s: the script did not run", lang, state)
			}
		}
	}
}

// Every language fits a narrow screen, with text of double size and without truncation, and the widest.
func TestEveryLanguageFits(t *testing.T) {
	t.Parallel()
	ctx, _, url := open(t)
	for _, lang := range room.Languages {
		for _, state := range []string{"queued-message", "paused-system"} {
			do(t, ctx, chromedp.EmulateViewport(320, 640), chromedp.Navigate(url+"/"+state+"?lang="+lang))
			for _, size := range []string{"", "200%"} {
				over := browsertest.See(t, ctx, chromedp.Evaluate[[]string](fmt.Sprintf(`document.documentElement.style.fontSize = %q;
					[...document.querySelectorAll("main, main *:not(#say)")].filter(e => e.getBoundingClientRect().right > innerWidth + .5 ||
						e.getBoundingClientRect().left < -.5 || e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display != "inline").map(e => e.id || e.className || e.tagName)`, size)))
				if len(over) > 0 {
					t.Errorf("%s, %s, text %s: %v do not fit", lang, state, size, over)
				}
			}
		}
	}
	// Numbers are not broken, and a printed page has no buttons.
	do(t, ctx, chromedp.EmulateViewport(320, 640))
	for _, state := range []string{"queued", "queued-million"} {
		for _, lang := range []string{"en-US", "de-DE", "fr-FR", "ar-EG"} {
			do(t, ctx, chromedp.Navigate(url+"/"+state+"?lang="+lang))
			broken := browsertest.See(t, ctx, chromedp.Evaluate[[]string](`document.documentElement.style.fontSize = "200%";
				["ahead", "wait", "total"].flatMap(id => {
					var text = document.getElementById(id).firstChild, range = document.createRange();
					return [...text.data.matchAll(/\p{Nd}[\p{Nd}\s.,٬–\u2060]*\p{Nd}/gu)].filter(m => {
						range.setStart(text, m.index);
						range.setEnd(text, m.index + m[0].length);
						return new Set([...range.getClientRects()].map(r => r.top)).size > 1;
					}).map(m => id + ": " + m[0]);
				})`))
			if len(broken) > 0 {
				t.Errorf("%s, %s: lines end in %q", state, lang, broken)
			}
		}
	}
	browsertest.See(t, ctx, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
	})
	if seen := browsertest.See(t, ctx,
		chromedp.Evaluate[[]string](`[...document.querySelectorAll("button, details, .l")].filter(e => e.offsetParent).map(e => e.id || e.tagName)`)); len(seen) > 0 {
		t.Errorf("on paper there is %v", seen)
	}
	browsertest.See(t, ctx, media())
	do(t, ctx, chromedp.EmulateViewport(3840, 2160), chromedp.Navigate(url+"/queued"))
	if size := browsertest.See(t, ctx,
		chromedp.Evaluate[float64](`parseFloat(getComputedStyle(document.documentElement).fontSize)`)); size < 22 ||
		size > 32 {
		t.Errorf("text of %v px on the widest screen", size)
	}
}

// The page without script has the same content, can be left, and reloads itself.
func TestWithoutScript(t *testing.T) {
	t.Parallel()
	ctx, s, url := open(t)
	browsertest.See(t, ctx, scripts(true))
	do(t, ctx, phone(), chromedp.Navigate(url+"/queued"))
	text := browsertest.See(t, ctx, chromedp.Text(chromedp.CSS("main")))
	for _, want := range []string{
		"You are in line", "1,234", "8–\u206011 minutes", "16:26 UTC", "16:33:20 UTC",
		"6 minutes", "5 minutes", "Leave the line",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %s", want, text)
		}
	}
	if strings.Contains(text, "Sound at my turn") {
		t.Error("the page offers what only a script can do")
	}
	do(t, ctx, chromedp.Click(chromedp.CSS("details.f summary")), chromedp.Click(chromedp.CSS("#leave button")),
		chromedp.WaitVisible(chromedp.CSS(".l a")))
	if title := browsertest.See(t, ctx, chromedp.Title()); title != "You have left the line" {
		t.Errorf("after leaving: %q", title)
	}
	// The page of a visitor that is next reloads after two seconds.
	do(t, ctx, chromedp.Navigate(url+"/next"))
	s.play(func(s *site) { s.in = true })
	do(t, ctx, chromedp.WaitVisible(chromedp.CSS("h1.in")))
}

// Updates change the page in place; screen readers announce only important changes; a lost connection is shown and
// restored; at the turn the page opens the site.
func TestNewsInABrowser(t *testing.T) {
	t.Parallel()
	ctx, s, url := open(t)
	do(t, ctx, phone(), chromedp.Navigate(url+"/queued"))
	text := func(id string) string {
		t.Helper()
		return browsertest.See(t, ctx, chromedp.Evaluate[string](fmt.Sprintf(`document.getElementById(%q).textContent`, id)))
	}
	hear := func(change func(*page.Visitor)) {
		t.Helper()
		v := page.Samples[0].Visitor
		change(&v)
		s.play(func(s *site) { s.news = func() []byte { return page.AppendJSON(nil, &v) } })
		s.again(t, ctx)
	}
	hear(func(v *page.Visitor) {
		v.Decision.Ahead, v.Decision.Low, v.Decision.High = 1200, 7*time.Minute, 9*time.Minute
	})
	waitFor(t, ctx, `document.title == "(1,200) You are in line"`)
	if text("wait") != "7–\u20609 minutes" || text("ahead") != "1,200" {
		t.Errorf("ahead %q, wait %q", text("ahead"), text("wait"))
	}
	if said := text("say"); said != "" {
		t.Errorf("read aloud although little changed: %q", said)
	}
	hear(func(v *page.Visitor) {
		v.Decision.Ahead, v.Message, v.Decision.High = 600, "<b>Soon</b>", 10*time.Minute
	})
	waitFor(t, ctx, `document.getElementById("ahead").textContent == "600"`)
	// The shown wait does not rise without an explanation.
	if said := text("say"); said != "You are in line. People ahead of you: 600. Estimated wait: 7–\u20609 minutes" {
		t.Errorf("read aloud: %q", said)
	}
	if got := text("note"); got != "<b>Soon</b>" {
		t.Errorf("the operator's message is %q", got)
	}
	hear(func(v *page.Visitor) {
		v.Decision.Ahead, v.Decision.Longer = 599, true
		v.Decision.Wait, v.Decision.Low, v.Decision.High = 20*time.Minute, 17*time.Minute, 24*time.Minute
	})
	waitFor(t, ctx, `document.getElementById("wait").textContent == "17–\u206024 minutes"`)
	if got, said := text("text"), text("say"); !strings.Contains(got, "more slowly") || !strings.Contains(said, got) ||
		!strings.Contains(said, "17–\u206024 minutes") {
		t.Errorf("the wait has grown: the page says %q, and reads aloud %q", got, said)
	}
	hear(func(v *page.Visitor) { v.QueueAll = true })
	waitFor(t, ctx,
		`document.getElementById("say").textContent == "The line is paused. The organiser has paused the line. Your place is kept."`)
	hear(func(v *page.Visitor) { v.Decision.Ahead, v.Decision.Next = 0, true })
	waitFor(t, ctx, `document.title == "You are next"`)

	s.play(func(s *site) { s.down = true })
	s.again(t, ctx)
	s.again(t, ctx)
	waitFor(t, ctx, `document.title == "Connection lost"`)
	s.play(func(s *site) { s.down = false })
	s.again(t, ctx)
	waitFor(t, ctx, `document.title == "You are next"`)

	do(t, ctx, chromedp.Click(chromedp.CSS("#sound")))
	waitFor(t, ctx, `document.getElementById("sound").getAttribute("aria-pressed") == "true"`)
	s.play(func(s *site) {
		s.in = true
		s.news = func() []byte { return page.AppendNews(nil, "entering", true) }
	})
	s.again(t, ctx)
	waitFor(t, ctx, `document.title == "The site"`)
}

// Sound, notification and the organiser's messages survive a reload; the turn is shown in the visitor's time zone.
func TestAPageRemembers(t *testing.T) {
	ctx, s, url := open(t)
	var v page.Visitor
	hear := func(message string) {
		t.Helper()
		v = page.Samples[0].Visitor
		v.Message = message
		s.play(func(s *site) { s.news = func() []byte { return page.AppendJSON(nil, &v) } })
		s.again(t, ctx)
		waitFor(t, ctx, fmt.Sprintf(`document.getElementById("note").textContent == %q`, message))
	}
	browsertest.See(t, ctx, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, target, emulation.SetTimezoneOverride,
			emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"})
	})
	do(t, ctx, phone(), chromedp.Navigate(url+"/queued"), chromedp.Click(chromedp.CSS("#sound")))
	hear("Doors open at 8.")
	hear("Seats from 40 to 90 are still here.")
	do(t, ctx, chromedp.Reload(), chromedp.WaitVisible(chromedp.CSS("#past")))
	const pressed = `document.getElementById("sound").getAttribute("aria-pressed") + document.getElementById("notify").getAttribute("aria-pressed")`
	if got := browsertest.See(t, ctx, chromedp.Evaluate[string](pressed)); got != "truefalse" {
		t.Errorf("after a reload sound and notification are %s", got)
	}
	// The loaded sample has no message, so both are earlier ones.
	if got := browsertest.See(t, ctx,
		chromedp.Evaluate[string](`document.getElementById("seen").textContent`)); got != "10:03 PM · Doors open at 8.\n10:03 PM · Seats from 40 to 90 are still here." {
		t.Errorf("earlier messages are %q", got)
	}
	check(t, ctx, "with earlier messages")
	if got := browsertest.See(t, ctx,
		chromedp.Evaluate[string](`document.getElementById("clock").textContent`)); got != "10:13 PM" &&
		got != "10:13\u202fPM" {
		t.Errorf("the turn in ten minutes is shown for %s", got)
	}
	// The page works without storage.
	browsertest.See(t, ctx,
		atStart(`Object.defineProperty(window, "sessionStorage", {get() { throw new Error("denied") }})`))
	do(t, ctx, chromedp.Reload(), chromedp.WaitVisible(chromedp.CSS("#tools")), chromedp.Click(chromedp.CSS("#sound")))
	if got := browsertest.See(t, ctx, chromedp.Evaluate[string](pressed)); got != "truefalse" {
		t.Errorf("without storage sound and notification are %s", got)
	}
}

// TestTheProofAndTheLanguages: the receipt of a draw is in details, and can be copied and saved; a page links to
// the list of languages.
func TestTheProofAndTheLanguages(t *testing.T) {
	ctx, s, url := open(t)
	browsertest.See(t, ctx,
		atStart(`Object.defineProperty(navigator, "clipboard", {value: {writeText(text) { window.copied = text }}})`))
	do(t, ctx, phone(), chromedp.Navigate(url+"/before-draw"))
	placed := page.Visitor{}
	for _, sample := range page.Samples {
		if sample.Name == "draw-placed" {
			placed = sample.Visitor
		}
	}
	s.play(func(s *site) { s.news = func() []byte { return page.AppendJSON(nil, &placed) } })
	s.again(t, ctx)
	waitFor(t, ctx, `document.getElementById("place").textContent == "≈\u00a057/290"`)
	do(t, ctx, chromedp.Click(chromedp.CSS("details.d summary")), chromedp.Click(chromedp.CSS("#copy")))
	check(t, ctx, "the proof of a draw")
	for what, expression := range map[string]string{
		"copied": `copied`,
		"saved":  `decodeURIComponent(document.getElementById("save").href.split(",").slice(1).join(","))`,
	} {
		got := browsertest.See(t, ctx, chromedp.Evaluate[string](expression))
		var r draw.Receipt
		if err := json.Unmarshal([]byte(got), &r); err != nil || r.Ticket != 482177301 || r.Commit == (draw.Hash{}) {
			t.Errorf("%s: %s (%v)", what, got, err)
		}
	}
	screens := os.Getenv("VESTIBULE_SCREENS")
	if screens != "" {
		browsertest.Keep(t, screens, "draw-proof-phone.png", shot(t, ctx, 390, 844))
	}

	// The list of languages has the same style, and links back.
	do(t, ctx, chromedp.Navigate(url+"/queued?lang=ar-EG"), chromedp.Click(chromedp.CSS(".g a")),
		chromedp.WaitVisible(chromedp.CSS("li a")))
	check(t, ctx, "languages")
	if screens != "" {
		browsertest.Keep(t, screens, "languages-phone.png", shot(t, ctx, 390, 844))
	}
	do(t, ctx, chromedp.Click(chromedp.CSS(`[lang="de-DE"]`)))
	waitFor(t, ctx, `document.documentElement.lang == "de-DE" && document.getElementById("vr").dataset.state == "queued"`)
}

// With the keyboard alone everything is reachable, in order, with visible focus.
func TestTheKeyboardReachesEverything(t *testing.T) {
	ctx, _, url := open(t)
	do(t, ctx, phone(), chromedp.Navigate(url+"/queued"))
	var reached []string
	for range 5 {
		do(t, ctx, chromedp.KeyEvent("\t"))
		at := browsertest.See(t, ctx,
			chromedp.Evaluate[string](`(e => (e.id || e.tagName) + (getComputedStyle(e).outlineStyle == "none" ? " unseen" : ""))(document.activeElement)`))
		if reached = append(reached, at); at == "SUMMARY" {
			do(t, ctx, chromedp.KeyEvent("\r"))
		}
	}
	if got := strings.Join(reached, " "); got != "sound notify SUMMARY BUTTON A" {
		t.Errorf("reached %s", got)
	}
}

// TestPlacesInABrowser checks the page's arithmetic of places with the same file as TestPlaces in the package
// above.
func TestPlacesInABrowser(t *testing.T) {
	ctx := browsertest.Open(t)
	script := testkit.Must(os.ReadFile("../page.js"))(t)
	places := testkit.Must(os.ReadFile("../testdata/places.json"))(t)
	_, after, ok := strings.Cut(string(script), "// The arithmetic of places")
	sums, _, ok2 := strings.Cut(after, "// End of the arithmetic.")
	if !ok || !ok2 {
		t.Fatal("page.js does not say where its arithmetic of places begins and ends")
	}
	wrong := browsertest.See(t, ctx, chromedp.Evaluate[string](`(function () {
//`+sums+`
	var near = function (a, b) { return Math.abs(a - b) <= 1e-6 * (1 + Math.abs(b)) }, all = `+string(places)+`;
	return JSON.stringify(all.map(function (x) {
		var p = place(x.message, x.joined), wait = isFinite(p.wait) ? p.wait : -1;
		return near(p.ahead, x.ahead) && near(p.total, x.total) && near(wait, x.wait) && p.next == x.next ? null : [p, x];
	}).filter(Boolean));
})()`))
	if wrong != "[]" {
		t.Errorf("the page's script finds otherwise than the view (found, wanted): %s", wrong)
	}
}
