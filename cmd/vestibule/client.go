package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

// exitUnreachable is the exit code if the API did not answer.
const exitUnreachable = 3

// unreachableError means that the API could not be reached, or cannot serve the request now.
type unreachableError struct {
	err      error
	answered bool // with status 503
}

func (e *unreachableError) Error() string {
	if e.answered {
		return "the API cannot do this now: " + e.err.Error()
	}
	if failed, ok := errors.AsType[*url.Error](e.err); ok { // its text has the whole address of the request
		at, _, _ := strings.Cut(failed.URL, control.Prefix)
		return fmt.Sprintf("the API cannot be reached at %s: %v", at, failed.Err)
	}
	return "the API cannot be reached: " + e.err.Error()
}

func (e *unreachableError) Unwrap() error { return e.err }

// client calls the API from the command line.
type client struct {
	http *http.Client
	ctx  context.Context
	login
	at             int // the address of Server that answered last
	output, reason string
	in             io.Reader
	out, err       io.Writer
	tag            string // entity tag of the last answer
	warned         string // the last message
}

// clientFlags are the flags of every command that calls the API.
type clientFlags struct {
	profile, server, output, reason string

	fleet   string // the profile with the address, among several; "" if there is no choice
	timeout time.Duration
}

func (c *clientFlags) add(cmd *cobra.Command, f *pflag.FlagSet) {
	cmd.ValidArgsFunction = c.completeArgs
	f.StringVar(&c.profile, "profile", "", "name given to vestibule login (VESTIBULE_PROFILE, or the last login)")
	f.StringVar(&c.server, "server", "",
		"addresses of the API, such as https://global-0.example:8090,https://global-1.example:8090 (VESTIBULE_SERVER, or those of the profile)")
	f.StringVar(&c.output, "output", "table", "table or json")
	f.DurationVar(&c.timeout, "timeout", 20*time.Second, "how long to wait for an answer")
	offer(cmd, "output", "table", "json")
	offerBy(cmd, "profile", profileNames)
}

// group returns cmd with subcommands that call the API.
func (c *clientFlags) group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.add(cmd, cmd.PersistentFlags())
	for _, sub := range commands {
		sub.ValidArgsFunction = c.completeArgs
	}
	cmd.AddCommand(commands...)
	return cmd
}

// changes is group for commands that change something.
func (c *clientFlags) changes(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.group(cmd, commands...)
	c.addReason(cmd.PersistentFlags())
	return cmd
}

func (c *clientFlags) addReason(f *pflag.FlagSet) {
	f.StringVar(&c.reason, "reason", "", "the reason, kept in the audit log")
}

// open returns a client of the API, at the server and with the token of the flags, the environment or a profile.
func (c *clientFlags) open(cmd *cobra.Command) (*client, error) {
	if c.output != "table" && c.output != "json" {
		return nil, usageError(fmt.Sprintf("output: must be table or json, got %q", c.output))
	}
	at, err := c.find()
	if err != nil {
		return nil, err
	}
	if c.fleet != "" { // the last login may be another one than the user thinks
		fmt.Fprintf(cmd.ErrOrStderr(), "fleet %s at %s\n", c.fleet, at.Server)
	}
	return &client{
		http: c.client(), ctx: cmd.Context(), login: at, output: c.output, reason: c.reason,
		in: cmd.InOrStdin(), out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(),
	}, nil
}

// dialTimeout bounds the connection to one of several addresses.
const dialTimeout = 3 * time.Second

// client returns the client of HTTP.
func (c *clientFlags) client() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // documented
	t.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	return &http.Client{Timeout: c.timeout, Transport: t}
}

// do sends a request to the address that answered last, and then to the others: where nothing can have been changed.
func (c *client) do(method, target string, content []byte, edit []func(*http.Request)) (*http.Response, error) {
	all := addresses(c.Server)
	for tries := 1; ; tries++ {
		r, err := http.NewRequestWithContext(c.ctx, method, all[c.at]+target, bytes.NewReader(content))
		if err != nil {
			return nil, usagef("server: %v", err)
		}
		r.Header.Set("Authorization", "Bearer "+c.Token)
		r.Header.Set("Content-Type", "application/json")
		for _, e := range edit {
			e(r)
		}
		res, err := c.http.Do(r)
		reads := method == http.MethodGet
		dial, isDial := errors.AsType[*net.OpError](err)
		unsent := isDial && dial.Op == "dial"
		switch {
		case tries == len(all) || c.ctx.Err() != nil:
		case err != nil && (reads || unsent),
			err == nil && reads && res.StatusCode == http.StatusServiceUnavailable:
			if err == nil {
				res.Body.Close()
			}
			c.at = (c.at + 1) % len(all)
			continue
		}
		if err != nil {
			err = c.unanswered(err, !reads && !unsent)
		}
		return res, err
	}
}

// unanswered is the error of a request without an answer; changes says that the request may have changed something.
func (c *client) unanswered(err error, changes bool) error {
	if c.ctx.Err() != nil {
		err = errors.New(interrupted)
	} else {
		err = &unreachableError{err: err}
	}
	if changes {
		err = fmt.Errorf("%w; whether the change was made is not known: see vestibule audit list", err)
	}
	return err
}

