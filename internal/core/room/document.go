package room

import (
	"fmt"
	"slices"

	"vestibule/internal/core/room/match"
)

// MaxRooms is the largest number of rooms, and of hosts, in one document.
const MaxRooms = 10_000

// Document is everything an operator writes: the rooms, and for hosts whose
// rooms do not agree on it, or that have none, the origin of what no room covers.
type Document struct {
	Rooms []Settings
	Hosts []Host
}

// Host names the pass-through origin of a host: where requests go whose path
// no room covers. A host all of whose rooms have the same origin needs none.
type Host struct {
	Name   string // as in Route
	Origin string // as in Settings
}

// WithDefaults returns d with the defaults of every room filled in and all
// hosts and origins in canonical spelling. It shares no memory with d.
func (d Document) WithDefaults() Document {
	d.Rooms, d.Hosts = slices.Clone(d.Rooms), slices.Clone(d.Hosts)
	for i := range d.Rooms {
		d.Rooms[i] = d.Rooms[i].WithDefaults()
	}
	for i := range d.Hosts {
		h := &d.Hosts[i]
		h.Name, h.Origin = spellHost(h.Name), spellOrigin(h.Origin)
	}
	return d
}

// Validate returns everything wrong with d: the hosts first, then the rooms,
// each in order, with what is wrong between rooms named at the later one. An
// empty result means that [NewSet] will take d.
func (d Document) Validate() Faults {
	return d.validate(IDOf, Labels{})
}

// ValidateAs is Validate for a document that somebody else's rooms and hosts are part of:
// faults name each as the labels say.
func (d Document) ValidateAs(l Labels) Faults {
	return d.validate(IDOf, l)
}

// Labels name the rooms and hosts of a document, by their index, as Item of a [Fault] and
// inside its Rule. Without one it is "rooms[2]" or "hosts[0]".
type Labels struct {
	Room, Host func(i int) string
}

func (l Labels) room(i int) string {
	if l.Room == nil {
		return item(i)
	}
	return l.Room(i)
}

func (l Labels) host(i int) string {
	if l.Host == nil {
		return fmt.Sprintf("hosts[%d]", i)
	}
	return l.Host(i)
}

func (d Document) validate(idOf func(string) ID, l Labels) Faults {
	// Before anything else, so that an absurd document costs nothing.
	switch {
	case len(d.Rooms) > MaxRooms:
		return Faults{{Field: "rooms", Rule: fmt.Sprintf("must be at most %d, got %d", MaxRooms, len(d.Rooms))}}
	case len(d.Hosts) > MaxRooms:
		return Faults{{Field: "hosts", Rule: fmt.Sprintf("must be at most %d, got %d", MaxRooms, len(d.Hosts))}}
	}
	c := checker{
		doc:     d.WithDefaults(),
		labels:  l,
		names:   make(map[string]int, len(d.Rooms)),
		ids:     make(map[ID]int, len(d.Rooms)),
		routes:  make(map[Route]int, len(d.Rooms)),
		origins: make(map[string]hostOrigin, len(d.Rooms)),
	}
	for i := range c.doc.Hosts {
		c.host(i)
	}
	for i := range c.doc.Rooms {
		c.room(i, idOf)
	}
	return c.faults
}

// checker goes through a document once and remembers what it met.
type checker struct {
	doc     Document
	labels  Labels
	faults  Faults
	names   map[string]int        // room name -> index of its first room
	ids     map[ID]int            // the same by ID
	routes  map[Route]int         // host and folded path -> index of the room that covers it
	origins map[string]hostOrigin // host -> where its pass-through origin comes from
}

type hostOrigin struct {
	origin string
	entry  bool // from the hosts list, which ends all argument
	first  int  // the index of that entry, or of the room
	warned bool
}

func (c *checker) host(i int) {
	h := c.doc.Hosts[i]
	add := func(field, rule string) {
		c.faults = append(c.faults, Fault{Item: c.labels.host(i), Name: clip(h.Name), Field: field, Rule: rule})
	}
	hostRule, originRule := checkHost(h.Name), CheckOrigin(h.Origin)
	if hostRule != "" {
		add("name", hostRule)
	} else if o := c.origins[h.Name]; o.entry {
		rule := "has an entry already"
		if c.labels.Host != nil {
			rule += ": " + c.labels.host(o.first)
		}
		add("name", rule)
	}
	if originRule != "" {
		add("origin", originRule)
	}
	if hostRule == "" {
		// Also when the origin is bad: it has been named once, and the rooms
		// of the host are not at fault.
		c.origins[h.Name] = hostOrigin{origin: h.Origin, entry: true, first: i}
	}
}

func (c *checker) room(i int, idOf func(string) ID) {
	s := &c.doc.Rooms[i]
	add := func(field, rule string) {
		c.faults = append(c.faults, Fault{Item: c.labels.room(i), Name: clip(s.Name), Field: field, Rule: rule})
	}
	bad := make(map[string]bool)
	for _, f := range s.Validate() {
		bad[f.Field] = true
		add(f.Field, f.Rule)
	}
	if !bad["name"] {
		if j, ok := c.names[s.Name]; ok {
			add("name", fmt.Sprintf("is the name of %s already", c.labels.room(j)))
		} else {
			c.names[s.Name] = i
			id := idOf(s.Known())
			if j, ok := c.ids[id]; ok {
				add("name", fmt.Sprintf("has the same ID as %s, choose another", c.label(j)))
			} else {
				c.ids[id] = i
			}
		}
	}
	if bad["additional_routes"] {
		return
	}
	for n, r := range s.routes() {
		if bad[routeField(n, "host")] {
			continue
		}
		if !bad[routeField(n, "path")] {
			c.route(i, routeField(n, "path"), r, add)
		}
		if !bad["origin"] {
			c.origin(i, r.Host, s.Origin, add)
		}
	}
}

// route notes that room i covers r. Paths are compared with letter case
// folded: an origin may ignore case, and a visitor would then be in both rooms.
func (c *checker) route(i int, field string, r Route, add func(field, rule string)) {
	key, _ := match.Key(r.Path)
	k := Route{Host: r.Host, Path: match.Fold(key)}
	j, ok := c.routes[k]
	switch {
	case !ok:
		c.routes[k] = i
	case i == j:
		add(field, fmt.Sprintf("names %s%s a second time", r.Host, key))
	default:
		add(field, fmt.Sprintf("names %s%s, which %s covers already", r.Host, key, c.label(j)))
	}
}

// origin notes that a room on host has this origin.
func (c *checker) origin(i int, host, origin string, add func(field, rule string)) {
	o, ok := c.origins[host]
	switch {
	case !ok:
		c.origins[host] = hostOrigin{origin: origin, first: i}
	case o.entry, o.origin == origin, o.warned:
	default:
		add("origin", fmt.Sprintf("differs from that of %s, so %s needs an entry in hosts "+
			"that says where paths no room covers go", c.label(o.first), host))
		o.warned = true
		c.origins[host] = o
	}
}

func (c *checker) label(i int) string {
	return fmt.Sprintf("%s %q", c.labels.room(i), c.doc.Rooms[i].Name)
}

func item(i int) string { return fmt.Sprintf("rooms[%d]", i) }

// passThrough returns the pass-through origin of every host of a valid
// document with its defaults filled in.
func (d Document) passThrough() map[string]string {
	origins := make(map[string]string)
	for _, s := range d.Rooms {
		for _, r := range s.routes() {
			origins[r.Host] = s.Origin
		}
	}
	for _, h := range d.Hosts {
		origins[h.Name] = h.Origin
	}
	return origins
}
