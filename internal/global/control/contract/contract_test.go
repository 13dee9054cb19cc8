package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v0 "github.com/cloudflare/cloudflare-go"
	"github.com/cloudflare/cloudflare-go/v7/option"
	"github.com/cloudflare/cloudflare-go/v7/waiting_rooms"

	"vestibule/internal/allinone"
	"vestibule/internal/global/audit"
	"vestibule/internal/lab/testkit"
)

func TestTheNewClientManagesRooms(t *testing.T) {
	x := tree(t)
	api := x.Info.Control
	h := newHeld(t, api.URL)
	site(t, x, h, "shop.example")
	ctx := t.Context()
	rooms := waiting_rooms.NewWaitingRoomService(option.WithAPIToken(api.Token), option.WithBaseURL(api.URL+"/"),
		option.WithHTTPClient(&http.Client{Transport: h}))
	query := params[waiting_rooms.QueryParam]("Name", "shop", "Host", "shop.example", "TotalActiveUsers", int64(300),
		"NewUsersPerMinute", int64(200))
	made, err := rooms.New(ctx, params[waiting_rooms.WaitingRoomNewParams]("ZoneID", api.Zone, "Query", query))
	if err != nil || made.Name != "shop" || made.SessionDuration != 5 || len(made.ID) != 32 {
		t.Fatalf("%+v %v", made, err)
	}
	testkit.Eventually(t, "the room is in force at the edge",
		func() bool { _, ticket := visit(t, x, "shop.example"); return ticket })

	_, err = rooms.New(ctx, params[waiting_rooms.WaitingRoomNewParams]("ZoneID", api.Zone, "Query", query))
	var refused *waiting_rooms.Error
	if !errors.As(err, &refused) || refused.StatusCode != 400 || refused.Errors[0].Code != 1002 {
		t.Errorf("a second room of that name: %v", err)
	}
	set(&query, "SessionDuration", int64(10), "Path", "/sale")
	put, err := rooms.Update(ctx, made.ID, params[waiting_rooms.WaitingRoomUpdateParams]("ZoneID", api.Zone,
		"Query", query))
	if err != nil || put.ID != made.ID || put.Path != "/sale" || put.SessionDuration != 10 {
		t.Errorf("%+v %v", put, err)
	}
	edited, err := rooms.Edit(ctx, made.ID, params[waiting_rooms.WaitingRoomEditParams]("ZoneID", api.Zone, "Query",
		params[waiting_rooms.QueryParam]("TotalActiveUsers", int64(400))))
	if err != nil || edited.TotalActiveUsers != 400 || edited.Path != "/sale" {
		t.Errorf("%+v %v", edited, err)
	}
	names := []string{}
	for pages := rooms.ListAutoPaging(ctx, params[waiting_rooms.WaitingRoomListParams]("ZoneID", api.Zone, "PerPage",
		5.)); pages.Next(); {
		names = append(names, pages.Current().Name)
	}
	ofAccount, err := rooms.List(ctx, params[waiting_rooms.WaitingRoomListParams]("AccountID", api.Account))
	if err != nil || fmt.Sprint(names) != "[demo shop]" || len(ofAccount.Result) != 2 {
		t.Errorf("%v %v %v", names, ofAccount, err)
	}
	status, err := rooms.Statuses.Get(ctx, made.ID, params[waiting_rooms.StatusGetParams]("ZoneID", api.Zone))
	if err != nil || status.Status != waiting_rooms.StatusGetResponseStatusNotQueueing {
		t.Errorf("%+v %v", status, err)
	}
	shown, err := rooms.Page.Preview(ctx, params[waiting_rooms.PagePreviewParams]("ZoneID", api.Zone, "CustomHTML",
		"<p>{{waitTime}}</p>"))
	if err != nil || !strings.Contains(shown.PreviewURL, "/preview/") {
		t.Errorf("%+v %v", shown, err)
	}
	settings, err := rooms.Settings.Update(ctx, params[waiting_rooms.SettingUpdateParams]("ZoneID", api.Zone,
		"SearchEngineCrawlerBypass", false))
	if err != nil || settings.SearchEngineCrawlerBypass {
		t.Errorf("%+v %v", settings, err)
	}
	if _, err = rooms.Settings.Edit(ctx, params[waiting_rooms.SettingEditParams]("ZoneID", api.Zone,
		"SearchEngineCrawlerBypass", false)); err != nil {
		t.Error(err)
	}
	if _, err = rooms.Settings.Get(ctx, params[waiting_rooms.SettingGetParams]("ZoneID", api.Zone)); err != nil {
		t.Error(err)
	}
	manageEvents(t, rooms, api.Zone, made.ID)
	manageRules(t, rooms, api.Zone, made.ID)
	gone, err := rooms.Delete(ctx, made.ID, params[waiting_rooms.WaitingRoomDeleteParams]("ZoneID", api.Zone))
	if err != nil || gone.ID != made.ID {
		t.Errorf("%+v %v", gone, err)
	}
	_, err = rooms.Get(ctx, made.ID, params[waiting_rooms.WaitingRoomGetParams]("ZoneID", api.Zone))
	if !errors.As(err, &refused) || refused.StatusCode != 404 {
		t.Errorf("a room that is gone: %v", err)
	}
	if served := len(h.calls) - 1; served != 24 { // all except put-host
		t.Errorf("%d operations of the hosted API were called: %v", served, h.calls)
	}
}

