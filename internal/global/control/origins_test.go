package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Editors set no loopback address as a site unless it is listed or in use; admins set any.
func TestOriginsOfEditors(t *testing.T) {
	f := start(t)
	create := func(role Role, name, origin string) answer {
		return f.ask(role, "POST", "{z}",
			fmt.Sprintf(`{"name":%q,"host":"%s.example","total_active_users":9,"new_users_per_minute":9,"vestibule":{"origin":%q}}`, name, name, origin))
	}
	const loop = "http://127.0.0.1:9911"
	for _, origin := range []string{
		loop, "http://localhost:1", "http://[::1]:2", "http://[::ffff:127.0.0.1]:3",
		"http://a.localhost",
	} {
		if a := create(Editor, "a", origin); a.code != 400 || !slices.Equal(a.pointers(), []string{"/vestibule/origin"}) {
			t.Errorf("%s: %+v", origin, a)
		}
		f.refused(Editor, "PUT", "/vestibule/hosts/h.example", fmt.Sprintf(`{"origin":%q}`, origin), "/origin")
	}
	// A listener of the fleet is nobody's site.
	for _, origin := range []string{
		"http://10.9.9.9:8090", "https://10.9.9.9:8090", "http://[::ffff:10.9.9.9]:8090", "http://[64:ff9b::10.9.9.9]:8090",
		"http://127.0.0.1:9100", "http://localhost:9100", "http://LOCALHOST.:9100", "http://a.localhost:9100",
		"http://[::1]:9100", "http://[::ffff:127.0.0.1]:9100",
	} {
		a := create(Admin, "own", origin)
		if a.code != 400 || !slices.Equal(a.pointers(), []string{"/vestibule/origin"}) ||
			!strings.Contains(a.Errors[0].Message, "must not be a listener of the fleet") {
			t.Errorf("%s: %+v", origin, a)
		}
		f.refused(Admin, "PUT", "/vestibule/hosts/h.example", fmt.Sprintf(`{"origin":%q}`, origin), "/origin")
	}
	file := "rooms:\n  - {name: b, host: b.example, total_active_users: 9, new_users_per_minute: 9, origin: '" +
		loop + "'}\n"
	f.expect(400, Editor, "POST", "/vestibule/apply", fmt.Sprintf(`{"rooms_yaml":%q}`, file))
	for _, origin := range []string{"http://169.254.169.254", "http://100.100.100.200", "http://[2002:a9fe:a9fe::]"} {
		create(Admin, "a", origin).is(t, 400)
	}
	create(Admin, "a", loop).is(t, 200)               // an admin
	create(Editor, "b", loop).is(t, 200)              // an origin that is in use
	create(Editor, "c", "http://10.0.0.7").is(t, 200) // another machine
}
