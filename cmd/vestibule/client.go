package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
	"vestibule/internal/node"
)

// exitUnreachable is the exit code if the API did not answer.
const exitUnreachable = 3

// unreachableError means that the API could not be reached.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return "the API cannot be reached: " + e.err.Error() }

func (e *unreachableError) Unwrap() error { return e.err }

// client calls the API from the command line.
type client struct {
	http          *http.Client
	ctx           context.Context
	server, token string
	output        string
	out           io.Writer
}

// loginFile is the file that `vestibule login` writes.
type loginFile struct {
	Server string `json:"server"`
	Token  string `json:"token"`
}

// loginPath returns the path of the login file, which only the user can read.
func loginPath() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "vestibule", "login.json"), err
}

// clientFlags are the flags of every command that calls the API.
type clientFlags struct {
	server, output string
	timeout        time.Duration
}

func (c *clientFlags) add(cmd *cobra.Command, f *pflag.FlagSet) {
	c.offerRooms(cmd)
	f.StringVar(&c.server, "server", "",
		"address of the API, such as https://global.example:8090/client/v4 (VESTIBULE_SERVER, or that of vestibule login)")
	f.StringVar(&c.output, "output", "table", "table or json")
	f.DurationVar(&c.timeout, "timeout", 20*time.Second, "how long to wait for an answer")
	offer(cmd, "output", "table", "json")
}

// group returns cmd with subcommands that call the API.
func (c *clientFlags) group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.add(cmd, cmd.PersistentFlags())
	for _, sub := range commands {
		c.offerRooms(sub)
	}
	cmd.AddCommand(commands...)
	return cmd
}

// offerRooms completes the first argument of a command if it is ROOM.
func (c *clientFlags) offerRooms(cmd *cobra.Command) {
	if words := strings.Fields(cmd.Use); len(words) > 1 && strings.Contains(words[1], "ROOM") {
		cmd.ValidArgsFunction = c.completeRoom
	}
}

// open returns a client of the API. The token is that of VESTIBULE_TOKEN, or of vestibule login.
func (c *clientFlags) open(cmd *cobra.Command) (*client, error) {
	kept := loginFile{}
	if file, err := loginPath(); err == nil {
		if data, err := os.ReadFile(file); err == nil {
			if err := json.Unmarshal(data, &kept); err != nil {
				return nil, fmt.Errorf("%s: %w: log in again", file, err)
			}
		}
	}
	token := cmp.Or(os.Getenv("VESTIBULE_TOKEN"), kept.Token)
	c.server = strings.TrimSuffix(cmp.Or(c.server, os.Getenv("VESTIBULE_SERVER"), kept.Server), "/")
	switch {
	case c.server == "":
		return nil, usageError("server: is needed (--server, VESTIBULE_SERVER, or vestibule login)")
	case token == "":
		return nil, usageError("token: is needed (VESTIBULE_TOKEN, or vestibule login)")
	case c.output != "table" && c.output != "json":
		return nil, usageError(fmt.Sprintf("output: must be table or json, got %q", c.output))
	}
	return &client{&http.Client{Timeout: c.timeout}, cmd.Context(), c.server, token, c.output, cmd.OutOrStdout()}, nil
}

// runFunc runs a command.
type runFunc = func(cmd *cobra.Command, args []string) error

// run returns the run function of a command that calls the API.
func (c *clientFlags) run(do func(c *client, args []string) error) runFunc {
	return func(cmd *cobra.Command, args []string) error {
		cl, err := c.open(cmd)
		if err != nil {
			return err
		}
		return do(cl, args)
	}
}

// ofRoom is run for a command whose first argument is ROOM. do gets the arguments after it.
func (c *clientFlags) ofRoom(do func(c *client, r *api.Room, args []string) error) runFunc {
	return c.run(func(cl *client, args []string) error {
		r, err := cl.find(args[0])
		if err != nil {
			return err
		}
		return do(cl, r, args[1:])
	})
}

