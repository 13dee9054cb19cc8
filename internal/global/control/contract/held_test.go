package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"vestibule/internal/allinone"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
)

// held is a transport that checks requests and answers against the document.
type held struct {
	t      *testing.T
	router routers.Router
	calls  map[string]int

	asked, faulty int
}

func newHeld(t *testing.T, base string) *held {
	t.Helper()
	doc := testkit.Must(openapi3.NewLoader().LoadFromFile("../openapi.yaml"))(t)
	testkit.NoError(t, doc.Validate(t.Context()))
	doc.Servers = openapi3.Servers{{URL: base}}
	router := testkit.Must(gorillamux.NewRouter(doc))(t)
	h := &held{t: t, router: router, calls: map[string]int{}}
	t.Cleanup(func() { t.Logf("%d of %d requests were answered as the document says", h.asked-h.faulty, h.asked) })
	return h
}

func (h *held) fault(format string, args ...any) {
	h.t.Helper()
	h.faulty++
	h.t.Errorf(format, args...)
}

// whole reads a body, and leaves a copy in its place.
func whole(body *io.ReadCloser) ([]byte, error) {
	if *body == nil {
		return nil, nil
	}
	data, err := io.ReadAll(*body)
	err = errors.Join(err, (*body).Close())
	*body = io.NopCloser(bytes.NewReader(data))
	return data, err
}

func (h *held) RoundTrip(r *http.Request) (*http.Response, error) {
	h.asked++
	body, err := whole(&r.Body)
	if err != nil {
		return nil, err
	}
	route, params, routeErr := h.router.FindRoute(r)
	in := &openapi3filter.RequestValidationInput{
		Request: r.Clone(r.Context()), PathParams: params, Route: route,
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
		},
	}
	in.Request.Body = io.NopCloser(bytes.NewReader(body))
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer, err := whole(&res.Body)
	if err != nil {
		return nil, err
	}
	if routeErr != nil {
		if res.StatusCode != http.StatusNotFound {
			h.fault("%s %s is not in the document, and was answered %d", r.Method, r.URL, res.StatusCode)
		}
		return res, nil
	}
	h.calls[route.Operation.OperationID]++
	if err := openapi3filter.ValidateRequest(r.Context(), in); err != nil && res.StatusCode < 400 &&
		r.Method != http.MethodPatch {
		h.fault("%s %s: the document refuses what was taken: %v", r.Method, r.URL, err)
	}
	if err := openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: res.StatusCode, Header: res.Header, Body: io.NopCloser(bytes.NewReader(answer)),
	}); err != nil {
		h.fault("%s %s: %d %s\nis not what the document says: %v", r.Method, r.URL, res.StatusCode, answer, err)
	}
	return res, nil
}

// tree is a whole fleet in one process, with rooms made by the API: there is one, called demo.
func tree(t *testing.T) *allinone.Tree {
	t.Helper()
	x := begin(t, func(o *allinone.Options) { o.StoreRooms = true })
	ask := fmt.Sprintf(`{"name":"demo","host":"localhost","total_active_users":3,"new_users_per_minute":60,"session_duration":1,"vestibule":{"origin":%q}}`, x.Info.Origin)
	testkit.Eventually(t, "the API makes a room", func() bool {
		return good(http.DefaultTransport.RoundTrip(request(t, x, "POST", "/zones/"+x.Info.Control.Zone+"/waiting_rooms", ask)))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	testkit.NoError(t, x.WaitReady(ctx))
	return x
}

// begin starts a fleet; its edges may not be ready yet.
func begin(t *testing.T, change func(*allinone.Options)) *allinone.Tree {
	t.Helper()
	o := allinone.Options{
		DataCenters: []string{"nairobi"}, Edges: 1, Listen: "127.0.0.1:0", DataDir: t.TempDir(), Params: wire.DefaultParams(),
		Log:              slog.New(slog.DiscardHandler),
		TotalActiveUsers: 3, NewUsersPerMinute: 60, SessionDuration: time.Minute,
	}
	change(&o)
	x := testkit.Must(allinone.Start(o))(t)
	t.Cleanup(func() {
		if err := x.Stop(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	testkit.NoError(t, x.TakeToken(ctx))
	return x
}

// site says which site is behind a host, as no client of the hosted product can.
func site(t *testing.T, x *allinone.Tree, h *held, host string) {
	t.Helper()
	own[any](t, x, h, "PUT", "/vestibule/hosts/"+host, `{"origin":"`+x.Info.Origin+`"}`)
}

// request is a request to the API, with the token of the fleet.
func request(t *testing.T, x *allinone.Tree, method, path, body string) *http.Request {
	t.Helper()
	r := testkit.Must(http.NewRequestWithContext(t.Context(), method, x.Info.Control.URL+path, strings.NewReader(body)))(t)
	r.Header.Set("Authorization", "Bearer "+x.Info.Control.Token)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// good reports whether a request was answered with success.
func good(res *http.Response, err error) bool {
	return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
}

// params are those of a call of the new client. Its root package has a function for each value,
// and a hundred packages beside it that would be compiled for it.
func params[T any](values ...any) (p T) {
	set(&p, values...)
	return p
}

func set[T any](p *T, values ...any) {
	for i := 0; i < len(values); i += 2 {
		f, v := reflect.ValueOf(p).Elem().FieldByName(values[i].(string)), reflect.ValueOf(values[i+1])
		if f.Type() == v.Type() {
			f.Set(v)
			continue
		}
		f.FieldByName("Value").Set(v)
		f.FieldByName("Present").SetBool(true)
	}
}

// visit asks an edge for a host, and returns whether the site answered.
func visit(t *testing.T, x *allinone.Tree, host string) (code int, ticket bool) {
	t.Helper()
	r := testkit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, x.Info.Edges[0].URL, nil))(t)
	r.Host = host
	res := testkit.Must(http.DefaultTransport.RoundTrip(r))(t)
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	testkit.NoError(t, res.Body.Close())
	return res.StatusCode, strings.Contains(strings.Join(res.Header["Set-Cookie"], ""), "vestibule-")
}
