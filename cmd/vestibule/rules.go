package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/match"
	"vestibule/internal/core/rules"
	"vestibule/internal/global/control/api"
)

func newRulesCmd() *cobra.Command {
	flags := &clientFlags{}
	return flags.changes(&cobra.Command{Use: "rules", Short: "Show, change and try bypass rules"},
		newRulesTryCmd(flags),
		&cobra.Command{
			Use: "list ROOM", Short: "Show the rules of a room",
			RunE: flags.ofRoom(func(c *client, r *api.Room, _ []string) error { return listRules(c, r.Id) }),
		},
		newRulesAddCmd(flags),
		&cobra.Command{
			Use: "set ROOM RULE KEY=VALUE...", Short: "Change or move a rule, by ID or place in the list", Args: pairs(2),
			Long: `Change or move a rule, by ID or place in the list. Keys are expression, description, enabled, and position.index,
position.before or position.after.`,
			Example: "  vestibule rules set shop 2 enabled=false\n  vestibule rules set shop 2 position.index=1",
			RunE: flags.ofRule(func(c *client, r *api.Room, rule *api.Rule, args []string) error {
				target := inZone(r.Id, "rules", rule.Id)
				b, err := body(args)
				if err != nil {
					return err
				}
				return change(c, http.MethodPatch, target, b, func(all []api.Rule) string {
					i := max(0, slices.IndexFunc(all, func(x api.Rule) bool { return x.Id == rule.Id })) // it is there
					return fmt.Sprintf("rule %d of room %s: %s", i+1, r.Name, differences(rule, all[i]))
				}, ifMatch(c.tag))
			}),
		},
		&cobra.Command{
			Use: "delete ROOM RULE", Short: "Delete a rule, by ID or place in the list",
			RunE: flags.ofRule(func(c *client, r *api.Room, rule *api.Rule, _ []string) error {
				return change(c, http.MethodDelete, inZone(r.Id, "rules", rule.Id), nil, func([]api.Rule) string {
					return fmt.Sprintf("deleted rule %s of room %s", rule.Expression, r.Name)
				}, ifMatch(c.tag))
			}),
		})
}

func newRulesAddCmd(flags *clientFlags) *cobra.Command {
	description, disabled := "", false
	cmd := &cobra.Command{
		Use: "add ROOM EXPRESSION", Short: "Add a rule at the end: requests that match EXPRESSION pass the room",
		Example: `  vestibule rules add shop 'starts_with(http.request.uri.path, "/assets/")' --description assets`,
		RunE: flags.ofRoom(func(c *client, r *api.Room, args []string) error {
			rule := object{
				"action": room.ActionBypass, "expression": args[0], "description": description, "enabled": !disabled,
			}
			return change(c, http.MethodPost, inZone(r.Id, "rules"), rule, func(all []api.Rule) string {
				return fmt.Sprintf("added rule %d of room %s", len(all), r.Name)
			})
		}),
	}
	cmd.Flags().StringVar(&description, "description", "", "what the rule is for")
	cmd.Flags().BoolVar(&disabled, "disabled", false, "add it without effect")
	return cmd
}

// ofRule is ofRoom for a command whose second argument is RULE. do gets the rule, and the arguments after it.
func (c *clientFlags) ofRule(do func(c *client, r *api.Room, rule *api.Rule, args []string) error) runFunc {
	return c.ofRoom(func(cl *client, r *api.Room, args []string) error {
		all, err := cl.rules(r.Id)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(x api.Rule) bool { return x.Id == args[0] })
		if n, err := strconv.Atoi(args[0]); err == nil && n >= 1 && n <= len(all) && i < 0 {
			i = n - 1
		}
		if i < 0 {
			return fmt.Errorf("room %s has no rule %q, it has %d", r.Name, args[0], len(all))
		}
		return do(cl, r, &all[i], args[1:])
	})
}

