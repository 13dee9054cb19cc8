//go:build !race

package edge

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"vestibule/internal/lab/testkit"
)

// Envoy's types and its client of gRPC are hundreds of packages: with the detector, which watches the same
// handlers by the other forms, they would be compiled a second time.
func init() {
	forms, asEnvoy = append(forms, formGRPC), (*stage).check
}

// check asks as Envoy does, with its own types and another gRPC client. It returns the visitor's answer; for an
// admission, the headers added to the site's answer, and the proof.
func (st *stage) check(method, host, target string, header ...string) answer {
	st.t.Helper()
	source, scheme := "203.0.113.9", "http"
	lines := map[string]string{":path": target, ":method": method, ":authority": host}
	for i := 0; i < len(header); i += 2 {
		name, added := strings.CutPrefix(header[i], "+")
		value := header[i+1]
		if value == "-" {
			value = ""
		}
		is := map[string]*string{"X-Forwarded-For": &source, "X-Forwarded-Proto": &scheme}[name]
		if is == nil { // Envoy joins repeated headers
			name = strings.ToLower(name)
			if before := lines[name]; added && before != "" {
				value = before + "," + value
			}
			lines[name] = value
			continue
		}
		if added {
			value = *is + "," + value
		}
		*is = value
	}
	res, err := st.door.authorization().Check(st.t.Context(), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: source},
		}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: method, Path: target,
			Host: host, Scheme: scheme, Size: 0, Headers: lines,
		}},
	}})
	if err != nil {
		st.t.Fatalf("%s %s %s: %v", method, host, target, err)
	}
	a := answer{&http.Response{StatusCode: http.StatusOK, Header: http.Header{}}, ""}
	add := func(options []*corev3.HeaderValueOption) {
		for _, o := range options {
			a.Header.Add(o.GetHeader().GetKey(), o.GetHeader().GetValue())
		}
	}
	switch got := res.GetHttpResponse().(type) {
	case *authv3.CheckResponse_OkResponse:
		add(got.OkResponse.GetResponseHeadersToAdd())
		add(got.OkResponse.GetHeaders())
		a.Header.Set(decisionHeader, "admit")
		a.Header["Removed"] = got.OkResponse.GetHeadersToRemove()
	case *authv3.CheckResponse_DeniedResponse:
		a.StatusCode, a.body = int(got.DeniedResponse.GetStatus().GetCode()), got.DeniedResponse.GetBody()
		add(got.DeniedResponse.GetHeaders())
		a.Header.Set(decisionHeader, "wait")
	}
	if (res.GetStatus().GetCode() == int32(codes.OK)) != (a.Header.Get(decisionHeader) == "admit") ||
		res.GetHttpResponse() == nil {
		st.t.Errorf("%s %s: the code is %v: %v", method, target, res.GetStatus().GetCode(), res)
	}
	return a
}

// authorization returns a client of the decision service.
func (d *door) authorization() authv3.AuthorizationClient {
	d.Helper()
	c, ok := d.envoy.(authv3.AuthorizationClient)
	if !ok {
		conn, err := grpc.NewClient("passthrough:"+d.addr(0), grpc.WithTransportCredentials(insecure.NewCredentials()))
		testkit.NoError(d, err)
		d.Cleanup(func() {
			if err := conn.Close(); err != nil {
				d.Error(err)
			}
		})
		c = authv3.NewAuthorizationClient(conn)
		d.envoy = c
	}
	return c
}