// addresses returns the addresses in a list with commas, each with the path of the API.
func addresses(list string) (all []string) {
	for a := range strings.SplitSeq(list, ",") {
		a = strings.TrimRight(strings.TrimSpace(a), "/")
		if u, err := url.Parse(a); err == nil && u.Host != "" && u.Path == "" {
			a += control.Prefix
		}
		if a != "" {
			all = append(all, a)
		}
	}
	return all
}

// runFunc runs a command.
type runFunc = func(cmd *cobra.Command, args []string) error

// run returns the run function of a command that calls the API.
func (c *clientFlags) run(do func(c *client, args []string) error) runFunc {
	return func(cmd *cobra.Command, args []string) error {
		cl, err := c.open(cmd)
		if errors.Is(err, errNoServer) && cmd.Flags().Lookup("nats-url") != nil {
			err = errNoServer + ", or --nats-url"
		}
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

// notFound is the message of the API, as of the hosted product, that does not name the object.
const notFound = "Object not found."

// missingError says which object is not there.
type missingError struct {
	object string // path in the API
	code   int
}

func (e *missingError) Error() string { return fmt.Sprintf("there is no %s (%d)", e.object, e.code) }

// call returns the result in an answer of the API, or all refusals. The target is a path of openapi.yaml, with its
// query; body is nil for none.
func call[T any](c *client, method, target string, body object, edit ...func(*http.Request)) (out T, err error) {
	var content []byte
	if body != nil {
		if content, err = json.Marshal(body); err != nil {
			return out, err
		}
	}
	res, err := c.do(method, target, content, edit)
	if err != nil {
		return out, err
	}
	defer res.Body.Close()
	c.tag = res.Header.Get("ETag")
	data, err := io.ReadAll(io.LimitReader(res.Body, 256<<20))
	if err != nil {
		return out, c.unanswered(err, method != http.MethodGet)
	}
	var answer struct {
		Success          bool
		Errors, Messages []api.Note
		Result           json.RawMessage
	}
	err = json.Unmarshal(data, &answer)
	if err == nil && answer.Success {
		err = json.Unmarshal(answer.Result, &out)
	}
	if err != nil {
		return out, &unreachableError{err: fmt.Errorf(
			"%s answers %d, and not as the API: it must be the address of control.listen (vestibule serve: --control)",
			res.Request.URL.Host, res.StatusCode)}
	}
	if answer.Success {
		c.warn(answer.Messages)
		return out, nil
	}
	var errs []error
	for _, n := range answer.Errors {
		text := strings.TrimSuffix(n.Message, ": invalid data")
		if res.StatusCode == http.StatusNotFound && text == notFound {
			object, _, _ := strings.Cut(strings.TrimPrefix(target, "/vestibule/"), "?")
			errs = append(errs, &missingError{object, n.Code})
			continue
		}
		errs = append(errs, fmt.Errorf("%s (%d)", text, n.Code))
	}
	if res.StatusCode == http.StatusServiceUnavailable {
		return out, &unreachableError{errors.Join(errs...), true}
	}
	return out, errors.Join(errs...)
}

// warn shows the messages of an answer, each once.
func (c *client) warn(messages []api.Note) {
	for _, m := range messages {
		if m.Message != c.warned {
			fmt.Fprintf(c.err, "note: %s\n", m.Message)
		}
		c.warned = m.Message
	}
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
		return nil, noSuch("no room", name, rooms, func(r *api.Room) string { return r.Name },
			" (rooms restore brings back a deleted one)")
	}
	return &rooms[i], nil
}

// oneOf returns the token or webhook of a list with an ID, or with a name that no other has.
func oneOf[T any](what string, list []T, of func(*T) (id, name string), wanted string) (*T, error) {
	var found []*T
	for i := range list {
		id, name := of(&list[i])
		if id == wanted {
			return &list[i], nil
		}
		if name == wanted {
			found = append(found, &list[i])
		}
	}
	switch len(found) {
	case 0:
		nameOf := func(x *T) string {
			_, name := of(x)
			return name
		}
		return nil, noSuch("no "+what, wanted, list, nameOf, fmt.Sprintf(": see vestibule %ss list", what))
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("several %[1]ss are named %[2]s: give an ID, see vestibule %[1]ss list", what, wanted)
}

func namesOf[T any](all []T, nameOf func(*T) string) (names []string) {
	for i := range all {
		names = append(names, nameOf(&all[i]))
	}
	return names
}

// noSuch is the error for a name that none of all has: it tells the one that was probably meant, or else what to do.
func noSuch[T any](what, name string, all []T, nameOf func(*T) string, advice string) error {
	if meant := room.Suggest(name, namesOf(all, nameOf)); meant != "" {
		return fmt.Errorf("%s %q, did you mean %q?", what, name, meant)
	}
	return fmt.Errorf("%s %q%s", what, name, advice)
}
