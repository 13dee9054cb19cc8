package room

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vestibule/internal/lab/testkit"
)

const published = `{"rooms":[{"name":"tickets","host":"shop.example.com","path":"/sale?<é",` +
	`"additional_routes":[{"host":"m.example.com","path":"/sale"}],"total_active_users":1000,"new_users_per_minute":600,` +
	`"session_duration":"6m0s","probation":"30s","grace":"1m30s","partition_policy":"cap","lost_after":"20m0s","on_isolation":"open","isolation_limit":50,"origin":"http://10.0.0.5:8080","queueing_status_code":202,"waiting_page":"page.html","default_template_language":"de-DE","queue_message":"Ça vient.","epoch":4294967295}],` +
	`"hosts":[{"name":"shop.example.com","origin":"http://10.0.0.5:8080"}]}`

var publishedDoc = Document{
	Rooms: []Settings{{
		Name: "tickets", Host: "shop.example.com", Path: "/sale?<é", AdditionalRoutes: []Route{{"m.example.com", "/sale"}},
		TotalActiveUsers: 1000, NewUsersPerMinute: 600, SessionDuration: 6 * time.Minute,
		Probation: 30 * time.Second, Grace: 90 * time.Second, PartitionPolicy: PolicyCap, LostAfter: 20 * time.Minute,
		OnIsolation: IsolationOpen, IsolationLimit: 50, Origin: "http://10.0.0.5:8080",
		QueueingStatus: 202, WaitingPage: "page.html", DefaultLanguage: "de-DE", QueueMessage: "Ça vient.",
		Epoch: 4294967295,
	}},
	Hosts: []Host{{"shop.example.com", "http://10.0.0.5:8080"}},
}

func TestEncodeDocument(t *testing.T) {
	got := testkit.Must(EncodeDocument(publishedDoc))(t)
	want := strings.ReplaceAll(published, "<", `\u003c`)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	if got, err := EncodeDocument(Document{}); err != nil || string(got) != `{"rooms":[],"hosts":[]}` {
		t.Errorf("the empty document is %s, %v", got, err)
	}
	for field, doc := range map[string]Document{
		"rooms[1]: not UTF-8":                       {Rooms: []Settings{{}, {Name: "\xff"}}},
		"rooms[0]: additional_routes[1]: not UTF-8": {Rooms: []Settings{{AdditionalRoutes: []Route{{}, {Path: "\xff"}}}}},
		"hosts[0]: not UTF-8":                       {Hosts: []Host{{Origin: "\xff"}}},
		"at most 16777216":                          {Hosts: []Host{{Origin: strings.Repeat("x", MaxDocumentBytes)}}},
	} {
		if data, err := EncodeDocument(doc); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("encoded as %.40s, %v; want an error with %q", data, err, field)
		}
	}
}

func TestDecodeDocument(t *testing.T) {
	got := testkit.Must(DecodeDocument([]byte(" " + published + "\n")))(t)
	if diff := cmp.Diff(publishedDoc, got); diff != "" {
		t.Error(diff)
	}
	if got, err := DecodeDocument([]byte(`{"rooms":[]}`)); err != nil || len(got.Rooms)+len(got.Hosts) > 0 {
		t.Errorf("no rooms are %v, %v", got, err)
	}
}

