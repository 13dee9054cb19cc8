package edge

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/oschwald/maxminddb-golang/v2"

	"vestibule/internal/core/rules"
	"vestibule/internal/edge/gate"
)

// ruleSources reads the files that rules use.
func ruleSources(cfg *Config) (s gate.Sources, err error) {
	var all geoFiles
	for _, f := range [][2]string{{"geo.file", cfg.Geo.File}, {"geo.asn_file", cfg.Geo.ASN}} {
		if f[1] == "" {
			continue
		}
		data, err := os.ReadFile(f[1]) // in memory rather than mapped: truncating a mapped file ends the process
		if err == nil {
			var db *maxminddb.Reader
			db, err = maxminddb.OpenBytes(data)
			all = append(all, db)
		}
		if err != nil {
			return s, fmt.Errorf("%s: %w", f[0], err)
		}
	}
	if len(all) > 0 {
		s.Places = all.locate
	}
	if cfg.Rules.Lists != "" {
		texts, err := readLists(cfg.Rules.Lists)
		if err != nil {
			return s, fmt.Errorf("rules.lists: %w", err)
		}
		s.Lists = map[string]*rules.Networks{}
		for name, list := range texts {
			if s.Lists[name], err = rules.ParseNetworks(list); err != nil {
				return s, fmt.Errorf("rules.lists: %s: %s: %w", cfg.Rules.Lists, name, err)
			}
		}
	}
	var crawlers []string
	for _, file := range cfg.Rules.Crawlers {
		texts, err := readLists(file)
		if err != nil {
			return s, fmt.Errorf("rules.crawlers: %w", err)
		}
		for _, list := range texts {
			crawlers = append(crawlers, list...)
		}
	}
	if len(cfg.Rules.Crawlers) > 0 {
		if s.Crawlers, err = rules.ParseNetworks(crawlers); err != nil {
			return s, fmt.Errorf("rules.crawlers: %w", err)
		}
	}
	return s, nil
}

// readLists reads a file of address and network lists, or one in the format of search engines: {"creationTime": "…",
// "prefixes": [{"ipv4Prefix": "…"}, {"ipv6Prefix": "…"}]}.
func readLists(file string) (map[string][]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var published struct {
		Prefixes []struct {
			V4 string `json:"ipv4Prefix"`
			V6 string `json:"ipv6Prefix"`
		} `json:"prefixes"`
	}
	if err := json.Unmarshal(data, &published); err == nil && len(published.Prefixes) > 0 {
		out := map[string][]string{}
		for _, p := range published.Prefixes {
			out["prefixes"] = append(out["prefixes"], p.V4+p.V6)
		}
		return out, nil
	}
	var lists map[string][]string
	if err := json.Unmarshal(data, &lists); err != nil || lists == nil {
		return nil, errors.Join(fmt.Errorf(`%s: must be {"name": ["10.0.0.0/8", "::1"]}`, file), err)
	}
	return lists, nil
}

// geoFiles are location files. A later file fills the gaps of an earlier one.
type geoFiles []*maxminddb.Reader

// record is the part of a file's record that rules use.
type record struct {
	Country struct {
		Code string `maxminddb:"iso_code"`
		EU   bool   `maxminddb:"is_in_european_union"`
	} `maxminddb:"country"`
	Continent struct {
		Code string `maxminddb:"code"`
	} `maxminddb:"continent"`
	Subdivisions []struct {
		Code string `maxminddb:"iso_code"`
	} `maxminddb:"subdivisions"`
	ASN uint32 `maxminddb:"autonomous_system_number"`
}

// locate is [gate.Sources.Places]. A location that cannot be read is unknown.
func (p geoFiles) locate(a netip.Addr, r *rules.Request) {
	if !a.IsValid() {
		return
	}
	for _, db := range p {
		var rec record
		if err := db.Lookup(a.Unmap().WithZone("")).Decode(&rec); err != nil {
			continue
		}
		if r.Country == "" {
			r.Country, r.EU = rec.Country.Code, rec.Country.EU
		}
		if r.Continent == "" {
			r.Continent = rec.Continent.Code
		}
		if r.Subdivision == "" && len(rec.Subdivisions) > 0 {
			r.Subdivision = rec.Subdivisions[0].Code
		}
		if r.ASN == 0 {
			r.ASN = int64(rec.ASN)
		}
	}
}