// manageEvents calls every operation of events by the new client.
func manageEvents(t *testing.T, rooms *waiting_rooms.WaitingRoomService, zone, id string) {
	t.Helper()
	ctx := t.Context()
	at := func(d time.Duration) string {
		return time.Now().Add(d).UTC().Truncate(time.Second).Format(time.RFC3339)
	}
	query := params[waiting_rooms.EventQueryParam]("Name", "launch", "EventStartTime", at(24*time.Hour), "EventEndTime",
		at(25*time.Hour), "TotalActiveUsers", int64(500), "NewUsersPerMinute", int64(400))
	made, err := rooms.Events.New(ctx, id, params[waiting_rooms.EventNewParams]("ZoneID", zone, "EventQuery", query))
	if err != nil || made.Name != "launch" || made.TotalActiveUsers != 500 || len(made.ID) != 32 {
		t.Fatalf("%+v %v", made, err)
	}
	set(&query, "PrequeueStartTime", at(23*time.Hour), "DisableSessionRenewal", true)
	put, err := rooms.Events.Update(ctx, id, made.ID, params[waiting_rooms.EventUpdateParams]("ZoneID", zone,
		"EventQuery", query))
	if err != nil || put.ID != made.ID || !put.DisableSessionRenewal || put.PrequeueStartTime == "" {
		t.Errorf("%+v %v", put, err)
	}
	edited, err := rooms.Events.Edit(ctx, id, made.ID, params[waiting_rooms.EventEditParams]("ZoneID", zone, "EventQuery",
		params[waiting_rooms.EventQueryParam]("Suspended", true)))
	if err != nil || !edited.Suspended || !edited.DisableSessionRenewal {
		t.Errorf("%+v %v", edited, err)
	}
	got, err := rooms.Events.Get(ctx, id, made.ID, params[waiting_rooms.EventGetParams]("ZoneID", zone))
	if err != nil || !got.Suspended || got.EventStartTime != made.EventStartTime {
		t.Errorf("%+v %v", got, err)
	}
	details, err := rooms.Events.Details.Get(ctx, id, made.ID, params[waiting_rooms.EventDetailGetParams]("ZoneID", zone))
	if err != nil || details.SessionDuration != 10 || details.TotalActiveUsers != 500 || details.QueueingMethod != "fifo" {
		t.Errorf("%+v %v", details, err)
	}
	n := 0
	for pages := rooms.Events.ListAutoPaging(ctx, id, params[waiting_rooms.EventListParams]("ZoneID", zone, "PerPage",
		5.)); pages.Next(); {
		n++
	}
	var refused *waiting_rooms.Error
	set(&query, "TotalActiveUsers", int64(-1))
	if _, err = rooms.Events.Update(ctx, id, made.ID, params[waiting_rooms.EventUpdateParams]("ZoneID", zone, "EventQuery",
		query)); !errors.As(err, &refused) || refused.Errors[0].Code != 1002 {
		t.Errorf("no limit: %v", err)
	}
	set(&query, "TotalActiveUsers", int64(500), "ShuffleAtEventStart", true)
	testkit.Eventually(t, "a draw is taken, once all edges are heard", func() bool {
		e, err := rooms.Events.Update(ctx, id, made.ID, params[waiting_rooms.EventUpdateParams]("ZoneID", zone,
			"EventQuery", query))
		return err == nil && e.ShuffleAtEventStart
	})
	gone, err := rooms.Events.Delete(ctx, id, made.ID, params[waiting_rooms.EventDeleteParams]("ZoneID", zone))
	if err != nil || n != 1 || gone.ID != made.ID {
		t.Errorf("%d events, %+v %v", n, gone, err)
	}
}

