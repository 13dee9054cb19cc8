package global_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vestibule/internal/global"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// The provider of control.oidc is read as it is written, and each fault is named.
func TestTheConfigurationOfAProvider(t *testing.T) {
	folder := t.TempDir()
	secret := filepath.Join(folder, "secret")
	write(t, secret, "s3cret\n")
	const good = "issuer: https://login.example.org, client_id: vestibule, role_claim: groups, client_secret_file: SECRET"
	for name, c := range map[string]struct {
		url, oidc string
		faults    []string // parts of the faults, none for a valid configuration
	}{
		"good": {
			"https://console.example.org", good + `, roles: [Shop Admins=admin, "https://x.example/a=b=viewer"]`,
			nil,
		},
		"no roles": {"https://console.example.org", good, []string{"control.oidc.roles: at least one"}},
		"bad roles": {"https://console.example.org", good + ", roles: [admin, =admin, a=root]", []string{
			`roles: must be VALUE=ROLE with viewer, operator, editor or admin, got "=admin"`, `got "a=root"`, `got "admin"`,
		}},
		"no url":    {"", good + ", roles: [a=viewer]", []string{"control.url: is required"}},
		"no issuer": {"https://console.example.org", "client_id: vestibule", []string{"need control.oidc.issuer"}},
		"issuer alone": {"https://console.example.org", "issuer: https://login.example.org, roles: [a=viewer]", []string{
			"client_id: must be given", "client_secret_file: must be given", "role_claim: must be given",
		}},
	} {
		file := filepath.Join(folder, "global.yaml")
		write(t, file,
			"name: g\ndata_dir: "+folder+"\ndata_centers: [dublin]\nrooms: ''\ncontrol:\n  listen: 127.0.0.1:0\n  url: '"+c.url+
				"'\n  oidc: {"+strings.ReplaceAll(c.oidc, "SECRET", secret)+"}\n")
		cfg := global.DefaultConfig()
		_, err := node.Load("global", &cfg, []string{"--config", file}, io.Discard)
		if (err == nil) != (len(c.faults) == 0) {
			t.Errorf("%s: %v", name, err)
		}
		for _, fault := range c.faults {
			if err == nil || !strings.Contains(err.Error(), fault) {
				t.Errorf("%s: %v, want %q", name, err, fault)
			}
		}
		if roles := cfg.Control.OIDC.Roles; name == "good" && (len(roles) != 2 || roles[0] != "Shop Admins=admin") {
			t.Errorf("roles %q", roles)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	testkit.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}