func newRulesTryCmd(flags *clientFlags) *cobra.Command {
	try := &ruleTrial{flags: flags}
	cmd := &cobra.Command{
		Use:   "try --request FILE --expression E|--room ROOM",
		Short: "Try an expression, or the rules of a room, with a request",
		Long: `Try an expression with a request: print true or false, under every reading of its path. With --room: print the rule that lets
the request pass, and why others do not.

The request is {"method", "scheme", "host", "path", "query", "http_version", "headers": [["name", "value"]], "ip",
"country", "continent", "asn", "eu", "verified_bot", "time"}, lists are {"name": ["10.0.0.0/8", "::1"]}. Fields left
out are missing. A time is in Unix seconds or as 2026-11-22T16:00:00Z.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if try.request == "" || cmd.Flags().Changed("expression") == (try.room != "") {
				return usageError("request and one of expression and room: are needed\nusage: " + cmd.UseLine())
			}
			return try.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&try.expression, "expression", "", "the expression")
	f.StringVar(&try.request, "request", "", "JSON file of a request")
	f.StringVar(&try.lists, "lists", "", "JSON file of named lists")
	f.StringVar(&try.room, "room", "", "name or ID of a room, to try its rules")
	return cmd
}

// ruleTrial is an expression, or a room, and the files to try it with.
type ruleTrial struct {
	flags                            *clientFlags
	expression, request, lists, room string
}

func (t *ruleTrial) run(cmd *cobra.Command) error {
	from := rules.Sources{Geo: true, Crawlers: true}
	req, faults, err := readTried(t.request, t.lists, &from)
	if err != nil {
		return err
	}
	var rule *rules.Rule
	if t.room == "" {
		if rule, err = rules.Compile(t.expression, from); err != nil {
			faults = append(faults, fmt.Errorf("expression: %w", err))
		}
	}
	if len(faults) > 0 {
		return usageError("the expression or a file is not valid:\n" + errors.Join(faults...).Error())
	}
	var s rules.Scratch
	s.Ask(req)
	if rule != nil {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), rule.Match(&s))
		return err
	}
	try := func(c *client, r *api.Room, _ []string) error { return tryRules(c, r.Id, from, &s) }
	return t.flags.ofRoom(try)(cmd, []string{t.room})
}

func (c *client) rules(id string) ([]api.Rule, error) {
	return call[[]api.Rule](c, http.MethodGet, inZone(id, "rules"), nil)
}

// listRules shows the rules of a room.
func listRules(c *client, id string) error {
	list, err := c.rules(id)
	if err != nil {
		return err
	}
	return c.show(list, func(row func(...any)) {
		row("PLACE", "ID", "ENABLED", "VERSION", "EXPRESSION", "DESCRIPTION")
		for i, r := range list {
			row(i+1, r.Id, r.Enabled, r.Version, r.Expression, r.Description)
		}
	})
}

// tried is the result of one rule for a request.
type tried struct {
	api.Rule
	Matches bool   `json:"matches"`
	Reason  string `json:"reason,omitempty"`
}

// tryRules shows the result of each rule of a room for the request that s was asked for.
func tryRules(c *client, id string, from rules.Sources, s *rules.Scratch) error {
	list, err := c.rules(id)
	if err != nil {
		return err
	}
	all := make([]tried, len(list))
	for i, rule := range list {
		all[i] = tried{Rule: rule, Reason: "it is not enabled"}
		if rule.Enabled {
			if compiled, err := rules.Compile(rule.Expression, from); err != nil {
				all[i].Reason = "it cannot be evaluated: " + err.Error()
			} else {
				all[i].Matches, all[i].Reason = compiled.Explain(s)
			}
		}
	}
	return c.show(all, func(row func(...any)) {
		row("ID", "MATCHES", "EXPRESSION", "WHY NOT")
		for _, t := range all {
			row(t.Id, t.Matches, t.Expression, t.Reason)
		}
		if i := slices.IndexFunc(all, func(t tried) bool { return t.Matches }); i >= 0 {
			row("passes by rule " + all[i].Id)
		} else {
			row("no rule lets the request past")
		}
	})
}

// eachField reads a JSON object, field by field, each once. It returns all faults.
func eachField(data []byte, field func(key string, value json.RawMessage) error) (faults []error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		return []error{errors.New("must be a JSON object")}
	}
	seen := map[string]bool{}
	for d.More() {
		tok, err := d.Token()
		if err != nil {
			return append(faults, fmt.Errorf("not JSON: %w", err))
		}
		key, _ := tok.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return append(faults, fmt.Errorf("%s: not JSON: %w", key, err))
		}
		if seen[key] {
			faults = append(faults, fmt.Errorf("%s: is given twice", key))
		} else if err := field(key, value); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", key, err))
		}
		seen[key] = true
	}
	if _, err := d.Token(); err != nil {
		return append(faults, fmt.Errorf("not JSON: %w", err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		faults = append(faults, errors.New("there is something behind the object"))
	}
	return faults
}

// into decodes a value into to.
func into(value json.RawMessage, to any, what string) error {
	if string(value) == "null" || json.Unmarshal(value, to) != nil {
		return fmt.Errorf("must be %s, got %s", what, strings.TrimSpace(string(value)))
	}
	return nil
}

// readTried reads the request and the lists that a rule is tried with, if files are named, and returns all faults of
// their contents.
func readTried(request, lists string, from *rules.Sources) (req *rules.Request, faults []error, err error) {
	for _, in := range []struct {
		file string
		read func([]byte) []error
	}{
		{lists, func(data []byte) (faults []error) { from.Lists, faults = readLists(data); return faults }},
		{request, func(data []byte) (faults []error) { req, faults = readRequest(data); return faults }},
	} {
		if in.file == "" {
			continue
		}
		data, err := os.ReadFile(in.file)
		if err != nil {
			return nil, nil, err
		}
		for _, err := range in.read(data) {
			faults = append(faults, fmt.Errorf("%s: %w", in.file, err))
		}
	}
	return req, faults, nil
}

// readRequest reads the request of a file.
func readRequest(data []byte) (*rules.Request, []error) {
	r := &rules.Request{Method: "GET", Scheme: "http", Version: "HTTP/1.1"}
	path, client := "/", ""
	texts := map[string]*string{
		"method": &r.Method, "scheme": &r.Scheme, "host": &r.Host, "path": &path, "query": &r.Query,
		"http_version": &r.Version, "ip": &client, "country": &r.Country, "continent": &r.Continent,
	}
	faults := eachField(data, func(key string, value json.RawMessage) error {
		if to := texts[key]; to != nil {
			if err := into(value, to, "a text"); err != nil {
				return err
			}
		}
		switch key {
		case "method", "query", "http_version", "country", "continent":
		case "scheme":
			if r.Scheme != "http" && r.Scheme != "https" {
				return fmt.Errorf("must be http or https, got %q", r.Scheme)
			}
		case "host":
			name, ok := match.CanonicalHost(r.Host)
			if !ok {
				return fmt.Errorf("must be a host, got %q", r.Host)
			}
			r.Host = name
		case "path":
			if path == "" || path[0] != '/' {
				return fmt.Errorf("must begin with a slash, got %q", path)
			}
		case "ip":
			var err error
			if r.Client, err = netip.ParseAddr(client); err != nil {
				return fmt.Errorf("must be an address, got %q", client)
			}
		case "headers":
			var lines [][]string
			if err := into(value, &lines, `a list of ["name", "value"]`); err != nil {
				return err
			}
			for i, l := range lines {
				if len(l) != 2 || l[0] == "" {
					return fmt.Errorf(`[%d]: must be ["name", "value"]`, i)
				}
				r.Headers = append(r.Headers, rules.Header{Name: l[0], Value: l[1]})
			}
		case "asn":
			if err := into(value, &r.ASN, "a whole number"); err != nil {
				return err
			}
			if r.ASN < 0 || r.ASN > 1<<32-1 {
				return fmt.Errorf("must be 0 to 4294967295, got %d", r.ASN)
			}
		case "eu":
			return into(value, &r.EU, "true or false")
		case "verified_bot":
			return into(value, &r.Crawler, "true or false")
		case "time":
			return readTime(value, &r.Time)
		default:
			return errors.New("unknown field")
		}
		return nil
	})
	match.Readings(path, func(reading string) bool {
		r.Paths = append(r.Paths, strings.Clone(reading))
		return true
	})
	return r, faults
}

// readTime reads Unix seconds, or a time in RFC 3339.
func readTime(value json.RawMessage, to *int64) error {
	text := ""
	if json.Unmarshal(value, &text) == nil {
		if t, err := time.Parse(time.RFC3339, text); err == nil {
			*to = t.Unix()
			return nil
		}
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return fmt.Errorf("must be in Unix seconds or as 2026-11-22T16:00:00Z, got %s", value)
	}
	*to = n
	return nil
}

// readLists reads named lists of addresses and networks.
func readLists(data []byte) (map[string]*rules.Networks, []error) {
	lists := map[string]*rules.Networks{}
	return lists, eachField(data, func(name string, value json.RawMessage) error {
		var texts []string
		if err := into(value, &texts, "a list of addresses and networks"); err != nil {
			return err
		}
		list, err := rules.ParseNetworks(texts)
		lists[name] = list
		return err
	})
}
