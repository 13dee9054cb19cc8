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
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"vestibule/internal/global/control/api"
	"vestibule/internal/node"
)

// exitUnreachable says to scripts that the API did not answer.
const exitUnreachable = 3

// unreachableError says that the API could not be asked.
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

// loginFile is what `vestibule login` keeps.
type loginFile struct {
	Server string `json:"server"`
	Token  string `json:"token"`
}

// loginPath is where it is kept: the user alone may read it.
func loginPath() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "vestibule", "login.json"), err
}

// clientFlags are those of every command that asks the API.
type clientFlags struct {
	server, output string
	timeout        time.Duration
}

func (c *clientFlags) add(f *pflag.FlagSet) {
	f.StringVar(&c.server, "server", "", "address of the API, such as https://global.example:8090/client/v4 (VESTIBULE_SERVER, or that of vestibule login)")
	f.StringVar(&c.output, "output", "table", "table or json")
	f.DurationVar(&c.timeout, "timeout", 20*time.Second, "how long to wait for an answer")
}

// open parses the flags and returns a client and the arguments that are no flags. The token is that
// of VESTIBULE_TOKEN, or of vestibule login.
func (c *clientFlags) open(f *pflag.FlagSet, args []string, usage string, stdout, stderr io.Writer) (cl *client, words []string, done func(), err error) {
	f.Usage = func() { fmt.Fprintf(stderr, "%s\n%s", usage, f.FlagUsages()) }
	switch err := f.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return nil, nil, nil, errHelp
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v (see --help)\n", f.Name(), err)
		return nil, nil, nil, node.ErrUsage
	}
	kept := loginFile{}
	if file, err := loginPath(); err == nil {
		if data, err := os.ReadFile(file); err == nil {
			if err := json.Unmarshal(data, &kept); err != nil {
				return nil, nil, nil, fmt.Errorf("%s: %w: log in again", file, err)
			}
		}
	}
	token := cmp.Or(os.Getenv("VESTIBULE_TOKEN"), kept.Token)
	c.server = strings.TrimSuffix(cmp.Or(c.server, os.Getenv("VESTIBULE_SERVER"), kept.Server), "/")
	fault := ""
	switch {
	case c.server == "":
		fault = "server: is needed (--server, VESTIBULE_SERVER, or vestibule login)"
	case token == "":
		fault = "token: is needed (VESTIBULE_TOKEN, or vestibule login)"
	case c.output != "table" && c.output != "json":
		fault = fmt.Sprintf("output: must be table or json, got %q", c.output)
	}
	if fault != "" {
		fmt.Fprintf(stderr, "%s: %s\n", f.Name(), fault)
		return nil, nil, nil, node.ErrUsage
	}
	inner, err := api.NewClient(c.server, api.WithHTTPClient(&http.Client{Timeout: c.timeout}), api.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cl = &client{Client: inner, ctx: ctx, output: c.output, out: stdout}
	return cl, f.Args(), stop, nil
}

// take reads an answer into result, or returns everything that was refused.
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

// verify asks what the token is good for, and learns the zone.
func (c *client) verify() (who api.Verified, err error) {
	res, err := c.VerifyToken(c.ctx)
	err = take(res, err, &who)
	c.zone = who.Zone
	return who, err
}

// login keeps an address and a token, once they are good.
func login(args []string, stdout, stderr io.Writer) error {
	f, flags := flagSet("login", stderr), &clientFlags{}
	flags.add(f)
	c, words, done, err := flags.open(f, args, "usage: VESTIBULE_TOKEN=... vestibule login --server URL\n\nKeeps the address and the token in a file that you alone may read.\n", stdout, stderr)
	if err != nil {
		return err
	}
	defer done()
	if len(words) > 0 {
		fmt.Fprintf(stderr, "vestibule login: unexpected argument %q (see --help)\n", words[0])
		return node.ErrUsage
	}
	who, err := c.verify()
	if err != nil {
		return err
	}
	file, err := loginPath()
	if err != nil {
		return err
	}
	data, err := json.Marshal(loginFile{flags.server, os.Getenv("VESTIBULE_TOKEN")})
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
	_, err = fmt.Fprintf(stdout, "logged in as %s (token %s), kept in %s\n", who.Role, who.Id, file)
	return err
}
