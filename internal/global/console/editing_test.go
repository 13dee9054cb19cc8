package console_test

import (
	"bytes"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"vestibule/internal/global/console"
	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
	"vestibule/internal/lab/testkit"
)

// sent follows a form, and the redirect after it.
func (f *fixture) sent(a answer, action string, fill map[string]string) answer {
	f.Helper()
	after := f.follow(a, action, fill)
	if after.code == http.StatusSeeOther {
		return f.see(after.header.Get("Location"))
	}
	return after
}

// press sends a form with one of its buttons.
func (f *fixture) press(a answer, action, name, value string) answer {
	f.Helper()
	after := f.sends(a, action, name, value)
	if after.code == http.StatusSeeOther {
		return f.see(after.header.Get("Location"))
	}
	return after
}

// sends sends the form of a page that has a button, and returns the answer.
func (f *fixture) sends(a answer, action, name, value string) answer {
	f.Helper()
	if !strings.Contains(a.body, `<button name="`+name+`" value="`+value+`"`) {
		f.Fatalf("no button %s=%s: %s", name, value, a.body)
	}
	form := f.formWith(a, action, url.Values{name: {value}})
	form.Del("once")
	return f.post(action, form)
}

// formWith returns the fields of a form of a page that is posted, filled in: of the one with the button that is filled
// in, otherwise of the first.
func (f *fixture) formWith(a answer, action string, fill url.Values) (fields url.Values) {
	f.Helper()
	button := `name="do" value="` + fill.Get("do") + `"`
	for _, m := range formTag.FindAllString(a.body, -1) {
		if strings.Contains(m, `method="post" action="`+action+`"`) && (fields == nil || strings.Contains(m, button)) {
			fields = answer{body: m}.form(f, action).fields
		}
	}
	if fields == nil {
		f.Fatalf("no form is posted to %s: %s", action, a.body)
	}
	maps.Copy(fields, fill)
	return fields
}

// Rules are added, changed, moved, tried and deleted.
func TestRules(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	at := "/console/rooms/" + id + "/rules"
	page := f.see(at)
	contains(t, page, "No rule.")
	faulty := f.sent(page, at, map[string]string{"expression": "http.hosst eq", "description": "<b>mistake"})
	if faulty.code != http.StatusUnprocessableEntity || !strings.Contains(faulty.body, "&lt;b&gt;mistake") ||
		!strings.Contains(faulty.body, `aria-invalid="true"`) {
		t.Fatalf("a faulty rule: %d %s", faulty.code, faulty.body)
	}
	contains(t, faulty, "http.hosst eq", "character")
	page = f.sent(page, at, map[string]string{
		"expression":  `http.request.uri.path eq "/health"`,
		"description": "<b>probes",
	})
	contains(t, page, "The rule is added.", `http.request.uri.path eq "/health"`, "<b>probes")
	page = f.sent(page, at, map[string]string{"expression": `ip.src in {192.0.2.0/24}`, "description": ""})
	var rules []api.Rule
	read := func() []api.Rule {
		testkit.NoError(t, f.api.call(http.MethodGet, "/zones/"+control.Zone+"/waiting_rooms/"+id+"/rules", nil, &rules))
		return rules
	}
	second := read()[1]
	page = f.press(page, at+"/"+second.Id, "do", "up")
	if contains(t, page, "The rule is moved."); read()[0].Id != second.Id {
		t.Errorf("after up: %+v", rules)
	}
	form := f.see(at + "/" + second.Id)
	page = f.sent(form, at+"/"+second.Id, map[string]string{"description": "office"})
	if contains(t, page, "The rule is changed.", "office"); read()[0].Description != "office" || !rules[0].Enabled {
		t.Errorf("after a change: %+v", rules)
	}
	tried := f.follow(page, at, map[string]string{"path": "/cart", "address": "192.0.2.9"})
	contains(t, tried, "The request passes the room.", "office Matches", "<b>probes Does not match")
	contains(t, f.follow(page, at, map[string]string{"path": "/cart"}), "The request does not pass")
	contains(t, f.follow(page, at, map[string]string{"expression": `http.host eq "x"`}), "The expression does not match.")
	contains(t, f.follow(page, at, map[string]string{"address": "x"}), "address must be an IP address")
	page = f.press(f.see(at+"/"+second.Id), at+"/"+second.Id, "do", "delete")
	if contains(t, page, "The rule is deleted."); len(read()) != 1 {
		t.Errorf("after delete: %+v", rules)
	}
	f.as(control.Operator)
	lacks(t, f.see(at), `method="post" action="/console`, "Add the rule")
	for _, a := range []answer{
		f.get(at + "/" + rules[0].Id), f.post(at, map[string][]string{"expression": {"ssl"}}),
		f.post(at+"/"+rules[0].Id, map[string][]string{"do": {"delete"}}),
	} {
		a.is(t, http.StatusForbidden) // an operator changes rules
	}
	if len(read()) != 1 {
		t.Errorf("an operator changed rules: %+v", rules)
	}
}