// manageRules calls every operation of rules by the new client.
func manageRules(t *testing.T, rooms *waiting_rooms.WaitingRoomService, zone, id string) {
	t.Helper()
	ctx := t.Context()
	rule := params[waiting_rooms.RuleNewParamsRules]("Action", waiting_rooms.RuleNewParamsRulesActionBypassWaitingRoom,
		"Expression", "ssl")
	made, err := rooms.Rules.New(ctx, id, params[waiting_rooms.RuleNewParams]("ZoneID", zone, "Rules", rule))
	if err != nil || len(made.Result) != 1 {
		t.Fatalf("%+v %v", made, err)
	}
	list := []waiting_rooms.RuleUpdateParamsRule{
		params[waiting_rooms.RuleUpdateParamsRule]("Action", waiting_rooms.RuleUpdateParamsRulesActionBypassWaitingRoom,
			"Expression", "not ssl"),
		params[waiting_rooms.RuleUpdateParamsRule]("Action", waiting_rooms.RuleUpdateParamsRulesActionBypassWaitingRoom,
			"Expression", "ssl"),
	}
	put, err := rooms.Rules.Update(ctx, id, params[waiting_rooms.RuleUpdateParams]("ZoneID", zone, "Rules", list))
	if err != nil || len(put.Result) != 2 || put.Result[1].ID != made.Result[0].ID {
		t.Fatalf("%+v %v", put, err)
	}
	edited, err := rooms.Rules.Edit(ctx, id, put.Result[0].ID, params[waiting_rooms.RuleEditParams]("ZoneID", zone,
		"Action", waiting_rooms.RuleEditParamsActionBypassWaitingRoom, "Expression", "cf.client.bot", "Enabled", false))
	if err != nil || len(edited.Result) != 2 || edited.Result[0].Enabled ||
		edited.Result[0].Expression != "cf.client.bot" {
		t.Errorf("%+v %v", edited, err)
	}
	left, err := rooms.Rules.Delete(ctx, id, put.Result[0].ID, params[waiting_rooms.RuleDeleteParams]("ZoneID", zone))
	if err != nil || len(left.Result) != 1 {
		t.Errorf("%+v %v", left, err)
	}
	if got, err := rooms.Rules.Get(ctx, id, params[waiting_rooms.RuleGetParams]("ZoneID", zone)); err != nil ||
		len(got.Result) != 1 || got.Result[0].Expression != "ssl" {
		t.Errorf("%+v %v", got, err)
	}
}

// own calls an operation that the hosted product has not, held against the document, and returns its
// result.
func own[T any](t *testing.T, x *allinone.Tree, h *held, method, path, body string) (result T) {
	t.Helper()
	res := testkit.Must(h.RoundTrip(request(t, x, method, path, body)))(t)
	a := struct{ Result *T }{&result}
	err := json.NewDecoder(res.Body).Decode(&a)
	if err = errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d %v", method, path, res.StatusCode, err)
	}
	return result
}

