package console_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
	"vestibule/internal/lab/testkit"
)

func TestTheListShowsEveryRoom(t *testing.T) {
	f := start(t)
	contains(t, f.see("/console/"), "There is no room yet")
	for i := range 51 {
		f.api.make(fmt.Sprintf("room-%02d", i), 300, 200, nil)
	}
	f.count("room-01", control.Numbers{Active: 1900, Waiting: 12400, Longest: 61 * 60})
	f.count("room-02", control.Numbers{Stops: []stop.Stop{{Reason: stop.Draining, Centre: "oslo"}}})
	first := f.see("/console/")
	contains(t, first, stop.Stop{Reason: stop.Draining, Centre: "oslo"}.String()[1:])
	contains(t, first, "12,400", "61 min", "1,900 of 300", "Queueing", "Open", "room-49")
	lacks(t, first, "room-50", "alarms")
	contains(t, f.see("/console/?page=2"), "room-50")
	before := func(page answer, first, then string) {
		t.Helper()
		if i := strings.Index(page.body, first); i < 0 || i > strings.Index(page.body, then) {
			t.Errorf("%s is not before %s", first, then)
		}
	}
	before(first, "room-01", "room-00") // whose visitors enter at once
	f.api.patch(f.api.make("zoo", 10, 10, nil), map[string]any{"pause": map[string]any{}})
	f.api.make("archive", 10, 10, map[string]any{"suspended": true})
	before(f.see("/console/"), "zoo", "room-01")
	before(f.see("/console/?page=2"), "room-50", "archive")
	f.play(func() { f.fleet.Candidates[0].Alarms = []string{"the clock is off", "one more"} })
	contains(t, f.see("/console/"), "2 alarms in the fleet")
	f.play(func() { f.leader = false })
	contains(t, f.see("/console/"), "Unknown", "–")
}

