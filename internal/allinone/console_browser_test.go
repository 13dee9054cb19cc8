//go:build !race

package allinone

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/testkit"
)

// operator is a browser at the console.
type operator struct {
	*testing.T
	ctx     context.Context
	screens string // folder for pictures, "" for none
}

// until waits until an expression is true in the page.
func (o *operator) until(expression string) {
	o.Helper()
	defer func() {
		if o.Failed() {
			text, err := browsertest.Look(o.ctx, chromedp.Evaluate[string](`location + "\n" + document.body.innerText`))
			o.Logf("the page, %v: %s", err, text)
		}
	}()
	eventually(o.T, expression, func() bool {
		ok, err := browsertest.Look(o.ctx, chromedp.Evaluate[bool](expression))
		return err == nil && ok // an error: the page is being replaced
	})
}

// says waits until the page shows a text.
func (o *operator) says(text string) {
	o.Helper()
	o.until(`document.body.innerText.includes(` + strconv.Quote(text) + `)`)
}

// button is the first visible link, button or summary whose text begins so, in JavaScript.
func button(text string) string {
	return `[...document.querySelectorAll("a,button,summary")].find(e => e.checkVisibility() && e.innerText.trim().startsWith(` + strconv.Quote(text) + `))`
}

// field is the first visible field of a name, in JavaScript.
func field(name string) string {
	return `[...document.querySelectorAll("[name='` + name + `']")].find(e => e.checkVisibility())`
}

// press clicks a link, a button or a summary by the begin of its text, once the page has it.
func (o *operator) press(text string) {
	o.Helper()
	o.until(`!!` + button(text))
	browsertest.See(o.T, o.ctx, chromedp.Evaluate[bool](button(text)+`.click(), true`))
}

// open follows a link or opens a summary by the begin of its text until the page has what then finds. It tries again in
// each new document: a page that is loaded again just then loses the click.
func (o *operator) open(text, then string) {
	o.Helper()
	o.until(`!!` + then + ` || (window.followed !== ` + strconv.Quote(text) + ` && ` + button(text) +
		`?.click(window.followed = ` + strconv.Quote(text) + `), false)`)
}

// fill sets the visible field of a name.
func (o *operator) fill(name, value string) {
	o.Helper()
	o.until(`!!` + field(name))
	browsertest.See(o.T, o.ctx, chromedp.Evaluate[bool](field(name)+`.value = `+strconv.Quote(value)+`, true`))
}

// picture keeps a screenshot.
func (o *operator) picture(name string) {
	o.Helper()
	if o.screens != "" {
		eventually(o.T, "a picture", func() bool { // not while the page is being replaced
			png, err := browsertest.Look(o.ctx, chromedp.CaptureScreenshot())
			if err == nil {
				browsertest.Keep(o.T, o.screens, name+".png", png)
			}
			return err == nil
		})
	}
}

// act confirms an action with a reason.
func (o *operator) act(verb, reason, done string) {
	o.Helper()
	o.press("Next: see the consequence")
	o.fill("reason", reason)
	o.picture("console-confirm")
	o.press(verb)
	o.says(done)
}