// Events are created, changed and deleted; times are UTC, and empty fields are the room's.
func TestEvents(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	at := "/console/rooms/" + id + "/events"
	contains(t, f.see(at), "No event is planned.")
	form := f.see(at + "/new")
	begin := time.Now().UTC().Add(50 * time.Hour).Truncate(time.Minute)
	fill := map[string]string{
		"name": "launch", "description": "<b>the big one", "event_start_time": begin.Format("2006-01-02T15:04"),
		"event_end_time":      begin.Add(2 * time.Hour).Format("2006-01-02T15:04:05"),
		"prequeue_start_time": begin.Add(-time.Hour).Format("2006-01-02T15:04"), "shuffle_at_event_start": "true",
		"total_active_users": "5,000", "new_users_per_minute": "800",
		"disable_session_renewal": "true",
	}
	for field, c := range map[string]struct{ value, fault string }{
		"event_end_time":     {begin.Format("2006-01-02T15:04"), "minute"},
		"event_start_time":   {"tomorrow", "This must be a time in UTC"},
		"total_active_users": {"many", "This must be a number."}, "name": {"", "This is needed."},
	} {
		was := fill[field]
		fill[field] = c.value
		a := f.sent(form, at, fill)
		if contains(t, a, c.fault); a.code != http.StatusUnprocessableEntity ||
			!strings.Contains(a.body, `aria-invalid="true"`) {
			t.Errorf("%s: %d %s", field, a.code, a.body)
		}
		fill[field] = was
	}
	page := f.sent(form, at, fill)
	contains(t, page, "The event is created.", "launch Planned", "<b>the big one", "Pre-queue opens",
		"Entries to the draw close", "in 2 days", "5,000 inside, 800 let in per minute")
	var events []api.Event
	read := func() []api.Event {
		testkit.NoError(t, f.api.call(http.MethodGet, "/zones/"+control.Zone+"/waiting_rooms/"+id+"/events", nil,
			&events))
		return events
	}
	e := read()[0]
	if !e.EventStartTime.Equal(begin) || !e.ShuffleAtEventStart || *e.TotalActiveUsers != 5000 ||
		e.SessionDuration != nil || !*e.DisableSessionRenewal || e.QueueingMethod != nil {
		t.Errorf("%+v", e)
	}
	one := f.see(at + "/" + e.Id)
	contains(t, one, "In force during the event Total active users 5,000", "5 min, not renewed")
	page = f.sent(one, at+"/"+e.Id, map[string]string{
		"total_active_users": "", "new_users_per_minute": "",
		"disable_session_renewal": "",
	})
	if contains(t, page, "The event is changed."); read()[0].TotalActiveUsers != nil ||
		events[0].DisableSessionRenewal != nil || !events[0].EventStartTime.Equal(begin) || !events[0].ShuffleAtEventStart {
		t.Errorf("%+v", events[0])
	}
	f.as(control.Viewer)
	lacks(t, f.see(at), "New event")
	lacks(t, f.see(at+"/"+e.Id), `method="post" action="/console`)
	for _, a := range []answer{
		f.get(at + "/new"), f.post(at, nil),
		f.post(at+"/"+e.Id, map[string][]string{"do": {"delete"}}),
	} {
		if a.code == http.StatusSeeOther || a.code == http.StatusOK {
			t.Errorf("a viewer changes events: %d", a.code)
		}
	}
	f.as(control.Editor)
	page = f.press(f.see(at+"/"+e.Id), at+"/"+e.Id, "do", "delete")
	if contains(t, page, "The event is deleted."); len(read()) != 0 {
		t.Errorf("%+v", events)
	}
	f.get(at+"/"+e.Id).is(t, http.StatusNotFound) // a deleted event
}

