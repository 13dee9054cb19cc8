package node

import (
	"net"
	"strings"
	"testing"
)

func TestListens(t *testing.T) {
	at := func(ip string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
	if got := Listens([]net.Addr{at("10.0.0.9", 80), at("10.0.0.9", 80), at("::1", 81), &net.UnixAddr{}}); got != "10.0.0.9:80 [::1]:81" {
		t.Error(got)
	}
	all := Listens([]net.Addr{at("::", 82)})
	if !strings.Contains(all, "127.0.0.1:82") || strings.Contains(all, "[::]:82") {
		t.Error(all)
	}
}
