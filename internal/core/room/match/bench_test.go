package match_test

import (
	"fmt"
	"testing"

	"vestibule/internal/core/room"
)

var sink int

func BenchmarkMatch(b *testing.B) {
	hosts, onHost := room.Document{}, room.Document{}
	for i := range 1000 {
		name := fmt.Sprintf("room-%03d", i)
		hosts.Rooms = append(hosts.Rooms, valid(name, fmt.Sprintf("shop-%03d.example.com", i), "/sale"))
		onHost.Rooms = append(onHost.Rooms, valid(name, "shop.example.com", fmt.Sprintf("/events/concert-%03d", i)))
	}
	mixed := room.Document{Rooms: append([]room.Settings(nil), onHost.Rooms...)}
	mixed.Rooms[0].Path = "/Events/Opening"

	for _, c := range []struct {
		name string
		doc  room.Document
		host string
		path string
	}{
		{"hosts/hit", hosts, "shop-777.example.com", "/sale/checkout/step-2"},
		{"hosts/hit_port", hosts, "shop-777.example.com:443", "/sale/checkout/step-2"},
		{"hosts/miss", hosts, "shop-777.example.com", "/assets/css/main-3f2a.min.css"},
		{"hosts/unknown", hosts, "nobody.example.com", "/sale"},
		{"one_host/hit", onHost, "shop.example.com", "/events/concert-777/seats/42"},
		{"one_host/miss", onHost, "shop.example.com", "/assets/css/main-3f2a.min.css"},
		{"one_host/upper", onHost, "shop.example.com", "/events/concert-777/Seats/42"},
		{"one_host/upper_room", mixed, "shop.example.com", "/events/concert-777/seats/42"},
		{"one_host/long", onHost, "shop.example.com", "/events/concert-777/" + long(200)},
		{"odd/escape", onHost, "shop.example.com", "/events/concert-777/caf%C3%A9%20menu"},
		{"odd/params", onHost, "shop.example.com", "/events/concert-777;jsessionid=1F//x"},
		{"odd/attack", onHost, "shop.example.com", "/x;y/%2e%2e;z//events%2Fconcert-777;w"},
		{"odd/unreadable", onHost, "shop.example.com", "/%"},
		{"odd/worst", onHost, "shop.example.com", worst()},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := mustSet(b, c.doc)
			b.ReportAllocs()
			for b.Loop() {
				m := s.Match(c.host, c.path)
				sink += len(m.Rooms())
			}
		})
	}
}

func long(n int) string {
	s := ""
	for len(s) < n {
		s += "segment/"
	}
	return s
}

// worst is a path whose readings exhaust the byte limit.
func worst() string {
	return "/" + long(250) + "%2525252525252561;a" + long(250)
}

func BenchmarkNewSet(b *testing.B) {
	doc := room.Document{}
	for i := range room.MaxRooms {
		doc.Rooms = append(doc.Rooms, valid(fmt.Sprintf("room-%d", i), fmt.Sprintf("shop-%d.example.com", i%500),
			fmt.Sprintf("/sale-%d", i)))
	}
	for b.Loop() {
		if _, err := room.NewSet(doc, 1); err != nil {
			b.Fatal(err)
		}
	}
}
