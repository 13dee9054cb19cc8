package global_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"vestibule/internal/core/room"
	"vestibule/internal/global"
	"vestibule/internal/global/control"
	"vestibule/internal/lab/testkit"
)

// receiver is a server that webhooks are posted to.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	down     bool
	messages []message
}

// message is a received one.
type message struct {
	header http.Header
	body   []byte
	Type   string
	Data   struct {
		Text     string
		RoomName string `json:"room_name"`
	}
}

func receive(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		m := message{header: q.Header}
		var err error
		if m.body, err = io.ReadAll(q.Body); err == nil {
			err = json.Unmarshal(m.body, &m)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil || r.down {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		r.messages = append(r.messages, m)
	}))
	t.Cleanup(r.Close)
	return r
}

// of returns the IDs of the messages of a kind.
func (r *receiver) of(kind string) (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.messages {
		if m.Type == kind {
			ids = append(ids, m.header.Get("webhook-id"))
		}
	}
	return ids
}

// ask calls an operation of the API of a candidate; result may be nil.
func ask(t *testing.T, n *global.Node, method, path, body string, result any) {
	t.Helper()
	var sent any
	if body != "" {
		sent = json.RawMessage(body)
	}
	who := control.Principal{ID: "test", Name: "test", Role: control.Admin}
	if err := n.Control.API.Call(within(t), who, "127.0.0.1:1", method, path, sent, result); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

// TestNoticesAreSentAcrossATakeover: what happens in a room is posted and signed. What the leader could not deliver,
// and what changes while nobody leads, its successor delivers; nothing comes twice under two IDs.
func TestNoticesAreSentAcrossATakeover(t *testing.T) {
	t.Parallel()
	s, hooks := serve(t), receive(t)
	local := func(c *global.Config) { c.Notices.Networks = []string{"127.0.0.0/8"} }
	leader, stop := runNodeUntil(t, s, "one", local)
	eventually(t, "one leads", func() bool { return leader.Status().Leading })
	standby := runNode(t, s, "two", local)
	ask(t, leader, "PUT", "/vestibule/hosts/shop.example", `{"origin":"http://127.0.0.1:1"}`, nil)
	ask(t, leader, "POST", "/zones/"+control.Zone+"/waiting_rooms",
		`{"name":"shop","host":"shop.example","total_active_users":300,"new_users_per_minute":200}`, nil)
	var made struct{ ID, Secret string }
	ask(t, leader, "POST", "/vestibule/webhooks", `{"name":"pager","url":"`+hooks.URL+`","rooms":["shop"]}`, &made)
	controls := "/vestibule/rooms/" + room.PublicID("shop") + "/controls"
	ask(t, leader, "PATCH", controls, `{"pause":{"message":"Back soon."},"reason":"a fault"}`, nil)
	ask(t, leader, "POST", "/vestibule/rooms/"+room.PublicID("shop")+"/releases", `{"people":3}`, nil)
	when := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	ask(t, leader, "POST", "/zones/"+control.Zone+"/waiting_rooms/"+room.PublicID("shop")+"/events",
		`{"name":"sale","event_start_time":"`+when(2*time.Second)+`","event_end_time":"`+when(time.Hour)+`"}`, nil)
	eventually(t, "notices of pause and event are sent",
		func() bool { return len(hooks.of("room.paused")) == 1 && len(hooks.of("event.started")) == 1 })

	verify := testkit.Must(standardwebhooks.NewWebhook(made.Secret))(t)
	hooks.mu.Lock()
	at := slices.IndexFunc(hooks.messages, func(m message) bool { return m.Type == "room.paused" })
	first := hooks.messages[at]
	hooks.down = true
	hooks.mu.Unlock()
	if err := verify.Verify(first.body, first.header); err != nil || first.Data.RoomName != "shop" ||
		!bytes.Contains(first.body, []byte(`"reason":"a fault"`)) {
		t.Errorf("%v: %s", err, first.body)
	}

	ask(t, leader, "PATCH", controls, `{"limits":{"total_active_users":9,"until":"`+when(time.Hour)+`"}}`, nil)
	eventually(t, "the change of the limits is tried", func() bool { return retried(t, leader) })
	stop()
	ask(t, standby, "PATCH", controls, `{"pause":null}`, nil)
	hooks.mu.Lock()
	hooks.down = false
	hooks.mu.Unlock()
	eventually(t, "the successor tells the end of the pause and the limits", func() bool {
		return len(hooks.of("room.resumed")) == 1 && len(hooks.of("limit.changed")) == 1 && len(hooks.of("release.done")) == 1
	})
	for _, kind := range []string{"room.paused", "event.started"} {
		if n := len(hooks.of(kind)); n != 1 {
			t.Errorf("%s was sent %d times", kind, n)
		}
	}
	var test struct{ Delivered bool }
	if ask(t, standby, "POST", "/vestibule/webhooks/"+made.ID+"/test", "", &test); !test.Delivered {
		t.Error("the test is not delivered")
	}
	http.DefaultClient.CloseIdleConnections()
}

// retried reports whether a notice could not be delivered at once.
func retried(t *testing.T, n *global.Node) bool {
	t.Helper()
	resp := testkit.Must(http.Get(n.Debug.URL() + "/metrics"))(t)
	defer resp.Body.Close()
	text := testkit.Must(io.ReadAll(resp.Body))(t)
	_, value, has := strings.Cut(string(text), `vestibule_global_notices_total{result="retry"} `)
	return has && !strings.HasPrefix(value, "0\n")
}

// TestNoticesConfig: faults of the keys below notices are reported by their keys.
func TestNoticesConfig(t *testing.T) {
	good := func() global.NoticesConfig { return global.NoticesConfig{Networks: []string{"10.0.0.0/8"}} }
	for key, change := range map[string]func(*global.NoticesConfig){
		"":                    func(*global.NoticesConfig) {},
		"notices.networks[0]": func(c *global.NoticesConfig) { c.Networks[0] = "10.0.0.0" },
	} {
		c := good()
		change(&c)
		errs := c.Validate()
		if key == "" && len(errs) == 0 {
			continue
		}
		if key == "" || len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), key) {
			t.Errorf("%s: %v", key, errs)
		}
	}
}