// TestAConsoleTourInABrowser: an operator logs in by the link, watches a room fill, pauses and resumes it, changes its
// limits, lets in some visitors, makes an event, tries a rule, restores the settings before the event, and reads the
// audit log, on a desk, on a phone, and without script. With VESTIBULE_SCREENS set to a folder it keeps pictures.
func TestAConsoleTourInABrowser(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Demo-Origin", "yes")
		fmt.Fprint(w, "site")
	}))
	t.Cleanup(site.Close)
	tree, _ := plant(t, 1, 1, time.Minute, func(o *Options) { o.StoreRooms, o.Origin = true, site.URL })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	testkit.NoError(t, tree.TakeToken(ctx))
	zone := "/zones/" + tree.Info.Control.Zone + "/waiting_rooms"
	var room struct{ ID string }
	tree.api(t, http.MethodPost, zone, map[string]any{
		"name": "sale", "host": "127.0.0.1", "total_active_users": 5, "new_users_per_minute": 200, "session_duration": 30,
	}, &room)
	testkit.NoError(t, tree.WaitReady(ctx))
	var people [12]*browser
	for i := range people {
		people[i] = newBrowser(t)
	}
	come := func() { // again before each look: a session without a second request ends early
		for i, b := range people {
			eventually(t, "a visitor of the room", func() bool {
				p, err := b.try(t.Context(), tree.Info.Edges[i%4].URL)
				return err == nil && (p.inside || p.status != 0)
			})
		}
	}
	o := &operator{t, browsertest.Open(t), os.Getenv("VESTIBULE_SCREENS")}
	if o.screens != "" {
		o.screens = filepath.Clean(o.screens)
	}
	for i, look := range []struct {
		name, theme   string
		width, height int64
		noScript      bool
	}{
		{"desk", "light", 1280, 900, false},
		{"phone", "dark", 390, 844, false},
		{"desk-without-script", "light", 1280, 900, true},
	} {
		t.Logf("on a %s", look.name)
		come()
		link := tree.Info.Control.Console
		if i > 0 {
			link = testkit.Must(tree.global.Control.Link(t.Context(), tree.Info.Control.Token))(t)
		}
		browsertest.See(t, o.ctx, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
			return cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.theme}},
			})
		})
		browsertest.See(t, o.ctx, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
			return cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled,
				emulation.SetScriptExecutionDisabledParams{Value: look.noScript})
		})
		browsertest.Do(t, o.ctx, chromedp.EmulateViewport(look.width, look.height), chromedp.Navigate(link))
		o.press("Log in")
		o.picture("console-rooms-" + look.name)
		o.press("sale")
		o.until(`+document.querySelector("[data-field=inside]")?.textContent >= 1`)
		if !look.noScript {
			o.until(`document.querySelectorAll(".chart canvas").length >= 3`)
		}
		o.picture("console-room-" + look.name)
		o.open("Pause…", button("Next: see the consequence"))
		o.act("Pause the room", "till is down", "The room is paused")
		o.open("Let in the next…", field("people"))
		o.fill("people", "5")
		o.act("Let them in", "five guests", "The next 5 visitors will be let in")
		o.open("Resume…", field("reason"))
		o.fill("reason", "till is up")
		o.press("Resume the room")
		o.says("The room lets visitors in again")
		o.open("Limits…", field("total"))
		o.fill("total", strconv.Itoa(6+i))
		o.fill("rate", strconv.Itoa(210+i))
		o.act("Change the limits", "one more till", "The limits are changed until")

		o.open("Events", button("New event…"))
		o.open("New event…", field("event_start_time"))
		o.fill("name", "autumn-"+look.name)
		start := time.Now().UTC().Add(time.Duration(1+2*i) * 24 * time.Hour)
		o.fill("event_start_time", start.Format("2006-01-02T15:04"))
		o.fill("event_end_time", start.Add(time.Hour).Format("2006-01-02T15:04"))
		o.press("Create")
		o.says("autumn-" + look.name)
		o.open("Rules", field("expression"))
		o.fill("expression", `http.request.uri.path eq "/health"`)
		o.fill("path", "/health")
		o.press("Try")
		o.says("The expression matches")
		o.open("Changes", button("Restore…"))
		o.open("Restore…", field("reason"))
		o.fill("reason", "no event")
		o.press("Restore")
		o.says("The revision is restored")
		o.open("Audit", field("by"))
		o.says("one more till")
		o.picture("console-audit-" + look.name)
		if n := browsertest.See(t, o.ctx, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); n > look.width {
			t.Errorf("the audit log is %d wide on a %s", n, look.name)
		}
		o.press("Log out")
		o.says("vestibule login --console")
	}
}
