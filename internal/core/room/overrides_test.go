package room

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vestibule/internal/lab/testkit"
)

// TestOverridesInDocuments: builds before [Overrides] wrote every override, with 0, "" or "0s" for the room's value,
// and those that are true or false as a number. They read what is written now: it has no other form.
func TestOverridesInDocuments(t *testing.T) {
	const start = `{"rooms":[{"name":"sale","events":[{"id":"e72a2bedbe0705b1f964fb14980b325d","name":"launch","description":"",`
	const then = `"prequeue":0,"start":1795348200000,"end":1795350000000,"created":5,"changed":6,"suspended":false,`
	for _, c := range []struct {
		before, now string
		want        Overrides
	}{
		{
			`"queueing_method":"reject","waiting_page":"p",` + then +
				`"total_active_users":1000,"new_users_per_minute":400,"disable_session_renewal":1,"session_duration":"1m0s"`,
			then +
				`"total_active_users":1000,"new_users_per_minute":400,"session_duration":"1m0s","waiting_page":"p","queueing_method":"reject","disable_session_renewal":1`,
			Overrides{
				"total_active_users": 1000, "new_users_per_minute": 400, "session_duration": time.Minute,
				"disable_session_renewal": false, "queueing_method": MethodReject, "waiting_page": "p",
			},
		},
		{
			`"queueing_method":"","waiting_page":"",` + then +
				`"total_active_users":0,"new_users_per_minute":0,"disable_session_renewal":2,"session_duration":"0s"`,
			then + `"disable_session_renewal":2`,
			Overrides{"disable_session_renewal": true},
		},
		{
			`"queueing_method":"","waiting_page":"",` + then +
				`"total_active_users":0,"new_users_per_minute":0,"disable_session_renewal":0,"session_duration":"0s"`,
			strings.TrimSuffix(then, ","), nil,
		},
	} {
		doc, err := DecodeDocument([]byte(start + c.before + "}]}]}"))
		if err != nil {
			t.Fatal(err)
		}
		doc = doc.WithDefaults()
		if diff := cmp.Diff(c.want, doc.Rooms[0].Events[0].Overrides); diff != "" {
			t.Error(diff)
		}
		data, err := EncodeDocument(doc)
		if err != nil || !strings.Contains(string(data), `"description":"",`+c.now+"}]") {
			t.Errorf("%s: %v", data, err)
		}
	}
}

// TestASettingThatEventsMayOverride: the table alone decides. A build whose table does not say so refuses the document.
func TestASettingThatEventsMayOverride(t *testing.T) {
	line, _ := settingByKey("queue_message")
	e := launch()
	e.Overrides["queue_message"] = "Soon."
	doc := Document{Rooms: []Settings{sale(e)}}
	if err := doc.Validate().Err(); err == nil ||
		!strings.Contains(err.Error(), "events[0].queue_message: is not a setting that an event may override") {
		t.Errorf("before: %v", err)
	}
	line.Events = true
	data := testkit.Must(EncodeDocument(doc))(t)
	got, err := DecodeDocument(data)
	line.Events = false
	if err != nil || len(got.Validate()) == 0 {
		t.Fatalf("%s: %v", data, err)
	}
	if _, err := DecodeDocument(data); !errors.Is(err, ErrUnknownField) {
		t.Errorf("another build reads %s: %v", data, err)
	}
	line.Events = true
	defer func() { line.Events = false }()
	r := got.Rooms[0].WithDefaults()
	if in := r.In(r.Plan().At(at(5))); in.QueueMessage != "Soon." || r.QueueMessage != "" || len(got.Validate()) > 0 {
		t.Errorf("in the event the message is %q: %v", in.QueueMessage, got.Validate())
	}
}

// TestOverridesShareNoMemory: an edit of an event changes no other copy of it.
func TestOverridesShareNoMemory(t *testing.T) {
	first := launch()
	second, s := first, Settings{QueueingMethod: MethodReject}
	method, _ := settingByKey("queueing_method")
	second.Override(method, &s)
	third := second
	third.Inherit(method)
	third.Override(method, &Settings{}) // the room's
	if diff := cmp.Diff(first, third); diff != "" || second.same(first) || len(second.Overrides) != 3 {
		t.Errorf("%v, %s", second.Overrides, diff)
	}
}