func TestARoomShowsItsStateInWords(t *testing.T) {
	for name, c := range map[string]struct {
		settings map[string]any
		controls map[string]any
		numbers  control.Numbers
		silent   bool
		heard    time.Time
		want     []string
	}{
		"open": {want: []string{"Open Visitors enter without waiting.", "wait of a newcomer none"}},
		"queueing": {
			numbers: control.Numbers{Active: 300, Waiting: 5, Longest: 30},
			want:    []string{"Queueing", "wait of a newcomer 1 min"},
		},
		"full": {numbers: control.Numbers{Active: 300}, want: []string{"Full", "300"}},
		"a newcomer waits": {
			numbers: control.Numbers{Active: 300, Stops: []stop.Stop{{Reason: stop.Full, Room: "sale"}}},
			want:    []string{"waiting 0", "wait of a newcomer – as told"},
		},
		"beyond": {numbers: control.Numbers{Active: 310, Beyond: 10}, want: []string{"10 people more than the limit"}},
		"notified": {
			numbers: control.Numbers{Active: 300, Waiting: 90, Longest: 30, Subscribed: 40},
			want:    []string{"40 people in line will be notified"},
		},
		"paused": {
			controls: map[string]any{"pause": map[string]any{}, "reason": "power cut"},
			want:     []string{"Paused Nobody is let in.", "Ben paused the room, just now: power cut", "wait of a newcomer – as told"},
		},
		"paused with a line": {
			numbers: control.Numbers{Active: 300, Waiting: 5, Longest: 30}, controls: map[string]any{"pause": map[string]any{}},
			want: []string{"waiting 5", "wait of a newcomer – as told"},
		},
		"silent": {silent: true, want: []string{"Unknown No leading global publishes numbers."}},
		"not heard any more": {
			numbers: control.Numbers{Active: 300, Waiting: 5, Longest: 30},
			silent:  true, heard: time.Now().Add(-time.Minute),
			want: []string{"These numbers are old: no global leads", "Queueing", "300"},
		},
		"the site is down everywhere": {
			numbers: control.Numbers{Active: 300, Waiting: 9, Stops: []stop.Stop{
				{Reason: stop.Full, Room: "sale"}, {Reason: stop.SiteDown, Room: "sale", Edges: 2},
			}},
			want: []string{"Site down The site does not answer. Nobody is let in until it does."},
		},
		"the site is down": {
			numbers: control.Numbers{Active: 5, Waiting: 9, Stops: []stop.Stop{
				{
					Reason: stop.SiteDown, Room: "sale", Centre: "dublin", Edges: 2,
					Since: fleettime.TimeOf(time.Now().Add(-time.Minute)),
				},
				{Reason: stop.NoGlobal, Centre: "oslo"},
			}},
			want: []string{"Site down in part Some edges do not reach the site.", "dublin", ", since ", "oslo"},
		},
		"paused and silent": {controls: map[string]any{"pause": map[string]any{}}, silent: true, want: []string{"Paused"}},
		"suspended": {
			settings: map[string]any{"suspended": true},
			want:     []string{"Suspended All visitors go straight to the site."},
		},
		"queue all": {settings: map[string]any{"queue_all": true}, want: []string{"All wait"}},
		"method":    {settings: map[string]any{"queueing_method": "passthrough"}, want: []string{"Passthrough"}},
		"reject": {
			settings: map[string]any{"queueing_method": "reject"}, numbers: control.Numbers{Active: 3},
			want: []string{"Rejecting"},
		},
		"limits": {
			controls: map[string]any{"limits": map[string]any{
				"total_active_users": 250,
				"until":              time.Now().Add(30*time.Minute + time.Second).UTC().Format(time.RFC3339),
			}},
			want: []string{"inside, of 250", "Ben set total active users to 250", "in 30 minutes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			id := f.api.make("sale", 300, 200, c.settings)
			f.count("sale", c.numbers)
			f.play(func() { f.leader, f.heard = !c.silent, c.heard })
			if c.controls != nil {
				testkit.NoError(t, f.api.call(http.MethodPatch, "/vestibule/rooms/"+id+"/controls", c.controls, nil))
			}
			contains(t, f.see("/console/rooms/"+id), c.want...)
		})
	}
	f := start(t)
	f.get("/console/rooms/"+room.PublicID("nothing")).is(t, http.StatusNotFound) // an unknown room
	f.get("/console/nothing").is(t, http.StatusNotFound)                         // an unknown page
}