func TestOwnOperationsAreInTheDocument(t *testing.T) {
	x := tree(t)
	h := newHeld(t, x.Info.Control.URL)
	site(t, x, h, "shop.example")
	rooms := "/zones/" + x.Info.Control.Zone + "/waiting_rooms"
	made := own[struct{ ID string }](t, x, h, "POST", rooms,
		`{"name":"shop","host":"shop.example","total_active_users":300,"new_users_per_minute":200}`)
	own[any](t, x, h, "PATCH", rooms+"/"+made.ID, `{"total_active_users":301}`)
	own[any](t, x, h, "GET", "/vestibule/status?room=shop", "")
	token := own[struct{ ID, Value string }](t, x, h, "POST", "/vestibule/tokens", `{"name":"ci","role":"editor"}`)
	own[any](t, x, h, "GET", "/vestibule/tokens", "")
	own[any](t, x, h, "DELETE", "/vestibule/tokens/"+token.ID, "")
	own[any](t, x, h, "DELETE", rooms+"/"+made.ID, "")
	revisions := own[[]struct{ Revision uint64 }](t, x, h, "GET", "/vestibule/rooms/"+made.ID+"/revisions", "")
	if len(revisions) != 3 {
		t.Fatalf("%+v", revisions)
	}
	back := own[struct {
		Total int `json:"total_active_users"`
	}](t, x, h, "POST", fmt.Sprintf("/vestibule/rooms/%s/revisions/%d/restore", made.ID, revisions[1].Revision), "")
	if back.Total != 301 {
		t.Errorf("restored: %+v", back)
	}
	exported := own[struct {
		File string `json:"rooms_yaml"`
	}](t, x, h, "GET", "/vestibule/export", "")
	if !strings.Contains(exported.File, `name: "shop"`) {
		t.Errorf("%s", exported.File)
	}
	dry := testkit.Must(json.Marshal(map[string]any{"rooms_yaml": "rooms: []\n", "dry_run": true}))(t)
	own[any](t, x, h, "POST", "/vestibule/apply", string(dry))
	testkit.Eventually(t, "the fleet is shown", func() bool {
		fleet := own[struct {
			Leader      string
			DataCenters []struct {
				Name    string
				Told    bool
				Permits int
			} `json:"data_centers"`
		}](t, x, h, "GET", "/vestibule/fleet", "")
		return fleet.Leader != "" && len(fleet.DataCenters) == 1 && fleet.DataCenters[0].Name == "nairobi" &&
			fleet.DataCenters[0].Told && fleet.DataCenters[0].Permits > 0
	})
	testkit.Eventually(t, "the list of data centres is made", func() bool {
		return good(h.RoundTrip(request(t, x, "GET", "/vestibule/data_centers", "")))
	})
	own[any](t, x, h, "PUT", "/vestibule/data_centers/lima", `{"state":"active"}`)
	own[any](t, x, h, "DELETE", "/vestibule/data_centers/lima?force=true", "")
	own[any](t, x, h, "GET", "/vestibule/audit?room=shop", "")
	var chain audit.Chain
	entries := own[[]struct{ Entry json.RawMessage }](t, x, h, "GET", "/vestibule/audit?from=1&per_page=100", "")
	for _, e := range entries {
		if _, gap, err := chain.Next(e.Entry); err != nil || gap != "" {
			t.Errorf("%s: %v %s", e.Entry, err, gap)
		}
	}
	if len(entries) < 9 { // the first token, the demo's, its room, and the seven above
		t.Errorf("%d entries", len(entries))
	}
}

