package global

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"vestibule/internal/core/room"
	"vestibule/internal/global/access"
	"vestibule/internal/global/control"
	"vestibule/internal/node"
)

// ControlConfig is the listener of the API.
type ControlConfig struct {
	Listen  string   `mapstructure:"listen" doc:"host:port of the API; without cert and key a loopback address"`
	Cert    string   `mapstructure:"cert" doc:"certificate file; it is read again when it changes"`
	Key     string   `mapstructure:"key" doc:"key file"`
	URL     string   `mapstructure:"url" doc:"address of this listener for browsers, such as https://console.example.org; empty for listen"`
	OIDC    OIDC     `mapstructure:"oidc"`
	Origins []string `mapstructure:"origins" doc:"sites on loopback addresses that editors may set, such as http://127.0.0.1:3000, beside control.origin and those of rooms and hosts; an admin may set any"`
	Origin  string   `mapstructure:"origin" doc:"site for rooms that the API creates on a host without one, such as http://10.0.0.5:8080, the same at every global; empty refuses them"`
}

// OIDC is a login by OpenID Connect.
type OIDC struct {
	Issuer string   `mapstructure:"issuer" doc:"address of an OpenID Connect provider for logins; needs control.url"`
	Name   string   `mapstructure:"name" doc:"its name on the login page"`
	Client string   `mapstructure:"client_id" doc:"client ID; the redirect address is control.url with /oidc/callback"`
	Secret string   `mapstructure:"client_secret_file" doc:"file with the client secret"`
	Claim  string   `mapstructure:"role_claim" doc:"claim of the ID token that names roles: a string or a list"`
	Roles  []string `mapstructure:"roles" doc:"VALUE=ROLE by value of the claim, with viewer, operator, editor or admin; nobody else logs in"`
}

// validate returns every fault of the keys below control.oidc.
func (o *OIDC) validate(own string) (errs []error) {
	if o.Issuer == "" {
		if o.Client != "" || o.Secret != "" || len(o.Roles) > 0 {
			return []error{errors.New("control.oidc.client_id, client_secret_file, roles: need control.oidc.issuer")}
		}
		return nil
	}
	for key, value := range map[string]string{"control.oidc.issuer": o.Issuer, "control.url": own} {
		if rule := room.CheckOrigin(value); rule != "" && !strings.HasPrefix(value, "https://") {
			errs = append(errs, fmt.Errorf("%s: %s", key, rule))
		}
	}
	for key, value := range map[string]string{
		"client_id": o.Client, "client_secret_file": o.Secret, "role_claim": o.Claim,
	} {
		if value == "" {
			errs = append(errs, fmt.Errorf("control.oidc.%s: must be given", key))
		}
	}
	if len(o.Roles) == 0 {
		errs = append(errs, errors.New("control.oidc.roles: at least one must be given, or nobody logs in"))
	}
	for _, entry := range o.Roles {
		if value, role := roleOf(entry); value == "" || !role.Known() {
			errs = append(errs,
				fmt.Errorf("control.oidc.roles: must be VALUE=ROLE with viewer, operator, editor or admin, got %q", entry))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return append(errs, node.CheckFile("control.oidc.client_secret_file", o.Secret)...)
}

// config returns the provider; nil for none.
func (o *OIDC) config(own string) (*access.OIDCConfig, error) {
	if o.Issuer == "" {
		return nil, nil
	}
	secret, err := os.ReadFile(o.Secret)
	if err != nil {
		return nil, fmt.Errorf("control.oidc.client_secret_file: %w", err)
	}
	c := &access.OIDCConfig{
		Name: cmp.Or(o.Name, "single sign-on"), Issuer: o.Issuer, ClientID: o.Client,
		ClientSecret: strings.TrimSpace(string(secret)), URL: strings.TrimSuffix(own, "/"), Claim: o.Claim,
		Roles: map[string]control.Role{},
	}
	for _, entry := range o.Roles {
		value, role := roleOf(entry)
		c.Roles[value] = role
	}
	return c, nil
}

// roleOf returns the parts of an entry of control.oidc.roles. It is a list, since keys of the configuration have no
// capital letters.
func roleOf(entry string) (value string, role control.Role) {
	i := max(0, strings.LastIndexByte(entry, '='))
	return entry[:i], control.Role(strings.TrimPrefix(entry[i:], "="))
}

// Validate returns every fault of the keys below control.
func (c *ControlConfig) Validate() []error {
	if c.Listen == "" {
		if c.Cert != "" || c.Key != "" || c.Origin != "" || len(c.Origins) > 0 || c.URL != "" || c.OIDC.Issuer != "" {
			return []error{errors.New("control.cert, control.key, control.origin, control.origins, control.url, control.oidc: need control.listen")}
		}
		return nil
	}
	errs := node.CheckAddr("control.listen", c.Listen)
	switch {
	case (c.Cert == "") != (c.Key == ""):
		errs = append(errs, errors.New("control.cert, control.key: must be given together"))
	case c.Cert == "" && len(errs) == 0 && !node.Loopback(c.Listen):
		errs = append(errs,
			fmt.Errorf("control.listen: must be an address of this machine (127.0.0.1) without control.cert and control.key, got %q",
				c.Listen))
	}
	if rule := room.CheckOrigin(c.Origin); c.Origin != "" && rule != "" {
		errs = append(errs, fmt.Errorf("control.origin: %s", rule))
	}
	for i, o := range c.Origins {
		if rule := room.CheckOrigin(o); rule != "" {
			errs = append(errs, fmt.Errorf("control.origins[%d]: %s", i, rule))
		}
	}
	errs = append(errs, c.OIDC.validate(c.URL)...)
	errs = append(errs, node.CheckFile("control.cert", c.Cert)...)
	return append(errs, node.CheckFile("control.key", c.Key)...)
}
