package room

import (
	"fmt"
	"slices"

	"vestibule/internal/core/room/match"
)

// MaxRooms is the largest number of rooms, and of hosts, in one document.
const MaxRooms = 10_000

// Document is the complete configuration: the rooms, and the pass-through origins of hosts without rooms or with rooms
// of different origins.
type Document struct {
	Rooms []Settings
	Hosts []Host
}

// Host sets the pass-through origin of a host: the destination of requests for paths outside all rooms. A host needs
// none if its rooms have one origin.
type Host struct {
	Name   string // as in Route
	Origin string // as in Settings
}

// WithDefaults returns d with the defaults of every room filled in and all hosts and origins in canonical form. It
// shares no memory with d.
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

// Validate returns all faults of d: those of hosts, then those of rooms, each in order. A conflict between rooms is
// reported for the later one. [NewSet] accepts d if the result is empty.
func (d Document) Validate() Faults {
	return d.validate(IDOf, Labels{})
}

// ValidateAs is Validate for a document that also contains rooms and hosts from elsewhere: faults name each by its
// label.
func (d Document) ValidateAs(l Labels) Faults {
	return d.validate(IDOf, l)
}

// Labels name the rooms and hosts of a document by their index, as Item of a [Fault] and inside its Rule. The default
// is "rooms[2]" or "hosts[0]".
type Labels struct {
	Room, Host func(i int) string
}

func (l Labels) room(i int) string {
	if l.Room == nil {
		return fmt.Sprintf("rooms[%d]", i)
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
	// First, so that an absurdly large document costs nothing.
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

// checker validates a document in one pass.
type checker struct {
	doc     Document
	labels  Labels
	faults  Faults
	names   map[string]int        // room name -> index of its first room
	ids     map[ID]int            // the same by ID
	routes  map[Route]int         // host and folded path -> index of the room that covers it
	origins map[string]hostOrigin // host -> source of its pass-through origin
}

type hostOrigin struct {
	origin string
	entry  bool // from the hosts list, which has precedence
	first  int  // index of the host entry, or of the room
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
		// Also if the origin is invalid: it has been reported once, and the rooms of the host are not at fault.
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
			id := idOf(s.TicketName())
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

// route records that room i covers r. Paths are compared with letter case folded: an origin may ignore case, and a
// visitor would then be in both rooms.
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

// origin records the origin of a room on host.
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

// PassThrough returns the pass-through origin of every host of a valid document with its defaults filled in.
func (d Document) PassThrough() map[string]string {
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