// Invalid calls of ext_authz: each ends with a gRPC code and admits nobody.
func TestACallThatIsNoQuestionFails(t *testing.T) {
	st := openFront(t, formGRPC, nil)
	client := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	client.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	defer client.CloseIdleConnections()
	frame := func(flag byte, length uint32, content string) string {
		return string(binary.BigEndian.AppendUint32([]byte{flag}, length)) + content
	}
	for what, body := range map[string]string{
		"nothing":                 "",
		"half a frame":            "\x00\x00",
		"a frame cut short":       frame(0, 9, "abc"),
		"a compressed message":    frame(1, 0, ""),
		"two messages":            frame(0, 0, "") + frame(0, 0, ""),
		"a message of a gigabyte": frame(0, 1<<30, "abc"),
		"no message of protobuf":  frame(0, 3, "\xff\xff\xff"),
	} {
		r := testkit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+st.door.addr(0)+checkPath,
			strings.NewReader(body)))(t)
		r.Header.Set("Content-Type", grpcType)
		res := testkit.Must(client.Do(r))(t)
		rest, err := io.ReadAll(res.Body)
		if err != nil || len(rest) > 0 || res.Trailer.Get("Grpc-Status") == "" || res.Trailer.Get("Grpc-Status") == "0" {
			t.Errorf("%s: %q, %v, %v", what, rest, res.Trailer, err)
		}
		testkit.NoError(t, res.Body.Close())
	}
	// An empty question is one that names nothing.
	res, err := st.door.authorization().Check(t.Context(), &authv3.CheckRequest{})
	if err != nil || res.GetDeniedResponse().GetStatus().GetCode() != http.StatusBadRequest {
		t.Errorf("%v, %v", res, err)
	}
}

// The edge lists the visitor's headers that Envoy must remove; with a proof, every forged header except the one that
// the proof replaces.
func TestEnvoyGetsTheHeadersToRemove(t *testing.T) {
	st := openFront(t, formGRPC, nil)
	a := st.question(formGRPC, "GET", "shop.example", "/about", "X-Real-Ip", "1.2.3.4", "X_Real_Ip", "1.2.3.4",
		"Vestibule-Proof", "forged", "X-Vestibule-Anything", "1", "Accept", "text/html")
	if want := []string{
		"vestibule-proof", "x-real-ip", "x-vestibule-anything",
		"x_real_ip",
	}; !slices.Equal(a.Header["Removed"], want) {
		t.Errorf("removed: %q, want %q", a.Header["Removed"], want)
	}
}

// Envoy is not available here: its configuration is decoded with its own types, and validated with their rules.
func TestTheConfigurationOfEnvoy(t *testing.T) {
	data := testkit.Must(os.ReadFile("../../deploy/fronts/envoy/envoy.yaml"))(t)
	var tree any
	testkit.NoError(t, yaml.Unmarshal(data, &tree))
	text := testkit.Must(json.Marshal(tree))(t)
	var b bootstrapv3.Bootstrap
	testkit.NoError(t, protojson.Unmarshal(text, &b))
	testkit.NoError(t, b.ValidateAll())
	found := 0
	testkit.NoError(t, protorange.Range(b.ProtoReflect(), func(v protopath.Values) error {
		m, ok := v.Index(-1).Value.Interface().(protoreflect.Message)
		if !ok {
			return nil
		}
		switch m := m.Interface().(type) {
		case *extauthzv3.ExtAuthz:
			found++
			if m.GetFailureModeAllow() || m.GetGrpcService().GetTimeout().AsDuration() <= 2*DefaultConfig().Front.Hold {
				t.Errorf("who is let in without an edge: %v; an answer may take %v", m.GetFailureModeAllow(),
					m.GetGrpcService().GetTimeout().AsDuration())
			}
		case *hcmv3.HttpConnectionManager:
			found++
			if !m.GetUseRemoteAddress().GetValue() || m.GetNormalizePath().GetValue() || m.GetMergeSlashes() {
				t.Errorf("the connection manager: %v", m)
			}
		}
		if checks, ok := m.Interface().(interface{ ValidateAll() error }); ok {
			if err := checks.ValidateAll(); err != nil {
				t.Error(err)
			}
		}
		return nil
	}))
	if found != 2 {
		t.Errorf("%d of the two filters were found", found)
	}
}