func TestDecodeDocumentIsStrict(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		{``, "document: unexpected EOF"},
		{`null`, "document: must be an object"},
		{`[]`, "document: must be an object"},
		{`{}`, "rooms: is required"},
		{`{"hosts":[]}`, "rooms: is required"},
		{`{"rooms":null}`, "rooms: must be a list"},
		{`{"rooms":{}}`, "rooms: must be a list"},
		{`{"rooms":[]} {}`, "trailing data"},
		{`{"rooms":[]}]`, "trailing data"},
		{`{"rooms":[]}x`, "trailing data"},
		{`{"rooms":[],"rooms":[]}`, "rooms: duplicate field"},
		{`{"rooms":[],"Rooms":[]}`, "Rooms: unknown field"},
		{`{"rooms":[],"x":1}`, "x: unknown field"},
		{`{"rooms":[]`, "document: unexpected EOF"},
		{`{"rooms":[`, "rooms: unexpected EOF"},
		{`{"rooms":[{"name":`, "rooms[0].name: unexpected EOF"},
		{`{"rooms":[,]}`, "rooms[0]: invalid character"},
		{`{"rooms":[null]}`, "rooms[0]: must be an object"},
		{`{"rooms":[{"name":"a","name":"a"}]}`, "rooms[0].name: duplicate field"},
		{`{"rooms":[{"name":"a","n\u0061me":"a"}]}`, "rooms[0].name: duplicate field"},
		{`{"rooms":[{},{"NAME":"a"}]}`, "rooms[1].NAME: unknown field"},
		{`{"rooms":[{"name":null}]}`, "rooms[0].name: must be a text"},
		{`{"rooms":[{"name":1}]}`, "rooms[0].name: must be a text"},
		{`{"rooms":[{"name":["a"]}]}`, "rooms[0].name: must be a text"},
		{`{"rooms":[{"total_active_users":"1"}]}`, "rooms[0].total_active_users: must be a whole number"},
		{`{"rooms":[{"total_active_users":1.0}]}`, "rooms[0].total_active_users: must be a whole number"},
		{`{"rooms":[{"new_users_per_minute":1e3}]}`, "rooms[0].new_users_per_minute: must be a whole number"},
		{
			`{"rooms":[{"queueing_status_code":99999999999999999999}]}`,
			"rooms[0].queueing_status_code: must be a whole number",
		},
		{`{"rooms":[{"epoch":4294967296}]}`, "rooms[0].epoch: must be a whole number of 0 to 4294967295"},
		{`{"rooms":[{"epoch":-1}]}`, "rooms[0].epoch: must be a whole number of 0 to 4294967295"},
		{`{"rooms":[{"session_duration":300}]}`, "rooms[0].session_duration: must be a text"},
		{`{"rooms":[{"session_duration":"300"}]}`, "rooms[0].session_duration: must be a duration"},
		{`{"rooms":[{"partition_policy":1}]}`, "rooms[0].partition_policy: must be a text"},
		{`{"rooms":[{"lost_after":"1"}]}`, "rooms[0].lost_after: must be a duration"},
		{`{"rooms":[{"on_isolation":false}]}`, "rooms[0].on_isolation: must be a text"},
		{`{"rooms":[{"isolation_limit":0.5}]}`, "rooms[0].isolation_limit: must be a whole number"},
		{
			`{"rooms":[{"additional_routes":[{"host":"a"},{"host":"b","port":1}]}]}`,
			"rooms[0].additional_routes[1].port: unknown field",
		},
		{
			`{"rooms":[{"additional_routes":[` + strings.Repeat(`{},`, MaxRoutes) + `{}]}]}`,
			"rooms[0].additional_routes: must be a list of at most 64",
		},
		{`{"rooms":[` + strings.Repeat(`{},`, MaxRooms) + `{}]}`, "rooms: must be a list of at most 10000"},
		{`{"rooms":[],"hosts":[{"name":"a","origin":"b","origin":"c"}]}`, "hosts[0].origin: duplicate field"},
		{`{"rooms":[],"hosts":[{"path":"a"}]}`, "hosts[0].path: unknown field"},
		{"{\"rooms\":[],\"hosts\":[{\"name\":\"\xff\"}]}", "not UTF-8"},
		{strings.Repeat(" ", MaxDocumentBytes) + `{"rooms":[]}`, "at most 16777216"},
	} {
		doc, err := DecodeDocument([]byte(c.data))
		if err == nil || !strings.HasPrefix(err.Error(), "decode rooms: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: error %v, want %q", c.data, err, c.want)
		}
		if err != nil && (doc.Rooms != nil || doc.Hosts != nil) {
			t.Errorf("%.60s: half a document with the error", c.data)
		}
	}
}

func TestDocumentRoundTrip(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "<&>\u2028", "a\x00b", `"\`}))
	rapid.Check(t, func(t *rapid.T) {
		var doc Document
		for range rapid.IntRange(0, 3).Draw(t, "rooms") {
			s := Settings{
				Name: text.Draw(t, "name"), Host: text.Draw(t, "host"), Path: text.Draw(t, "path"),
				TotalActiveUsers: rapid.Int().Draw(t, "T"), NewUsersPerMinute: rapid.Int().Draw(t, "R"),
				SessionDuration: time.Duration(rapid.Int64().Draw(t, "session")),
				Probation:       time.Duration(rapid.Int64().Draw(t, "probation")),
				Grace:           time.Duration(rapid.Int64().Draw(t, "grace")), PartitionPolicy: text.Draw(t, "policy"),
				LostAfter:   time.Duration(rapid.Int64().Draw(t, "lost")),
				OnIsolation: text.Draw(t, "isolation"), IsolationLimit: rapid.Int().Draw(t, "limit"),
				Origin:         text.Draw(t, "origin"),
				QueueingStatus: rapid.Int().Draw(t, "status"), WaitingPage: text.Draw(t, "page"),
				DefaultLanguage: text.Draw(t, "language"), QueueMessage: text.Draw(t, "message"),
				Epoch:         rapid.Uint32().Draw(t, "epoch"),
				TicketBinding: rapid.SampledFrom([]string{"", BindingNetwork, BindingStrict, "<&>"}).Draw(t, "binding"),
			}
			for range rapid.IntRange(0, 2).Draw(t, "routes") {
				s.AdditionalRoutes = append(s.AdditionalRoutes, Route{text.Draw(t, "host"), text.Draw(t, "path")})
			}
			doc.Rooms = append(doc.Rooms, s)
		}
		for range rapid.IntRange(0, 2).Draw(t, "hosts") {
			doc.Hosts = append(doc.Hosts, Host{text.Draw(t, "name"), text.Draw(t, "origin")})
		}
		data := testkit.Must(EncodeDocument(doc))(t)
		got := testkit.Must(DecodeDocument(data))(t)
		if diff := cmp.Diff(doc, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzDecodeDocument(f *testing.F) {
	f.Add([]byte(published))
	f.Add([]byte(`{"rooms":[{},{"name":"a","session_duration":"-1.5h"}]}`))
	f.Add([]byte(`{"rooms":[],"hosts":[{"name":"a","origin":"b"}]}`))
	f.Add([]byte(`{"rooms":[{"name":"a","name":"b"}]} x`))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := DecodeDocument(data)
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("%q is not JSON", data)
		}
		once := testkit.Must(EncodeDocument(doc))(t)
		again := testkit.Must(DecodeDocument(once))(t)
		if diff := cmp.Diff(doc, again); diff != "" {
			t.Fatal(diff)
		}
		twice, err := EncodeDocument(again)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s, then %s, %v", once, twice, err)
		}
		_, _ = NewSet(doc, 1) // must not panic, whatever was published
	})
}
