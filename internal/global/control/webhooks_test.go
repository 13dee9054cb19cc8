package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vestibule/internal/global/notices"
)

func TestWebhooks(t *testing.T) {
	f := start(t)
	f.ask(Editor, "POST", "{z}", shop+"}")
	made := f.ask(Admin, "POST", "/vestibule/webhooks",
		`{"name":"pager","url":"https://hooks.example/T0/secretpath","kinds":["room.queueing","alarm.raised"],"rooms":["shop"]}`)
	id, _ := made.field("id").(string)
	secret, _ := made.field("secret").(string)
	if made.code != 200 || !strings.HasPrefix(secret, "whsec_") || made.field("enabled") != true {
		t.Fatalf("%+v", made)
	}
	list, _ := f.ask(Admin, "GET", "/vestibule/webhooks", "").Result.([]any)
	if len(list) != 1 || strings.Contains(fmt.Sprint(list), secret) {
		t.Errorf("%v", list)
	}
	for _, e := range f.chain() {
		if text := string(e.Before) + string(e.After); strings.Contains(text, "secretpath") ||
			strings.Contains(text, secret[6:]) {
			t.Errorf("the audit stream shows a secret: %s", text)
		}
	}

	path := "/vestibule/webhooks/" + id
	again := f.ask(Admin, "PATCH", path, `{"rotate_secret":true,"enabled":false}`)
	if fresh, _ := again.field("secret").(string); again.code != 200 || fresh == secret || fresh == "" ||
		again.field("disabled_because") != "an operator turned it off" {
		t.Errorf("%+v", again)
	}
	w, _, err := f.parts.webhooks.hooks.Get(t.Context(), id)
	if err != nil || len(w.Secrets) != 2 || string(w.Secrets[1].Key) != secret || w.Secrets[1].Until.IsZero() ||
		len(w.Kinds) != 2 || len(w.Rooms) != 1 {
		t.Errorf("%+v, %v", w, err)
	}
	if a := f.ask(Admin, "PATCH", path, `{"enabled":true,"rooms":null}`); a.code != 200 || a.field("enabled") != true ||
		a.field("secret") != nil {
		t.Errorf("%+v", a)
	}

	f.parts.webhooks.post = func(_ context.Context, _ time.Time, w *notices.Webhook, n *notices.Notice) notices.Result {
		if w.Name != "pager" || n.Kind != notices.WebhookTest {
			t.Errorf("%+v %+v", w, n)
		}
		return notices.Result{Err: errors.New("the receiver answered 503"), Status: 503}
	}
	if a := f.ask(Admin, "POST", path+"/test", ""); a.code != 200 || a.field("delivered") != false ||
		a.field("error") != "the receiver answered 503" {
		t.Errorf("%+v", a)
	}
	f.expect(200, Admin, "DELETE", path, "")
	f.expect(404, Admin, "POST", path+"/test", "") // deleted
}

// A webhook whose address no notice reaches is made with a warning.
func TestAWebhookToAPrivateAddressIsMadeWithAWarning(t *testing.T) {
	f := start(t)
	const warning = "webhook w gets no notice: the address is not public: if it is meant, add its network to " +
		"notices.networks (--notices-networks)"
	for url, want := range map[string]string{
		"http://127.0.0.1:9/h": warning, "http://localhost:9/h": warning, "https://10.1.2.3/h": warning,
		"https://[::1]/h": warning, "https://8.8.8.8/h": "", "https://hooks.example/h": "",
	} {
		a := f.ask(Admin, "POST", "/vestibule/webhooks", `{"name":"w","url":"`+url+`"}`)
		got := ""
		for _, m := range a.Messages {
			got += m.Message
		}
		if a.code != 200 || got != want || a.field("secret") == nil {
			t.Errorf("%s: %+v", url, a)
		}
	}
	f.parts.webhooks.refuses = notices.NewPoster([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}).Refuses
	if a := f.ask(Admin, "POST", "/vestibule/webhooks", `{"name":"w","url":"https://10.1.2.3/h"}`); a.code != 200 ||
		len(a.Messages) != 0 {
		t.Errorf("in an allowed network: %+v", a)
	}
}

func TestWebhooksThatAreRefused(t *testing.T) {
	f := start(t)
	for body, pointers := range map[string]string{
		`{"name":"","url":"https://a.example"}`:                           "/name",
		`{"name":"a"}`:                                                    "/url",
		`{"name":"a","url":"http://a.example"}`:                           "/url",
		`{"name":"a","url":"https://u:p@a.example"}`:                      "/url",
		`{"name":"a","url":"https://a.example","kinds":["room.lost"]}`:    "/kinds",
		`{"name":"a","url":"https://a.example","kinds":["webhook.test"]}`: "/kinds",
		`{"name":"a","url":"https://a.example","rooms":["nothing"]}`:      "/rooms",
		`{"name":"a","url":"https://a.example","rooms":7}`:                "/rooms",
		`{"name":"a","url":"https://a.example","enabled":"yes"}`:          "/enabled",
		`{"name":"a","url":"https://a.example","secrets":[]}`:             "/secrets",
		`[]`: " /name /url",
	} {
		f.refused(Admin, "POST", "/vestibule/webhooks", body, strings.Split(pointers, " ")...)
	}
	for n := range notices.MaxWebhooks {
		f.ok(Admin, "POST", "/vestibule/webhooks", fmt.Sprintf(`{"name":"n%d","url":"https://a.example"}`,
			n))
	}
	f.expect(400, Admin, "POST", "/vestibule/webhooks", `{"name":"one more","url":"https://a.example"}`)
}
