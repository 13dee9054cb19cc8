package clientaddr

import "testing"

func TestClient(t *testing.T) {
	p, err := ParseProxies([]string{"10.0.0.0/8", "2001:db8::1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		peer      string
		forwarded []string
		want      string
		unread    bool
	}{
		{"203.0.113.1:1", []string{"198.51.100.1"}, "203.0.113.1", false},
		{"10.0.0.1:1", nil, "10.0.0.1", false},
		{"10.0.0.1:1", []string{""}, "10.0.0.1", true},
		{"10.0.0.1:1", []string{"198.51.100.1"}, "198.51.100.1", false},
		{"10.0.0.1:1", []string{"6.6.6.6, 198.51.100.1"}, "198.51.100.1", false},
		{"10.0.0.1:1", []string{"6.6.6.6, 198.51.100.1 ,10.0.0.2"}, "198.51.100.1", false},
		{"10.0.0.1:1", []string{"6.6.6.6", "198.51.100.1", "10.0.0.2,10.0.0.3"}, "198.51.100.1", false},
		{"10.0.0.1:1", []string{"6.6.6.6", "unknown, 10.0.0.2"}, "10.0.0.2", true},
		{"10.0.0.1:1", []string{"6.6.6.6,", "10.0.0.2"}, "10.0.0.2", true},
		{"10.0.0.1:1", []string{"10.0.0.4", "10.0.0.2"}, "10.0.0.4", false},
		{"10.0.0.1:1", []string{"198.51.100.1:4711"}, "198.51.100.1", false},
		{"10.0.0.1:1", []string{"[2001:db8::7]:443, 10.0.0.2:80"}, "2001:db8::7", false},
		{"10.0.0.1:1", []string{"[2001:db8::7]"}, "2001:db8::7", false},
		{"10.0.0.1:1", []string{"2001:db8::7"}, "2001:db8::7", false},
		{"10.0.0.1:1", []string{"[198.51.100.1]"}, "10.0.0.1", true},
		{"10.0.0.1:1", []string{"198.51.100.1:"}, "10.0.0.1", true},
		{"10.0.0.1:1", []string{"198.51.100.1:port"}, "10.0.0.1", true},
		{"[2001:db8::1]:1", []string{"::ffff:198.51.100.1"}, "198.51.100.1", false},
	} {
		got, _, unread := p.Client(Peer(tc.peer), false, tc.forwarded, nil)
		if got.String() != tc.want || unread != tc.unread {
			t.Errorf("%s %q: %s, unread %v, want %s", tc.peer, tc.forwarded, got, unread, tc.want)
		}
	}
	for _, tc := range []struct {
		lines []string
		own   bool // TLS of the connection
		want  bool
	}{
		{[]string{"https"}, false, true},
		{[]string{"HTTPS"}, false, true},
		{[]string{"http"}, true, false},
		{[]string{"wss"}, false, true}, // Traefik
		{[]string{"ws"}, true, false},
		{[]string{"https, https"}, false, true},
		{[]string{"https", "https"}, false, true},
		{[]string{"http,ws"}, true, false},
		{[]string{"https, http"}, false, false},
		{[]string{"https, http"}, true, true},
		{[]string{"https", "http"}, true, true},
		{[]string{"https,"}, false, false},
		{[]string{"ftp"}, true, true},
		{nil, true, true},
	} {
		if _, got, _ := p.Client(Peer("10.0.0.1:1"), tc.own, nil, tc.lines); got != tc.want {
			t.Errorf("X-Forwarded-Proto %q, own TLS %v: TLS %v", tc.lines, tc.own, got)
		}
	}
	for peer, want := range map[string]bool{
		"10.1.2.3:4": true, "[2001:db8::1]:4": true, "[::ffff:10.0.0.1]:4": true,
		"11.0.0.1:4": false, "[2001:db8::2]:4": false, "": false, "unix:": false,
	} {
		if got := p.Trusts(Peer(peer)); got != want {
			t.Errorf("%q is trusted: %v", peer, got)
		}
	}
}