// Every action works without script, shows its consequence before it is made, and tells how to undo it.
func TestActions(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	f.count("sale", control.Numbers{Active: 1900, Waiting: 12400, Longest: 61 * 60})
	for _, step := range []struct {
		action  string
		fill    map[string]string
		confirm []string
		after   []string
		check   func(c api.Controls) bool
	}{
		{
			"pause", nil,
			[]string{
				"12,400 people will read that the organiser has paused.", "1,900 people inside stay",
				"until somebody resumes", "To undo: Resume the room.",
			},
			[]string{"The room is paused.", "Undo: Resume the room", "Ana paused the room, just now: a test"},
			func(c api.Controls) bool {
				return c.Pause != nil && c.Pause.Reason == "a test" && c.Pause.By == "Ana" && c.Pause.Until == nil
			},
		},
		{
			"release",
			map[string]string{"people": "50"},
			[]string{
				"The next 50 people of the queue are let in, never more", "100 places are free now",
				"There is no way back",
			},
			[]string{"The next 50 visitors will be let in.", "Ana released the next 50 visitors, 0 let in so far"},
			nil,
		},
		{
			"release",
			map[string]string{"people": "60"},
			[]string{"It ends the open release of 50 people."},
			[]string{"The next 60 visitors"},
			nil,
		},
		{
			"resume", nil,
			[]string{"at most 200 per minute", "12,400 people are waiting. The newest would wait about 62 minutes."},
			[]string{"The room lets visitors in again.", "Undo: Pause the room"},
			func(c api.Controls) bool { return c.Pause == nil },
		},
		{
			"pause",
			map[string]string{"minutes": "15", "message": "Back soon"},
			[]string{"with the message “Back soon”", "ends by itself at", "in 15 minutes"},
			[]string{"until"},
			func(c api.Controls) bool { return c.Pause.Until != nil && *c.Pause.Message == "Back soon" },
		},
		{"resume", nil, nil, nil, nil},
		{
			"message",
			map[string]string{"message": `Only <b>8</b> & "9" are left`},
			[]string{`12,400 people will read “Only <b>8</b> & "9" are left” on the waiting page`},
			[]string{"Waiting visitors see the message.", "Undo: Remove the message"},
			func(c api.Controls) bool { return *c.Message.Text == `Only <b>8</b> & "9" are left` },
		},
		{
			"end-message", nil,
			[]string{"12,400 people will no longer read"},
			[]string{"The message is removed."},
			func(c api.Controls) bool { return c.Message == nil },
		},
		{
			"limits",
			map[string]string{"rate": "1,000", "minutes": "20"},
			[]string{
				"At most 1,000 people let in per minute instead of 200.",
				"The newest visitor would wait about 13 instead of 62 minutes", "apply again at", "in 20 minutes",
			},
			[]string{"The limits are changed until", "Undo: End the temporary limits", "let in per minute, of 1,000"},
			func(c api.Controls) bool {
				return c.InForce.NewUsersPerMinute == 1000 && c.InForce.TotalActiveUsers == 2000 && c.Limits.Until != nil
			},
		},
		{
			"limits",
			map[string]string{"total": "1500"},
			[]string{"At most 1,500 people inside at a time instead of 2,000.", "Nobody is let in until 401 have left."},
			nil,
			func(c api.Controls) bool {
				return c.InForce.NewUsersPerMinute == 1000 && c.InForce.TotalActiveUsers == 1500
			},
		},
		{
			"end-limits", nil,
			[]string{
				"At most 2,000 people inside at a time instead of 1,500.", "100 people of those who wait can enter at once",
				"about 62 instead of 13 minutes",
			},
			[]string{"The limits of the room apply again."},
			func(c api.Controls) bool { return c.Limits == nil && c.InForce.NewUsersPerMinute == 200 },
		},
		{
			"limits",
			map[string]string{"total": "3000", "for": "always"},
			[]string{
				"The room is changed. Its limits stay until somebody changes them.",
				"To undo: Restore the previous revision",
			},
			[]string{"The limits of the room are changed.", "inside, of 3,000"},
			func(c api.Controls) bool { return c.Limits == nil && c.InForce.TotalActiveUsers == 3000 },
		},
	} {
		confirm, after := f.act(id, step.action, step.fill)
		contains(t, confirm, step.confirm...)
		contains(t, after, step.after...)
		if step.check != nil && !step.check(f.api.controls(id)) {
			t.Errorf("%s %v: %+v", step.action, step.fill, f.api.controls(id))
		}
		if t.Failed() {
			t.Fatalf("after %s %v", step.action, step.fill)
		}
	}
}

// A faulty form is shown again with what was typed, and nothing changes.
func TestFormsNameTheirFaults(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	at := "/console/rooms/" + id + "/actions/"
	for _, c := range []struct{ path, want, kept string }{
		{"pause?minutes=soon", "The number of minutes must be a number from 1 to 43,200.", "soon"},
		{"pause?message=" + strings.Repeat("x", room.MaxMessage+1), "The message must have at most 1000 bytes", "xxx"},
		{"message?message=+", "Write the message.", ""},
		{"end-message", "There is no message.", ""},
		{"release?people=5", "Only a paused room", ""},
		{"resume", "The room is not paused.", ""},
		{"limits?total=2000&rate=200&minutes=5", "Change at least one", ""},
		{"limits?total=x&rate=200", "Total active users must be a number", "x"},
		{"limits?total=3&minutes=", "Say for how many minutes", ""},
		{"end-limits", "There are no temporary limits.", ""},
	} {
		a := f.get(at + c.path)
		contains(t, a, c.want)
		if a.code != http.StatusUnprocessableEntity || !strings.Contains(a.body, c.kept) ||
			strings.Contains(a.body, `name="seen"`) {
			t.Errorf("%s: %d %s", c.path, a.code, a.body)
		}
	}
	f.get(at+"explode").is(t, http.StatusNotFound) // an unknown action
	if c := f.api.controls(id); c.Version != 0 {
		t.Errorf("controls: %+v", c)
	}
}

