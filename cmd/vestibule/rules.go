package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"vestibule/internal/node"
	"vestibule/internal/room"
	"vestibule/internal/rules"
)

const rulesUsage = `usage: vestibule rules try --expression E --request FILE.json [--lists FILE.json]

Prints true or false: whether the request matches the expression, under every reading of its path.
The request is {"method", "scheme", "host", "path", "query", "http_version", "headers": [["name", "value"]],
"ip", "country", "continent", "asn", "eu", "verified_bot", "time"}, lists are {"name": ["10.0.0.0/8", "::1"]}.
What is left out is missing; a time is in Unix seconds or as 2026-11-22T16:00:00Z.
Exit codes: 0 printed, 1 a file cannot be read, 2 the expression, a file or the usage is wrong.
`

func rulesCommand(args []string, stdout, stderr io.Writer) error {
	f := flagSet("rules", stderr)
	f.Usage = func() { fmt.Fprintf(stderr, "%s\n%s", rulesUsage, f.FlagUsages()) }
	expression := f.String("expression", "", "what to try")
	request := f.String("request", "", "JSON file of a request")
	lists := f.String("lists", "", "JSON file of named lists")
	switch err := f.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return errHelp
	case err != nil:
		fmt.Fprintf(stderr, "vestibule rules: %v (see --help)\n", err)
		return node.ErrUsage
	}
	if !slices.Equal(f.Args(), []string{"try"}) || !f.Changed("expression") || *request == "" {
		fmt.Fprint(stderr, rulesUsage)
		return node.ErrUsage
	}
	from := rules.Sources{Geo: true, Crawlers: true}
	req := &rules.Request{}
	var faults []error
	for _, in := range []struct {
		file string
		read func([]byte) []error
	}{
		{*lists, func(data []byte) (faults []error) { from.Lists, faults = readLists(data); return faults }},
		{*request, func(data []byte) (faults []error) { req, faults = readRequest(data); return faults }},
	} {
		if in.file == "" {
			continue
		}
		data, err := os.ReadFile(in.file)
		if err != nil {
			return err
		}
		for _, err := range in.read(data) {
			faults = append(faults, fmt.Errorf("%s: %w", in.file, err))
		}
	}
	rule, err := rules.Compile(*expression, from)
	if err != nil {
		faults = append(faults, fmt.Errorf("expression: %w", err))
	}
	if len(faults) > 0 {
		fmt.Fprintln(stderr, errors.Join(faults...))
		return node.ErrUsage
	}
	var s rules.Scratch
	s.Ask(req)
	_, err = fmt.Fprintln(stdout, rule.Match(&s))
	return err
}

// object reads a JSON object, field by field, each once. It tells everything that is wrong.
func object(data []byte, field func(key string, value json.RawMessage) error) (faults []error) {
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
			faults = append(faults, fmt.Errorf("%s: stands there twice", key))
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

// into reads a value that must be of the type of to.
func into(value json.RawMessage, to any, what string) error {
	if string(value) == "null" || json.Unmarshal(value, to) != nil {
		return fmt.Errorf("must be %s, got %s", what, strings.TrimSpace(string(value)))
	}
	return nil
}

// readRequest reads the request of a file.
func readRequest(data []byte) (*rules.Request, []error) {
	r := &rules.Request{Method: "GET", Scheme: "http", Version: "HTTP/1.1"}
	path, client := "/", ""
	texts := map[string]*string{
		"method": &r.Method, "scheme": &r.Scheme, "host": &r.Host, "path": &path, "query": &r.Query, "http_version": &r.Version, "ip": &client, "country": &r.Country, "continent": &r.Continent,
	}
	faults := object(data, func(key string, value json.RawMessage) error {
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
			name, ok := room.CanonicalHost(r.Host)
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
	room.Readings(path, func(reading string) bool {
		r.Paths = append(r.Paths, strings.Clone(reading))
		return true
	})
	return r, faults
}

// readTime reads Unix seconds, or a time as RFC 3339 spells it.
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
	return lists, object(data, func(name string, value json.RawMessage) error {
		var texts []string
		if err := into(value, &texts, "a list of addresses and networks"); err != nil {
			return err
		}
		list, err := rules.ParseNetworks(texts)
		lists[name] = list
		return err
	})
}