// completeRoom offers the names of rooms for the first argument.
func (c *clientFlags) completeRoom(
	cmd *cobra.Command, args []string, _ string,
) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c.timeout = min(c.timeout, 2*time.Second) // a user waits at the keyboard
	cl, err := c.open(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	rooms, err := cl.all()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for _, r := range rooms {
		names = append(names, r.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// call returns the result in an answer of the API, or all refusals. The target is a path of openapi.yaml, with its
// query; body is nil for none.
func call[T any](c *client, method, target string, body object, edit ...func(*http.Request)) (out T, _ error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return out, err
		}
		content = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(c.ctx, method, c.server+target, content)
	if err != nil {
		return out, usagef("server: %v", err)
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Content-Type", "application/json")
	for _, e := range edit {
		e(r)
	}
	res, err := c.http.Do(r)
	if err != nil {
		return out, &unreachableError{err}
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, 256<<20))
	if err != nil {
		return out, &unreachableError{err}
	}
	var answer struct {
		Success bool
		Errors  []api.Note
		Result  json.RawMessage
	}
	err = json.Unmarshal(data, &answer)
	if err == nil && answer.Success {
		err = json.Unmarshal(answer.Result, &out)
	}
	if err != nil {
		return out, &unreachableError{fmt.Errorf("answer %d is not one of the API: %w", res.StatusCode, err)}
	}
	if answer.Success {
		return out, nil
	}
	var errs []error
	for _, n := range answer.Errors {
		text := strings.TrimSuffix(n.Message, ": invalid data")
		errs = append(errs, fmt.Errorf("%s (%d)", text, n.Code))
	}
	if res.StatusCode == http.StatusServiceUnavailable {
		return out, &unreachableError{errors.Join(errs...)}
	}
	return out, errors.Join(errs...)
}

// pages returns the results of all pages of a list, or at least the first most; 0 for all.
func pages[T any](c *client, path string, most int) (all []T, err error) {
	const per = 500
	all = []T{}
	for page := 1; most == 0 || len(all) < most; page++ {
		some, err := call[[]T](c, http.MethodGet, fmt.Sprintf("%s?page=%d&per_page=%d", path, page, per), nil)
		if err != nil {
			return nil, err
		}
		if all = append(all, some...); len(some) < per {
			break
		}
	}
	return all, nil
}

// path returns a path of the API, of segments that need not be escaped yet.
func path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

// inZone returns a path below the rooms of the zone.
func inZone(segments ...string) string {
	return path("zones", control.Zone, "waiting_rooms") + path(segments...)
}

// ofOurs returns a path that the hosted product has not.
func ofOurs(segments ...string) string { return path("vestibule") + path(segments...) }

// all returns all rooms.
func (c *client) all() ([]api.Room, error) { return pages[api.Room](c, inZone(), 0) }

// find returns a room by its name or ID.
func (c *client) find(name string) (*api.Room, error) {
	rooms, err := c.all()
	if err != nil {
		return nil, err
	}
	return roomOf(rooms, name)
}

// roomOf returns one of the rooms by its name or ID.
func roomOf(rooms []api.Room, name string) (*api.Room, error) {
	i := slices.IndexFunc(rooms, func(r api.Room) bool { return r.Name == name || r.Id == name })
	if i < 0 {
		return nil, fmt.Errorf("no room %q", name)
	}
	return &rooms[i], nil
}

func newLoginCmd() *cobra.Command {
	flags := &clientFlags{}
	cmd := &cobra.Command{
		Use: "login", Short: "Keep the address of the API and a token",
		Long:    "Keep the address of the API and a token in a file that only you can read. The token is taken from VESTIBULE_TOKEN.",
		Example: "  VESTIBULE_TOKEN=... vestibule login --server URL",
		RunE:    func(cmd *cobra.Command, _ []string) error { return flags.login(cmd) },
	}
	flags.add(cmd, cmd.Flags())
	return cmd
}

// login stores an address and a token, once they are valid.
func (c *clientFlags) login(cmd *cobra.Command) error {
	cl, err := c.open(cmd)
	if err != nil {
		return err
	}
	who, err := call[api.Verified](cl, http.MethodGet, path("user", "tokens", "verify"), nil)
	if err != nil {
		return err
	}
	file, err := loginPath()
	if err != nil {
		return err
	}
	data, err := json.Marshal(loginFile{c.server, os.Getenv("VESTIBULE_TOKEN")})
	if err != nil {
		return err
	}
	if os.Getenv("VESTIBULE_TOKEN") != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := node.WriteFile(file, data); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(cl.out, "logged in as %s (token %s), kept in %s\n", who.Role, who.Id, file)
	return err
}
