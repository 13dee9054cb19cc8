package origin

import "testing"

func TestDialRefusesAddressesThatAreNoSites(t *testing.T) {
	for addr, refused := range map[string]bool{"169.254.169.254:80": true, "[fe80::1]:80": true, "127.0.0.1:80": false, "[2001:db8::1]:443": false, "name:80": true} {
		if err := refuseAddr("tcp", addr, nil); (err != nil) != refused {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
