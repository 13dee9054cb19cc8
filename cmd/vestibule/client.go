package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vestibule/internal/global/control/api"
	"vestibule/internal/node"
)

// exitUnreachable is the exit code if the API did not answer.
const exitUnreachable = 3

// unreachableError means that the API could not be reached.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return "the API cannot be reached: " + e.err.Error() }

func (e *unreachableError) Unwrap() error { return e.err }

// client is a call of the API from the command line.
type client struct {
	*api.Client
	ctx    context.Context
	zone   string
	output string
	out    io.Writer
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
	f.StringVar(&c.server, "server", "", "address of the API, such as https://global.example:8090/client/v4 (VESTIBULE_SERVER, or that of vestibule login)")
	f.StringVar(&c.output, "output", "table", "table or json")
	f.DurationVar(&c.timeout, "timeout", 20*time.Second, "how long to wait for an answer")
	offer(cmd, "output", "table", "json")
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
	inner, err := api.NewClient(c.server, api.WithHTTPClient(&http.Client{Timeout: c.timeout}), api.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	return &client{Client: inner, ctx: cmd.Context(), output: c.output, out: cmd.OutOrStdout()}, err
}

// openZone is open for commands that need the zone.
func (c *clientFlags) openZone(cmd *cobra.Command) (*client, error) {
	cl, err := c.open(cmd)
	if err != nil {
		return nil, err
	}
	_, err = cl.verify()
	return cl, err
}

// run returns the run function of a command that needs the zone.
func (c *clientFlags) run(do func(c *client, args []string) error) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, args []string) error {
		cl, err := c.openZone(cmd)
		if err != nil {
			return err
		}
		return do(cl, args)
	}
}

// completeRoom offers the names of rooms for the first argument.
func (c *clientFlags) completeRoom(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c.timeout = min(c.timeout, 2*time.Second) // a user waits at the keyboard
	cl, err := c.openZone(cmd)
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

// take decodes an answer into result, or returns all refusals.
func take(res *http.Response, err error, result any) error {
	if err != nil {
		return &unreachableError{err}
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, 256<<20))
	if err != nil {
		return &unreachableError{err}
	}
	envelope := struct {
		Success bool
		Errors  []api.Note
		Result  any
	}{Result: result}
	if err := json.Unmarshal(data, &envelope); err != nil {
		return &unreachableError{fmt.Errorf("answer %d is not one of the API: %w", res.StatusCode, err)}
	}
	if envelope.Success {
		return nil
	}
	var errs []error
	for _, n := range envelope.Errors {
		text := strings.TrimSuffix(n.Message, ": invalid data")
		errs = append(errs, fmt.Errorf("%s (%d)", text, n.Code))
	}
	if res.StatusCode == http.StatusServiceUnavailable {
		return &unreachableError{errors.Join(errs...)}
	}
	return errors.Join(errs...)
}

// verify checks the token, and learns the zone.
func (c *client) verify() (who api.Verified, err error) {
	res, err := c.VerifyToken(c.ctx)
	err = take(res, err, &who)
	c.zone = who.Zone
	return who, err
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
	who, err := cl.verify()
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
