//go:build !race

// As in browser_test.go.

package allinone

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/serviceworker"
	"github.com/chromedp/chromedp"
	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/wire"
	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/notify"
)

// receiver is what a browser and its push service have of a subscription.
type receiver struct {
	key  *ecdh.PrivateKey
	auth []byte
	text chan string // of messages, decrypted
}

// ServeHTTP is the push service.
func (v *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && (r.URL.Path != "/push/token" || !strings.HasPrefix(r.Header.Get("Authorization"), "vapid t=")) {
		err = errors.New("no message for this subscription")
	}
	if err == nil {
		body, err = testkit.ReadPush(body, v.key, v.auth)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	v.text <- string(body)
	w.WriteHeader(http.StatusCreated)
}

// TestNotificationInABrowser: a visitor subscribes on the waiting page, and the first message confirms it; it closes
// the tab, is notified when its turn has come, opens the notification's page and is inside. Chromium has no push
// service here: the test gives the page a subscription of its own, and delivers to the service worker what the push
// service got: also twice, in another order, and to who is inside.
func TestNotificationInABrowser(t *testing.T) {
	t.Parallel()
	tree, _ := grow(t, 1, 60000, 10*time.Minute, func(o *Options) {
		o.DataCenters, o.Edges, o.PushServices = []string{"nairobi"}, 1, []string{"example.com"}
	})
	data := testkit.Must(os.ReadFile(tree.Info.Rooms))(t)
	rooms := strings.Replace(string(data), "    origin:", "    grace: 10s\n    web_push: true\n    origin:", 1)
	testkit.NoError(t, os.WriteFile(tree.Info.Rooms, []byte(rooms), 0o600))
	edge := tree.Info.Edges[0].URL
	full := newBrowser(t)
	eventually(t, "the site is full", func() bool {
		a, err := full.Get(edge + "/")
		if err != nil {
			return false
		}
		defer a.Body.Close()
		return a.Header.Get("X-Demo-Origin") != ""
	})

	v := &receiver{auth: make([]byte, 16), text: make(chan string, 10)}
	v.key = testkit.Must(ecdh.P256().GenerateKey(rand.Reader))(t)
	service := httptest.NewTLSServer(v)
	t.Cleanup(service.Close)
	roots := x509.NewCertPool()
	roots.AddCert(service.Certificate())
	conn := testkit.Must(tree.connect("notifier-1", natsbus.NodeInbox(natsbus.RoleNotifier, wire.Root, "notifier-1"),
		slog.New(slog.DiscardHandler)))(t)
	cfg := notify.DefaultConfig()
	cfg.Contact, cfg.Services = "mailto:ops@shop.example", []string{"example.com"}
	pushes := natsbus.NewPushes(conn)
	worker := notify.New(notify.Options{
		Config: cfg, Bus: conn, Store: pushes, Log: slog.New(slog.DiscardHandler),
		Count: notify.NewMetrics(prometheus.NewRegistry()), Out: node.Outbound{Roots: roots},
		Tune: func(c *http.Client) {
			c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, service.Listener.Addr().String())
			}
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	enc := base64.RawURLEncoding
	fake := fmt.Sprintf(`if (window.PushManager) {
		PushManager.prototype.getSubscription = async () => null;
		PushManager.prototype.subscribe = async (o) => { window.subscribedWith = o; return {toJSON: () => ({endpoint: "https://example.com/push/token", keys: {p256dh: %q, auth: %q}})} };
	}`, enc.EncodeToString(v.key.PublicKey().Bytes()), enc.EncodeToString(v.auth))
	screens := os.Getenv("VESTIBULE_SCREENS")
	root := browsertest.OpenWith(t)
	browsertest.See(t, root, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, target, cdpbrowser.SetPermission, cdpbrowser.SetPermissionParams{
			Permission: &cdpbrowser.PermissionDescriptor{Name: "notifications"}, Setting: cdpbrowser.PermissionSettingGranted,
			Origin: edge,
		})
	})
	tab, leave := browsertest.Tab(t, root)
	browsertest.See(t, tab,
		func(ctx context.Context, target *chromedp.Target) (cdppage.AddScriptToEvaluateOnNewDocumentResult, error) {
			return cdp.Call(ctx, target, cdppage.AddScriptToEvaluateOnNewDocument,
				cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: fake})
		})
	eventually(t, "a page of the room offers notifications", func() bool {
		if _, err := browsertest.Look(tab, chromedp.Navigate(edge+"/buy?x=1")); err != nil {
			return false
		}
		got, err := browsertest.Look(tab,
			chromedp.Evaluate[bool](`new Promise(done => setTimeout(() => done(!!document.getElementById("push")), 500))`,
				chromedp.EvalAwaitPromise))
		return err == nil && got
	})
	browsertest.Keep(t, screens, "push-offered.png", browsertest.See(t, tab, chromedp.FullScreenshot(100)))
	browsertest.Do(t, tab, chromedp.Click("#push"))

	// The service worker of the page, which takes what the push service gets.
	reg := browsertest.See(t, root, chromedp.WaitEvent(serviceworker.WorkerRegistrationUpdated,
		func(e serviceworker.EventWorkerRegistrationUpdated) bool { return len(e.Registrations) > 0 },
		func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
			return cdp.Call(ctx, target, serviceworker.Enable, cdp.Empty{})
		})).Registrations[0]
	show := func(text string) {
		t.Helper()
		browsertest.See(t, root, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
			return cdp.Call(ctx, target, serviceworker.DeliverPushMessage, serviceworker.DeliverPushMessageParams{
				Origin:         edge,
				RegistrationID: reg.RegistrationID, Data: text,
			})
		})
	}
	var text string
	deliver := func(stage string) (m struct{ Stage, Title, Page, Code, Of string }) {
		t.Helper()
		for m.Stage != stage {
			select {
			case text = <-v.text:
			case <-time.After(testkit.Patience):
				t.Fatalf("no message %q came", stage)
			}
			testkit.NoError(t, json.Unmarshal([]byte(text), &m))
		}
		show(text)
		return m
	}
	if m := deliver("confirm"); m.Code == "" || m.Of == "" || m.Page != "/buy?x=1" {
		t.Errorf("%+v", m)
	}
	eventually(t, "the page says that the visitor will be notified", func() bool {
		got, err := browsertest.Look(tab, chromedp.Evaluate[string](`document.body.textContent`))
		return err == nil && strings.Contains(got, "You will be notified at your turn")
	})
	browsertest.Keep(t, screens, "push-confirmed.png", browsertest.See(t, tab, chromedp.FullScreenshot(100)))

	leave() // the tab is closed
	a := testkit.Must(full.Post(edge+"/.well-known/vestibule/leave", "", nil))(t)
	a.Body.Close()
	shown := deliver("turn")
	again, _ := browsertest.Tab(t, root)
	browsertest.Do(t, again, chromedp.Navigate(edge+"/.well-known/vestibule/language?room=demo"))
	notes := func() string {
		got, err := browsertest.Look(again,
			chromedp.Evaluate[string](`navigator.serviceWorker.getRegistration("/.well-known/vestibule/").then(r => r.getNotifications()).then(n => n.map(x => x.tag + "|" + x.title + "|" + x.data).join())`, chromedp.EvalAwaitPromise))
		if err != nil {
			return err.Error()
		}
		return got
	}
	one := "vestibule-demo|" + shown.Title + "|" + shown.Page
	// A look at the notifications while Chromium shows one can lose it, so what the worker keeps is waited for.
	taken := func(room, kept string) bool {
		got, err := browsertest.Look(again, chromedp.Evaluate[bool](fmt.Sprintf(
			`caches.open("vestibule").then(c => c.match("/.well-known/vestibule/push?room=%s")).then(async r => !!r && (await r.text()).startsWith(%q))`,
			room, kept), chromedp.EvalAwaitPromise))
		return err == nil && got
	}
	eventually(t, "the notification is shown", func() bool { return taken("demo", shown.Of+" 2") })
	if got := notes(); got != one {
		t.Errorf("shown are %q, want %q", got, one)
	}
	markers := 0
	expect := func(want, text string) { // what is shown after a message; another room's tells that it was taken
		t.Helper()
		defer func() {
			if t.Failed() {
				t.Logf("after %d messages shown are %q", markers, notes())
			}
		}()
		show(text)
		markers++
		room := fmt.Sprint("other", markers)
		show(strings.Replace(text, `"room":"demo"`, `"room":"`+room+`"`, 1))
		eventually(t, "the next message is shown", func() bool { return taken(room, "") })
		if got := notes(); strings.Contains(got, one) != (want != "") || strings.Count(got, "vestibule-demo|") > 1 {
			t.Errorf("%s: shown are %s", text, got)
		}
	}
	soon := strings.Replace(strings.Replace(text, `"stage":"turn"`, `"stage":"soon"`, 1), shown.Title, "soon", 1)
	expect(one, text) // a push service got it twice
	expect(one, soon) // and held this one back
	browsertest.See(t, again,
		chromedp.Evaluate[bool](`navigator.serviceWorker.getRegistration("/.well-known/vestibule/").then(r => r.getNotifications()).then(n => { n.forEach(x => x.close()); return true })`, chromedp.EvalAwaitPromise))
	eventually(t, "the notification is closed", func() bool { return notes() == "" })
	expect("", text)
	expect("", soon)
	browsertest.Do(t, again, chromedp.Navigate(edge+shown.Page)) // a click: only a person's may open a window
	eventually(t, "the visitor is inside", func() bool {
		got, err := browsertest.Look(again, chromedp.Evaluate[bool](`!document.getElementById("vr")`))
		return err == nil && got
	})
	browsertest.Keep(t, screens, "push-inside.png", browsertest.See(t, again, chromedp.FullScreenshot(100)))
	expect("", strings.Replace(text, shown.Of, "of another subscription", 1)) // who is inside is told nothing
	eventually(t, "the subscription is gone", func() bool { return worker.Status().Subscribed == 0 })
}