// The clients of the hosted product show the source of the rooms, and do not retry: each request is made once.
func TestTheClientsSayThatRoomsComeFromAFile(t *testing.T) {
	x := begin(t, func(*allinone.Options) {})
	api := x.Info.Control
	h := newHeld(t, api.URL)
	ctx := t.Context()
	rooms := waiting_rooms.NewWaitingRoomService(option.WithAPIToken(api.Token), option.WithBaseURL(api.URL+"/"),
		option.WithHTTPClient(&http.Client{Transport: h}))
	var id string
	testkit.Eventually(t, "the room of the file is there", func() bool {
		all, err := rooms.List(ctx, params[waiting_rooms.WaitingRoomListParams]("AccountID", api.Account))
		if err == nil && len(all.Result) == 1 {
			id = all.Result[0].ID
		}
		return id != ""
	})
	says := "rooms come from " + filepath.Join(filepath.Dir(x.Info.Split), "rooms.yaml") + ": change them there"
	_, err := rooms.Delete(ctx, id, params[waiting_rooms.WaitingRoomDeleteParams]("ZoneID", api.Zone))
	var refused *waiting_rooms.Error
	if !errors.As(err, &refused) || refused.StatusCode != 400 || refused.Errors[0].Code != 1101 ||
		!strings.Contains(err.Error(), says) {
		t.Errorf("%v, want %s", err, says)
	}
	old := testkit.Must(v0.NewWithAPIToken(api.Token, v0.BaseURL(api.URL), v0.HTTPClient(&http.Client{Transport: h})))(t)
	if err := old.DeleteWaitingRoom(ctx, api.Zone, id); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want %s", err, says)
	}
	for operation, n := range h.calls {
		if strings.Contains(operation, "delete") && n != 2 {
			t.Errorf("%s was called %d times", operation, n)
		}
	}
}

