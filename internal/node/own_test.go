package node

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestListens(t *testing.T) {
	at := func(ip string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
	if got := Listens([]net.Addr{at("10.0.0.9", 80), at("10.0.0.9", 80), at("::1", 81), &net.UnixAddr{}}); got != "10.0.0.9:80 [::1]:81" {
		t.Error(got)
	}
	for _, any := range []string{"::", "0.0.0.0"} {
		all := Listens([]net.Addr{at(any, 82)})
		if !strings.Contains(all, "127.0.0.1:82") || strings.Contains(all, "[::]:82") || strings.Contains(all, "0.0.0.0") {
			t.Error(all)
		}
	}
}

func TestConfiguredListeners(t *testing.T) {
	all := Configured("127.0.0.1:80", "localhost:81", ":82", "[::]:83", "0.0.0.0:84", "127.0.0.1:0", "", "none")
	for at, want := range map[string]bool{
		"127.0.0.1:80": true, "localhost:81": true, "127.0.0.1:82": true, "127.0.0.1:83": true, "127.0.0.1:84": true,
		"127.0.0.1:0": false, ":82": false, "": false,
	} {
		if slices.Contains(all, at) != want {
			t.Errorf("%s in %q", at, all)
		}
	}
}

// A listener of the fleet is found by every spelling of its address and by names; a site beside it is not one.
func TestOwnSites(t *testing.T) {
	listens := []string{"127.0.0.1:8080", "10.0.0.7:8080", "10.0.0.7:443", "nats.internal:4222", "[2001:db8::1]:80", "broken"}
	lookUp := func(_ context.Context, _, host string) ([]netip.Addr, error) {
		switch host {
		case "edge.example":
			return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:10.0.0.7")}, nil
		case "nats.internal":
			return []netip.Addr{netip.MustParseAddr("10.0.0.9")}, nil
		}
		return nil, errors.New("no such host")
	}
	for origin, want := range map[string]string{
		"http://127.0.0.1:8080": "127.0.0.1:8080", "http://127.0.0.2:8080": "127.0.0.1:8080",
		"http://localhost:8080": "127.0.0.1:8080", "https://LOCALHOST.:8080": "127.0.0.1:8080",
		"http://a.localhost:8080": "127.0.0.1:8080", "http://[::1]:8080": "127.0.0.1:8080",
		"http://[::ffff:127.0.0.1]:8080": "127.0.0.1:8080", "http://[64:ff9b::7f00:1]:8080": "127.0.0.1:8080",
		"http://10.0.0.7:8080": "10.0.0.7:8080", "https://10.0.0.7": "10.0.0.7:443",
		"https://[2002:a00:7::]": "10.0.0.7:443", "http://[2001:db8:0::1]": "[2001:db8::1]:80",
		"http://edge.example:8080": "10.0.0.7:8080", "https://edge.example.": "10.0.0.7:443",
		"http://nats.internal:4222": "nats.internal:4222", "http://10.0.0.9:4222": "nats.internal:4222",

		"http://127.0.0.1:8081": "", "http://localhost": "", "http://10.0.0.8:8080": "", "http://10.0.0.7": "",
		"http://edge.example": "", "http://shop.example:8080": "", "https://10.0.0.9": "", "not an origin": "",
	} {
		if got := OwnSites(t.Context(), []string{origin}, listens, lookUp)[origin]; got != want {
			t.Errorf("%s: %q, want %q", origin, got, want)
		}
	}
	if own := OwnSites(t.Context(), []string{"http://edge.example:8080", "http://127.0.0.1:8080"}, listens, nil); !maps.Equal(own,
		map[string]string{"http://127.0.0.1:8080": "127.0.0.1:8080"}) {
		t.Errorf("without looking names up: %q", own)
	}
}