// A confirmation without a reason, sent twice, or of something that has changed since, changes nothing.
func TestConfirmationsAreOfWhatTheOperatorSaw(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	action := "/console/rooms/" + id + "/actions/pause"
	confirm := f.see(action)
	if a := f.follow(confirm, action, map[string]string{"reason": " "}); a.code != http.StatusUnprocessableEntity ||
		f.api.controls(id).Pause != nil {
		t.Errorf("without a reason: %d %s", a.code, a.text())
	}
	if a := f.follow(confirm, action,
		map[string]string{"reason": strings.Repeat("x", room.MaxReason+1)}); a.code != http.StatusUnprocessableEntity ||
		f.api.controls(id).Pause != nil {
		t.Errorf("with a long reason: %d %s", a.code, a.text())
	}
	again := confirm.form(t, action).fields
	again.Set("reason", "first")
	if a := f.post(action, again); a.code != http.StatusSeeOther || f.api.controls(id).Pause == nil {
		t.Fatalf("%d %s", a.code, a.text())
	}
	since := f.api.controls(id).Pause.Since
	if a := f.post(action, again); a.code != http.StatusConflict || f.api.controls(id).Pause.Since != since {
		t.Errorf("sent twice: %d %s", a.code, a.text())
	}
	f.api.patch(id, map[string]any{"pause": nil})
	if a := f.post(action, again); a.code != http.StatusConflict || f.api.controls(id).Pause != nil {
		t.Errorf("sent again after it was undone: %d %s", a.code, a.text())
	}
	other := f.see(action).form(t, action).fields
	other.Set("reason", "second")
	f.api.patch(id, map[string]any{"pause": map[string]any{}})
	if a := f.post(action, other); a.code != http.StatusConflict ||
		!strings.Contains(a.text(), "Somebody changed this room") {
		t.Errorf("of something that has changed since: %d %s", a.code, a.text())
	}
	release := "/console/rooms/" + id + "/actions/release"
	twice := f.see(release+"?people=5").form(t, release).fields
	twice.Set("reason", "five")
	first, second := f.post(release, twice), f.post(release, twice)
	if first.code != http.StatusSeeOther || second.code != http.StatusConflict {
		t.Errorf("a release twice: %d, %d", first.code, second.code)
	}
	contains(t, second, "Nothing was changed now")
}

// The roles are those of the API: who may not act sees no action, and a request is refused all the same.
func TestRoles(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	at := "/console/rooms/" + id
	pause := f.see(at+"/actions/pause").form(t, at+"/actions/pause").fields
	pause.Set("reason", "x")
	always := f.see(at+"/actions/limits?total=9&rate=200&for=always").form(t, at+"/actions/limits").fields
	always.Set("reason", "x")

	f.as(control.Viewer)
	for _, path := range []string{"/console/", at} {
		page := f.see(path)
		lacks(t, page, "/actions/", `method="get"`)
	}
	contains(t, f.see(at), "You have the role viewer")
	f.get(at+"/actions/pause").is(t, http.StatusForbidden)         // a viewer confirms
	f.post(at+"/actions/pause", pause).is(t, http.StatusForbidden) // a viewer pauses
	pause.Del("once")
	f.as(control.Operator)
	lacks(t, f.see(at), "until somebody changes them")
	f.post(at+"/actions/limits", always).is(t, http.StatusForbidden) // an operator changes the room
	f.post(at+"/actions/pause", pause).is(t, http.StatusSeeOther)    // an operator pauses
	f.play(func() { f.who = control.Principal{} })
	for _, path := range []string{
		"/console/", at, at + "/stream", "/console/stream", at + "/actions/pause",
		"/console/nothing",
	} {
		if a := f.get(path); a.code != http.StatusSeeOther ||
			a.header.Get("Location") != "/login?next="+url.QueryEscape(path) {
			t.Errorf("%s without a session: %d %s", path, a.code, a.header.Get("Location"))
		}
	}
	if a := f.post(at+"/actions/pause", pause); a.code != http.StatusSeeOther ||
		!strings.HasPrefix(a.header.Get("Location"), "/login") {
		t.Errorf("nobody pauses: %d", a.code)
	}
}