func TestTheOldClientManagesRooms(t *testing.T) {
	x := tree(t)
	api := x.Info.Control
	h := newHeld(t, api.URL)
	site(t, x, h, "shop.example")
	ctx := t.Context()
	for _, key := range []bool{false, true} {
		opts := []v0.Option{v0.BaseURL(api.URL), v0.HTTPClient(&http.Client{Transport: h})}
		client, err := v0.NewWithAPIToken(api.Token, opts...)
		if key {
			client, err = v0.New(api.Token, "ops@shop.example", opts...)
		}
		testkit.NoError(t, err)
		want := v0.WaitingRoom{
			Name: "shop", Host: "shop.example", TotalActiveUsers: 300, NewUsersPerMinute: 200,
			QueueingMethod: "FIFO",
		}
		made, err := client.CreateWaitingRoom(ctx, api.Zone, want)
		if err != nil || made.Path != "/" || made.QueueingStatusCode != 200 {
			t.Fatalf("%+v %v", made, err)
		}
		want.ID, want.SessionDuration = made.ID, 7
		put, err := client.UpdateWaitingRoom(ctx, api.Zone, want)
		if err != nil || put.SessionDuration != 7 {
			t.Errorf("%+v %v", put, err)
		}
		put.TotalActiveUsers = 500
		patched, err := client.ChangeWaitingRoom(ctx, api.Zone, made.ID, put)
		if err != nil || patched.TotalActiveUsers != 500 {
			t.Errorf("%+v %v", patched, err)
		}
		list, err := client.ListWaitingRooms(ctx, api.Zone)
		if err != nil || len(list) != 2 {
			t.Errorf("%+v %v", list, err)
		}
		if one, err := client.WaitingRoom(ctx, api.Zone, made.ID); err != nil || one.Name != "shop" {
			t.Errorf("%+v %v", one, err)
		}
		if status, err := client.WaitingRoomStatus(ctx, api.Zone, made.ID); err != nil || status.Status != "not_queueing" {
			t.Errorf("%+v %v", status, err)
		}
		if shown, err := client.WaitingRoomPagePreview(ctx, api.Zone, "<p>{{waitTime}}</p>"); err != nil ||
			shown.PreviewURL == "" {
			t.Errorf("%+v %v", shown, err)
		}
		zone := v0.ZoneIdentifier(api.Zone)
		off := false
		if _, err := client.GetWaitingRoomSettings(ctx, zone); err != nil {
			t.Error(err)
		}
		if _, err := client.PatchWaitingRoomSettings(ctx, zone,
			v0.PatchWaitingRoomSettingsParams{SearchEngineCrawlerBypass: &off}); err != nil {
			t.Error(err)
		}
		if _, err := client.UpdateWaitingRoomSettings(ctx, zone,
			v0.UpdateWaitingRoomSettingsParams{SearchEngineCrawlerBypass: &off}); err != nil {
			t.Error(err)
		}
		start := time.Now().Add(24 * time.Hour).Truncate(time.Second).UTC()
		before := start.Add(-time.Hour)
		event, err := client.CreateWaitingRoomEvent(ctx, api.Zone, made.ID, v0.WaitingRoomEvent{
			Name:           "launch",
			EventStartTime: start, EventEndTime: start.Add(time.Hour), PrequeueStartTime: &before,
		})
		if err != nil || !event.EventStartTime.Equal(start) || event.PrequeueStartTime == nil || event.TotalActiveUsers != 0 {
			t.Fatalf("%+v %v", event, err)
		}
		event.TotalActiveUsers, event.NewUsersPerMinute = 50, 40
		written, err := client.UpdateWaitingRoomEvent(ctx, api.Zone, made.ID, *event)
		if err != nil || written.TotalActiveUsers != 50 {
			t.Errorf("%+v %v", written, err)
		}
		written.Suspended = true
		if changed, err := client.ChangeWaitingRoomEvent(ctx, api.Zone, made.ID, written); err != nil || !changed.Suspended ||
			changed.TotalActiveUsers != 50 {
			t.Errorf("%+v %v", changed, err)
		}
		events, err := client.ListWaitingRoomEvents(ctx, api.Zone, made.ID)
		if err != nil || len(events) != 1 {
			t.Errorf("%+v %v", events, err)
		}
		if one, err := client.WaitingRoomEvent(ctx, api.Zone, made.ID, event.ID); err != nil || one.Name != "launch" {
			t.Errorf("%+v %v", one, err)
		}
		if full, err := client.WaitingRoomEventPreview(ctx, api.Zone, made.ID, event.ID); err != nil ||
			full.SessionDuration != 7 || full.TotalActiveUsers != 50 {
			t.Errorf("%+v %v", full, err)
		}
		if err := client.DeleteWaitingRoomEvent(ctx, api.Zone, made.ID, event.ID); err != nil {
			t.Error(err)
		}
		if err := client.DeleteWaitingRoom(ctx, api.Zone, made.ID); err != nil {
			t.Error(err)
		}
		_, err = client.WaitingRoom(ctx, api.Zone, made.ID)
		if missing, ok := errors.AsType[*v0.NotFoundError](err); !ok || missing.ErrorCodes()[0] != 1001 {
			t.Errorf("a room that is gone: %v", err)
		}
	}
}

