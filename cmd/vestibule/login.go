package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
	"vestibule/internal/node"
)

// login is the address of an API and a token.
type login struct {
	Server string `yaml:"server"` // one or more, with commas
	Token  string `yaml:"token"`
}

// profiles is the file that vestibule login writes: the logins of several fleets. Only the user can read it.
type profiles struct {
	Profile  string           `yaml:"profile"` // of commands that name none
	Profiles map[string]login `yaml:"profiles"`
}

// defaultProfile is the profile of users with one fleet.
const defaultProfile = "default"

func profilesPath() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "vestibule", "config.yaml"), err
}

// readProfiles returns the profiles of the user; without a file there are none.
func readProfiles() (p profiles, err error) {
	file, err := profilesPath()
	if err != nil {
		return p, nil // no home
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		d := yaml.NewDecoder(bytes.NewReader(data))
		d.KnownFields(true)
		if err = d.Decode(&p); errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err != nil {
		return p, fmt.Errorf("%s: %w: correct or delete it, and log in again", file, err)
	}
	return p, nil
}

func profileNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	p, err := readProfiles()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(p.Profiles)), cobra.ShellCompDirectiveNoFileComp
}

// environment returns the login in the environment.
func environment() login { return login{os.Getenv("VESTIBULE_SERVER"), os.Getenv("VESTIBULE_TOKEN")} }

// find returns where the API is, and the token. --profile is stronger than the environment, which is stronger than the
// last login.
func (c *clientFlags) find() (login, error) {
	stored, err := readProfiles()
	if err != nil {
		return login{}, err
	}
	name := cmp.Or(c.profile, os.Getenv("VESTIBULE_PROFILE"))
	kept, known := stored.Profiles[cmp.Or(name, stored.Profile)]
	if name != "" && !known {
		names := strings.Join(slices.Sorted(maps.Keys(stored.Profiles)), ", ")
		return login{}, usageError(fmt.Sprintf("profile: there is no %q, there are %s: log in with --profile %s", name,
			cmp.Or(names, "none"), name))
	}
	env := environment()
	if c.profile != "" {
		env = login{}
	}
	at, err := c.choose(env, kept)
	if err == nil && len(stored.Profiles) > 1 {
		c.fleet = stored.fleet(at, cmp.Or(name, stored.Profile))
	}
	return at, err
}

// fleet returns the profile that has an address of a login, or "without a profile". The chosen one is taken first.
func (p *profiles) fleet(at login, chosen string) string {
	for _, name := range append([]string{chosen}, slices.Sorted(maps.Keys(p.Profiles))...) {
		known := addresses(p.Profiles[name].Server)
		if slices.ContainsFunc(addresses(at.Server), func(a string) bool { return slices.Contains(known, a) }) {
			return name
		}
	}
	return "without a profile"
}

const errNoServer = usageError("server: is needed (--server, VESTIBULE_SERVER, or vestibule login)")

// choose returns the login of the flags, else of the environment, else the stored one. A stored token goes to no other
// server.
func (c *clientFlags) choose(env, kept login) (login, error) {
	all, known := addresses(cmp.Or(c.server, env.Server, kept.Server)), addresses(kept.Server)
	at := login{strings.Join(all, ","), env.Token}
	if at.Token == "" && !slices.ContainsFunc(all, func(a string) bool { return !slices.Contains(known, a) }) {
		at.Token = kept.Token
	}
	for _, a := range all {
		if u, err := url.Parse(a); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return at, usageError(fmt.Sprintf("server: must be an address such as http://127.0.0.1:8090, got %q", a))
		}
	}
	switch {
	case at.Server == "":
		return at, errNoServer
	case at.Token == "":
		return at, usageError("token: is needed (VESTIBULE_TOKEN, or vestibule login); vestibule tokens create makes one, and without any, vestibule admin recover beside a global")
	}
	return at, nil
}

func newLoginCmd() *cobra.Command {
	flags, console := &clientFlags{}, false
	cmd := &cobra.Command{
		Use: "login [SERVER]", Short: "Keep the address of the API and a token, or open the console",
		Long: `Keep the address of the API and a token in a file that only you can read, under the name --profile. The token is taken
from VESTIBULE_TOKEN. Commands without --profile use the last login.

With --console print a link to the console instead. It works once, for 15 minutes, and its session has the token's role
and rooms and ends with the token.`,
		Example: "  VESTIBULE_TOKEN=... vestibule login http://127.0.0.1:8090 --profile live\n  vestibule login --console",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				flags.server = args[0]
			}
			if console {
				return flags.run(consoleLink)(cmd, args)
			}
			return flags.login(cmd)
		},
	}
	cmd.Flags().BoolVar(&console, "console", false, "print a one-time link to the console")
	flags.add(cmd, cmd.Flags())
	return cmd
}

// login stores an address and a token as a profile, once they are valid.
func (c *clientFlags) login(cmd *cobra.Command) error {
	stored, err := readProfiles()
	if err != nil {
		return err
	}
	name := cmp.Or(c.profile, os.Getenv("VESTIBULE_PROFILE"), defaultProfile)
	at, err := c.choose(environment(), stored.Profiles[name])
	if err != nil {
		return err
	}
	cl := &client{http: c.client(), ctx: cmd.Context(), login: at, err: cmd.ErrOrStderr()}
	who, err := call[api.Verified](cl, http.MethodGet, path("user", "tokens", "verify"), nil)
	if err != nil {
		return err
	}
	file, err := profilesPath()
	if err != nil {
		return err
	}
	if stored.Profiles == nil {
		stored.Profiles = map[string]login{}
	}
	stored.Profile, stored.Profiles[name] = name, at
	data, err := yaml.Marshal(stored)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := node.WriteFile(file, data); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "logged in to %s as %s (token %s): profile %s in %s\n", at.Server, who.Role,
		who.Id, name, file)
	return err
}

// consoleLink prints a one-time link to the console.
func consoleLink(c *client, _ []string) error {
	made, err := call[api.ConsoleLink](c, http.MethodPost, path("vestibule", "console", "links"), nil)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.out, strings.TrimSuffix(addresses(c.Server)[c.at], control.Prefix)+made.Path)
	return err
}