// A waiting page is checked and previewed in each state and language before it is published.
func TestWaitingPage(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	at := "/console/rooms/" + id + "/page"
	page := f.see(at)
	contains(t, page, "the built-in page")
	a := f.sent(page, at, map[string]string{"html": "<p>{{#open}}"})
	if contains(t, a, "custom_html"); a.code != http.StatusUnprocessableEntity {
		t.Errorf("a faulty page: %d", a.code)
	}
	f.sent(page, at, map[string]string{"html": " "}).is(t, http.StatusUnprocessableEntity) // no page
	const own = "<!doctype html><title>Sale</title>\n<p>Hello {{waitTimeFormatted}}</p></textarea><script>alert(1)</script>"
	a = f.sent(page, at, map[string]string{"html": strings.ReplaceAll(own, "\n", "\r\n")})
	contains(t, a, "New visitors get this page. 0 people who wait", "Publish this page")
	lacks(t, a, "<script>alert")
	f.preview(a, "Hello 10 minutes")
	publish := a.form(t, at, "html").fields
	publish.Set("do", "publish")
	f.post(at, publish).is(t, http.StatusSeeOther)
	contains(t, f.see(at+"?done=published"), "The page is published.", "own page, ")
	var r api.Room
	if err := f.api.call(http.MethodGet, "/zones/"+control.Zone+"/waiting_rooms/"+id, nil, &r); err != nil ||
		r.CustomPageHtml != own {
		t.Errorf("published: %q, %v", r.CustomPageHtml, err)
	}
	contains(t, f.sends(f.see(at), at, "do", "current"), "Open in a new tab")
	builtin := f.sends(f.see(at), at, "do", "builtin")
	contains(t, builtin, "Publish the built-in page")
	f.preview(builtin, `lang="de`)

	var body bytes.Buffer
	parts := multipart.NewWriter(&body)
	err := parts.WriteField("once", console.NewForm())
	if err == nil {
		err = parts.WriteField("seen", f.see(at).form(t, at, "file").fields.Get("seen"))
	}
	var file io.Writer
	if err == nil {
		file, err = parts.CreateFormFile("file", "page.html")
	}
	if err == nil {
		_, err = file.Write([]byte("<p>of a file"))
	}
	if err == nil {
		err = parts.Close()
	}
	testkit.NoError(t, err)
	r2 := httptest.NewRequest(http.MethodPost, at, &body)
	r2.Header.Set("Content-Type", parts.FormDataContentType())
	contains(t, f.do(r2), "<p>of a file", "Publish this page")

	f.as(control.Viewer)
	lacks(t, f.see(at), `method="post" action="/console`)
	f.post(at, map[string][]string{"do": {"check"}, "html": {"<p>"}}).is(t, http.StatusForbidden) // a viewer previews
	f.as(control.Operator)
	publish.Del("once")
	f.post(at, publish).is(t, http.StatusForbidden) // an operator publishes
}

// preview opens the preview of a page in German, which must have a text.
func (f *fixture) preview(a answer, text string) {
	f.Helper()
	address := regexp.MustCompile(`action="(/preview/[^"]+)"`).FindStringSubmatch(a.body)
	if address == nil {
		f.Fatalf("no preview: %s", a.body)
	}
	w := httptest.NewRecorder()
	f.api.server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, address[1]+"?state=queued&lang=de-DE", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), text) {
		f.Errorf("the preview: %d, without %q: %s", w.Code, text, w.Body)
	}
}