// The official npm client, by a script: node and npm install it.
func TestTheNpmClientManagesRooms(t *testing.T) {
	node, npm := testkit.Program(t, "node"), testkit.Program(t, "npm")
	ctx := testkit.Within(t)
	dir := t.TempDir()
	testkit.NoError(t, os.CopyFS(dir, os.DirFS("npm")))
	install := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("the client cannot be installed: run make packages where npm has a registry: %v\n%s", err, out)
	}
	x := tree(t)
	api := x.Info.Control
	h := newHeld(t, api.URL)
	site(t, x, h, "shop.example")
	to := testkit.Must(url.Parse(api.URL))(t)
	between := httptest.NewServer(&httputil.ReverseProxy{
		Transport: h,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Header.Del("Accept-Encoding") },
	})
	defer between.Close()
	script := exec.CommandContext(ctx, node, "rooms.mjs")
	script.Dir = dir
	script.Env = append(os.Environ(), "BASE="+between.URL, "TOKEN="+api.Token, "ZONE="+api.Zone, "ACCOUNT="+api.Account)
	var stderr bytes.Buffer
	script.Stderr = &stderr
	out, err := script.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	type made struct {
		ID, Name, Path  string
		TotalActive     int `json:"total_active_users"`
		SessionDuration int `json:"session_duration"`
	}
	type refusal struct {
		Status int
		Codes  []int
	}
	type rule struct{ ID, Version, Description string }
	type event struct {
		ID, Name    string
		Suspended   bool
		TotalActive int `json:"total_active_users"`
		Duration    int `json:"session_duration"`
	}
	var output struct {
		Made, Put, Edited, Got, Deleted made
		Twice, Gone                     *refusal
		Zone, Account                   []string
		Status                          struct{ Status string }
		Preview                         struct {
			URL string `json:"preview_url"`
		}
		Settings []struct {
			Bypass *bool `json:"search_engine_crawler_bypass"`
		}
		Rules  struct{ Edited, Listed, Replaced, Deleted []rule }
		Events struct {
			Made, Put, Edited, Got, Details, Deleted event
			Listed                                   []string
		}
	}
	if err := json.Unmarshal(out, &output); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	id := output.Made.ID
	want := made{id, "shop", "/sale", 300, 10}
	if len(id) != 32 || output.Put != want {
		t.Errorf("made %+v, put %+v", output.Made, output.Put)
	}
	if want.TotalActive = 400; output.Edited != want || output.Got != want || output.Deleted.ID != id {
		t.Errorf("edited %+v, got %+v, deleted %+v", output.Edited, output.Got, output.Deleted)
	}
	if !reflect.DeepEqual(output.Twice, &refusal{400, []int{1002}}) ||
		!reflect.DeepEqual(output.Gone, &refusal{404, []int{1001}}) {
		t.Errorf("a second one of its name: %+v, gone: %+v", output.Twice, output.Gone)
	}
	if names := []string{"demo", "shop"}; !slices.Equal(output.Zone, names) || !slices.Equal(output.Account, names) {
		t.Errorf("%v, %v", output.Zone, output.Account)
	}
	if output.Status.Status != "not_queueing" || !strings.Contains(output.Preview.URL, "/preview/") ||
		len(output.Settings) != 3 {
		t.Errorf("%+v %+v %+v", output.Status, output.Preview, output.Settings)
	}
	for i, s := range output.Settings {
		if s.Bypass == nil || *s.Bypass {
			t.Errorf("settings %d: %+v", i, s)
		}
	}
	r := output.Rules
	if len(r.Listed) != 1 || r.Listed[0].Description != "edited" || r.Listed[0].Version != "2" ||
		!reflect.DeepEqual(r.Edited, r.Listed) {
		t.Errorf("one rule: %+v, %+v", r.Edited, r.Listed)
	}
	if len(r.Replaced) != 2 || r.Replaced[0].ID != r.Listed[0].ID || len(r.Deleted) != 1 ||
		r.Deleted[0].Description != "two" {
		t.Errorf("rules %+v, of which %+v are left", r.Replaced, r.Deleted)
	}
	e := output.Events
	if e.Made.Name != "launch" || e.Made.TotalActive != 500 ||
		e.Put != (event{e.Made.ID, "launch", false, 600, e.Put.Duration}) || !e.Edited.Suspended || e.Got != e.Edited {
		t.Errorf("an event was made as %+v, put %+v, edited %+v, got %+v", e.Made, e.Put, e.Edited, e.Got)
	}
	if e.Details.Duration != 10 || e.Details.TotalActive != 600 || e.Deleted.ID != e.Made.ID ||
		!slices.Equal(e.Listed, []string{"launch"}) {
		t.Errorf("in full it is %+v; deleted %+v; listed %q", e.Details, e.Deleted, e.Listed)
	}
	if served := len(h.calls) - 1; served != 24 { // without put-host
		t.Errorf("%d operations of the hosted API were called: %v", served, h.calls)
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	os.Exit(code)
}
