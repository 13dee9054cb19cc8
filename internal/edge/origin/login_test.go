package origin

import "testing"

func TestLoginsThatAreBoundToAConnection(t *testing.T) {
	for text, want := range map[string]bool{
		"NTLM TlRM": true, "Negotiate YII": true, "negotiate x": true, "ntlm": true,
		"Basic YTpi": false, "Bearer NTLM": false, "": false, "NTLMx y": false,
	} {
		if BindsLogin(text) != want {
			t.Errorf("BindsLogin(%q) is not %v", text, want)
		}
	}
	for text, want := range map[string]bool{
		"NTLM": true, "Negotiate, NTLM": true, `Basic realm="a, NTLM"`: false, `Basic realm="a", NTLM`: true,
		"Negotiate oRQwEg==":                     true,
		`Digest realm="x", qop="auth",negotiate`: true, `Basic realm="\"`: false, "Basic": false, "": false, "Bearer": false,
	} {
		if OffersBinding(text) != want {
			t.Errorf("OffersBinding(%q) is not %v", text, want)
		}
	}
}