func TestOtherSitesCannotAct(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	at := "/console/rooms/" + id + "/actions/pause"
	pause := f.see(at).form(t, at).fields
	pause.Set("reason", "x")
	for name, header := range map[string][2]string{
		"another site":      {"Sec-Fetch-Site", "cross-site"},
		"a sibling":         {"Sec-Fetch-Site", "same-site"},
		"an older browser":  {"Origin", "https://evil.example"},
		"a sandboxed frame": {"Origin", "null"},
	} {
		r := httptest.NewRequest(http.MethodPost, at, strings.NewReader(pause.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set(header[0], header[1])
		if a := f.do(r); a.code != http.StatusForbidden || f.api.controls(id).Pause != nil {
			t.Errorf("%s: %d", name, a.code)
		}
	}
	policy := f.see("/console/").header.Get("Content-Security-Policy")
	for _, part := range []string{
		"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'",
		"form-action 'self'", "base-uri 'none'",
	} {
		if !strings.Contains(policy, part) {
			t.Errorf("the policy lacks %s: %s", part, policy)
		}
	}
}

// Texts of operators and names of rooms are text, never tags.
func TestHostileTextIsEscaped(t *testing.T) {
	f := start(t)
	const evil = `"><script>alert(1)</script><b onclick='x'>`
	id := f.api.make("sale", 2000, 200, nil)
	f.play(func() { f.who.Name = evil })
	body := map[string]any{
		"pause": map[string]any{"message": evil}, "message": map[string]any{"text": evil},
		"reason": evil,
	}
	testkit.NoError(t, f.api.server.Call(t.Context(), control.Principal{ID: "x", Name: evil, Role: control.Admin}, "",
		http.MethodPatch,
		"/vestibule/rooms/"+id+"/controls", body, nil))
	f.play(func() { f.fleet.Candidates[0].Name, f.fleet.Candidates[0].Alarms = evil, []string{evil} })
	at := "/console/rooms/" + id
	for _, path := range []string{
		"/console/", at, at + "?done=" + url.QueryEscape(evil), at + "/actions/pause?message=" + url.QueryEscape(evil),
		at + "/actions/limits?total=" + url.QueryEscape(evil),
		at + "/actions/message?" + url.QueryEscape(evil) + "=1&message=x", "/console/" + url.PathEscape(evil),
	} {
		a := f.get(path)
		lacks(t, a, "<script>alert", "<b onclick")
		wellFormed(t, a.body)
	}
}

// The page of an error of the console names the log.
func TestTheLogHasTheReasonOfAPageThatFailed(t *testing.T) {
	f, log := start(t), &testkit.Log{}
	f.Console.Log = slog.New(slog.NewTextHandler(log, nil))
	f.Break("fleet")
	f.get("/console/nothing").is(t, http.StatusNotFound)
	if got := log.String(); got != "" {
		t.Errorf("a page that does not exist is logged: %s", got)
	}
	a := f.get("/console/fleet")
	a.is(t, http.StatusInternalServerError)
	contains(t, a, "The log of this global has the reason")
	if !log.Has("a page failed") || !log.Has("/console/fleet") {
		t.Errorf("log: %q", log.String())
	}
}
